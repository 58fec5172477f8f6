"""One run of an experiment, and the scale that an experiment is done at."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from m2ac.config import Algo

Settings = tuple[tuple[str, str], ...]
"""Names and values as they are typed, such as (("mask.rate", "0.25"),)."""


class Trial(NamedTuple):
    """One training run; its name and what is typed for it follow from its settings alone."""

    env: str
    algo: Algo
    horizon: int | None
    seed: int
    steps: int
    settings: Settings = ()
    """What is studied."""
    scale: Settings = ()
    """What makes the run small; not part of its name, since runs of one scale share a directory."""

    @property
    def name(self) -> str:
        """Of its run directory; two figures with a run in common have it once."""
        horizon = "" if self.horizon is None else f"-h{self.horizon}"
        more = "".join(f"-{name}-{value}" for name, value in self.settings)
        return re.sub(r"[^A-Za-z0-9._-]", "_", f"{self.env}-{self.algo}{horizon}-s{self.seed}{more}")

    @property
    def arguments(self) -> list[str]:
        """What is typed after `m2ac`, but for the run directory."""
        horizon = [] if self.horizon is None else ["--horizon", str(self.horizon)]
        chosen = dict(self.scale) | dict(self.settings)
        return [
            *["train", "--env", self.env, "--algo", self.algo, *horizon],
            *["--seed", str(self.seed), "--steps", str(self.steps)],
            *(word for name, value in chosen.items() for word in _typed(name, value)),
        ]


def _typed(name: str, value: str) -> list[str]:
    option = "--" + name.replace("_", "-")
    return [option.replace("--", "--no-", 1)] if value == "no" else [option, value]


class Scale(NamedTuple):
    """How much of an experiment is done."""

    name: str
    seeds: int | None
    """Of each run; None: as many as the paper has for that figure."""
    horizons: Sequence[int]
    steps: int | None
    """At most; None: the paper's."""
    summary: str


SMOKE = Scale("smoke", 2, (1, 4), 400, "seconds per run: whether everything works, not what comes of it")
DESK = Scale("desk", 2, (1, 10), 50_000, "one machine overnight")
PAPER = Scale("paper", None, (1, 4, 7, 10), None, "the whole of it")
SCALES = {scale.name: scale for scale in (SMOKE, DESK, PAPER)}

_QUICK: Settings = (
    ("eval_every", "200"),
    ("eval_episodes", "1"),
    ("final_episodes", "2"),
    ("tensorboard", "no"),
)
_FEW_STEPS: Settings = (("random_steps", "200"), ("updates_per_step", "1"))
_SMALL: dict[Algo, Settings] = {
    "sac": (*_FEW_STEPS, ("sac.hidden", "32")),
    "ppo": (("ppo.rollout", "100"), ("ppo.batch_size", "50")),
    "steve": (*_FEW_STEPS, ("world.hidden", "32"), ("world.reward_hidden", "32")),
}
_SMALL_MODEL: Settings = (
    *_FEW_STEPS,
    ("model_every", "100"),
    ("model.hidden", "32"),
    ("model.max_epochs", "2"),
    ("sac.hidden", "32"),
)


def at_scale(trials: Sequence[Trial], scale: Scale) -> list[Trial]:
    """The runs with no more steps than the scale has, small ones where it is for trying out."""
    cut = [trial._replace(steps=min(trial.steps, scale.steps or trial.steps)) for trial in trials]
    if scale.name != SMOKE.name:
        return cut
    return [trial._replace(scale=(*_QUICK, *_SMALL.get(trial.algo, _SMALL_MODEL))) for trial in cut]
