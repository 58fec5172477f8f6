"""What can be set, with its default, its meaning and its limits.

Each docstring below a field is the text of `m2ac train --help`. A field whose default is None takes the task's value,
or else the value its docstring names; `resolve` fills it in, and a run's `config.json` holds the filled form.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from m2ac.learner_config import DDPGConfig, PPOConfig, SACConfig, WorldConfig
from m2ac.model_config import LARGEST_DENOMINATOR, MaskConfig, ModelConfig, ReplayConfig
from m2ac.settings import ConfigError, at_least, check, differing, flat, positive, set_types, to_dict

Algo = Literal["m2ac", "mbpo", "sac", "ppo", "steve", "mve", "ddpg"]

MODELLED = ("m2ac", "mbpo")
"""The algorithms that fit an ensemble and imagine with it."""

SOFT = ("m2ac", "mbpo", "sac")
"""The algorithms whose learner is Soft Actor-Critic."""

EXPANDING = ("ddpg", "mve", "steve")
"""The algorithms whose learner is DDPG, with values that may look ahead."""

_WITHOUT_MODEL = ("model", "retain", "rollouts_per_update", "replay.real_share")
UNUSED: Mapping[Algo, tuple[str, ...]] = {
    "m2ac": ("ddpg", "world", "ppo"),
    "mbpo": ("ddpg", "world", "ppo"),
    "sac": (*_WITHOUT_MODEL, "ddpg", "world", "ppo"),
    "ddpg": (*_WITHOUT_MODEL, "sac", "world", "ppo"),
    "mve": (*_WITHOUT_MODEL, "sac", "ppo"),
    "steve": (*_WITHOUT_MODEL, "sac", "ppo"),
    "ppo": (*_WITHOUT_MODEL, "model_every", "sac", "ddpg", "world"),
}
"""Settings and groups of settings that an algorithm does not read."""

LIVE = "live"
"""Stands for the environment of a run whose steps are made by a control loop of the user's own."""


@dataclass(frozen=True)
class AgentConfig:
    """How an agent learns."""

    algo: Algo = "m2ac"
    """m2ac: masked model rollouts; mbpo: the same, keeping everything; sac: no model; steve, mve: values that look
    ahead with a model, weighed by its spread or not; ddpg: the same without a model; ppo: on-policy, no model."""
    horizon: int | None = None
    """Model rollout length (H_max), for steve and mve the steps that values look ahead. None: 1, or 3 for these."""
    seed: int = 0
    """Everything random follows from it: networks, batches, environment resets."""
    rhythm: Literal["mbpo", "epoch"] = "mbpo"
    """mbpo: fit and imagine every 250 steps, updates after every step; epoch: Algorithm 1 to the letter, all once
    per 1000 steps. In the epoch rhythm every call of `learn` ends with a fit, also amid an epoch."""
    updates_per_step: int | None = None
    """Updates of policy and critics per environment step. None: 10, or 1 for sac, and 4 for steve, mve and ddpg."""
    model_every: int | None = None
    """Environment steps between fits of the model. None: 250 in the mbpo rhythm, 1000 in the epoch rhythm."""
    rollouts_per_update: int = 10
    """Model rollouts started per update."""
    retain: int | None = None
    """Rollout phases whose imagined rows are kept. None: as many as 1000 steps hold in the mbpo rhythm, 1 in the epoch
    rhythm."""
    random_steps: int | None = None
    """Uniformly random actions at the start, counted as steps. None: the task's, else 5000, but a fifth of a run that
    is shorter; none for ppo."""
    offline_updates: int | None = None
    """Updates from logged experience alone, before the first step. None: 50000 in a run of no steps, else none."""
    scale_observations: bool | None = None
    """Whether numbers of an observation whose mean is beyond 20 or whose spread is outside 0.05 to 20 are shifted and
    scaled for the networks, by what the random steps show. None: no for tasks known by name, else yes; ppo has its own
    way."""
    skips_allowed: int = 100
    """Updates in a row that may be left out because their numbers are not finite; one more stops the training, and 0
    stops it at the first."""
    step_timeout: float | None = None
    """Seconds after which a reset or a step of the environment counts as hanging and ends the run, which is saved.
    Only in the main thread, and code that never returns to Python (a loop in C) cannot be interrupted. None: no
    limit."""
    rejoin: bool = True
    """Whether a training that is continued plays the actions of its unfinished episode again, without looking, to be
    where it was. A real machine may not bear that: False begins a new episode."""
    mask: MaskConfig = field(default_factory=MaskConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    sac: SACConfig = field(default_factory=SACConfig)
    ddpg: DDPGConfig = field(default_factory=DDPGConfig)
    world: WorldConfig = field(default_factory=WorldConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)

    def __post_init__(self) -> None:
        set_types(self)
        looks_ahead = self.algo in ("steve", "mve")
        at_least("horizon", self.horizon, 0 if looks_ahead else 1, "use --algo sac to train without a model")
        longest = LARGEST_DENOMINATOR // 2 - 1  # of the paper's schedule, whose denominator is 2(H+1)
        check(
            self.horizon is None or self.horizon <= longest,
            f"horizon must be at most {longest}, got {self.horizon}; the paper's longest is 10",
        )
        check(0 <= self.seed < 2**32, f"seed must be in [0, 2**32), got {self.seed}; any whole number in it will do")
        at_least("updates_per_step", self.updates_per_step, 1, "leave it out for 10, or 1 with sac")
        at_least("model_every", self.model_every, 1, "leave it out for 250, or 1000 in the epoch rhythm")
        at_least("rollouts_per_update", self.rollouts_per_update, 1, "use --algo sac to train without a model")
        at_least("retain", self.retain, 1, "1 keeps the last phase alone")
        at_least("random_steps", self.random_steps, 0, "0 is for runs that begin with logged experience")
        at_least("offline_updates", self.offline_updates, 0, "0 learns from the first step on")
        at_least("skips_allowed", self.skips_allowed, 0, "0 stops at the first update that is not finite")
        check(
            self.step_timeout is None or 0.001 <= self.step_timeout <= 86_400,
            f"step_timeout must be in [0.001, 86400] seconds, got {self.step_timeout}; leave it out for no limit",
        )
        if self.algo == "ppo":
            self._check_ppo()
        self._check_model()
        self._check_mask()

    def _check_ppo(self) -> None:
        """Refuse what an on-policy learner has no use for."""
        check(
            not self.random_steps,
            f"random_steps has no meaning for algo=ppo, got {self.random_steps}; leave it out: a stochastic policy "
            f"explores from the start",
        )
        check(
            not self.scale_observations,
            "scale_observations has no meaning for algo=ppo, got True; leave it out: ppo normalises observations",
        )
        check(
            self.updates_per_step is None,
            f"updates_per_step has no meaning for algo=ppo, got {self.updates_per_step}; "
            f"set ppo.rollout, ppo.epochs or ppo.batch_size",
        )
        check(
            not self.offline_updates,
            f"offline_updates has no meaning for algo=ppo, got {self.offline_updates}; it learns on-policy alone",
        )

    def _check_model(self) -> None:
        """Refuse settings of a model where there is none."""
        if self.algo in ("sac", "ppo", "ddpg"):
            others = "mve or steve" if self.algo == "ddpg" else "mbpo or m2ac"
            check(
                self.horizon is None,
                f"horizon has no meaning for algo={self.algo}, got {self.horizon}; "
                f"leave it out, or use --algo {others}",
            )
        if self.algo not in MODELLED:
            check(
                self.mask == MaskConfig(),
                f"mask settings have no meaning for algo={self.algo}, got {differing(self.mask, MaskConfig())}; "
                f"leave them out, or use --algo m2ac",
            )
            check(
                self.algo == "sac" or self.rhythm == "mbpo",
                f"rhythm has no meaning for algo={self.algo}, got {self.rhythm}; leave it out",
            )

    def _check_mask(self) -> None:
        """Refuse a mask that keeps what it should not, or a model that has nobody to disagree."""
        if self.algo == "mbpo":
            check(
                self.mask.rate in ("paper", 1)
                and not self.mask.penalty
                and self.mask.stop != "hardstop"
                and self.mask.rule != "threshold",
                f"algo=mbpo keeps every imagined row unpenalised, got mask.rule={self.mask.rule}, "
                f"mask.rate={self.mask.rate}, mask.penalty={self.mask.penalty}, mask.stop={self.mask.stop}; "
                f"use --algo m2ac",
            )
        if self.algo == "m2ac":
            check(
                self.model.members >= 2 or self.mask.is_idle,
                f"model.members must be at least 2 for a mask, got {self.model.members}: "
                f"one model has no rest to disagree with; use --algo mbpo or more members",
            )
            check(
                not self.alone or self.mask.is_idle,
                f"model.elites must be at least 2 with mask.rest=elites, got {self.model.elites}: "
                f"one elite has no rest to disagree with; use mask.rest=all or more elites",
            )

    @property
    def alone(self) -> bool:
        """Whether a drawn member has nobody to be compared with."""
        return self.model.members == 1 or (self.mask.rest == "elites" and self.model.elites == 1)


@dataclass(frozen=True)
class RunConfig(AgentConfig):
    """One training run."""

    env: str = "Pendulum-v1"
    """Task name (see m2ac envs), any Gymnasium id, or package.module:Id-v0."""
    steps: int | None = None
    """Environment steps of the run, random ones included. None: the task's."""
    data: tuple[str, ...] = ()
    """Logged experience to begin with: files that end in .npz, .csv or .parquet, or minari:DATASET."""
    out: str | None = None
    """Run directory. None: runs/ENV-ALGO-sSEED, with -hH before the seed where a horizon is given."""
    eval_every: int | None = None
    """Environment steps between evaluations. None: the task's, else 1000; for ppo, which is evaluated between rollouts
    only, five of these."""
    eval_episodes: int = 5
    """Episodes per evaluation, played with the policy's mean action in an environment of their own."""
    final_episodes: int = 10
    """Episodes of the evaluation at the end."""
    checkpoint_every: int | None = None
    """Environment steps after which the whole state is saved at the latest, at the end of a cycle. None:
    checkpoint_minutes alone decides."""
    checkpoint_minutes: float = 10.0
    """Minutes after which the whole state is saved at the latest, at the end of a cycle; a save also happens at the
    end and on Ctrl-C."""
    tensorboard: bool = True
    """Write TensorBoard files into the run directory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(bool(self.env), "env must name an environment, got an empty string; see m2ac envs")
        if self.data:
            check(self.algo != "ppo", f"data has no meaning for algo=ppo, got {self.data}; use --algo m2ac or sac")
            at_least("steps", self.steps, 0, "0 learns from the data alone")
        else:
            remedy = "two are random, then it learns; with data, 0 learns from that alone"
            at_least("steps", self.steps, 3, remedy)
        at_least("eval_every", self.eval_every, 1, "above steps, only after the random steps and at the end")
        at_least("eval_episodes", self.eval_episodes, 1, "to evaluate seldom raise eval_every")
        at_least("final_episodes", self.final_episodes, 1, "the run's score is their mean")
        at_least("checkpoint_every", self.checkpoint_every, 1, "leave it out to save by the clock")
        positive("checkpoint_minutes", self.checkpoint_minutes, "a large number saves at the end and on Ctrl-C only")
        if self.algo == "ppo":
            check(
                self.steps is None or self.steps >= self.ppo.rollout,
                f"steps must be at least ppo.rollout ({self.ppo.rollout}) for algo=ppo, got {self.steps}; "
                f"nothing would be learned, so lower that or raise steps",
            )
        elif self.steps and self.random_steps is not None:
            check(
                self.random_steps < self.steps,
                f"random_steps must be below steps ({self.steps}), got {self.random_steps}; "
                f"nothing would be learned, so lower it or raise steps",
            )


def is_read(name: str, algo: Algo) -> bool:
    """Whether an algorithm reads a setting, given by its dotted name."""
    return not any(name == unused or name.startswith(f"{unused}.") for unused in UNUSED[algo])


def check_used(config: AgentConfig, otherwise: AgentConfig) -> None:
    """Refuse a setting that was asked for, since it differs from `otherwise`, but that the algorithm does not read.

    Not a check of every configuration: one that is resolved has values for everything.
    """
    before, usual = flat(to_dict(otherwise)), flat(to_dict(type(config)()))
    for name, given in flat(to_dict(config)).items():
        if given not in (before[name], usual[name]) and not is_read(name, config.algo):
            group, _, _ = name.rpartition(".")
            own = {"model": "world", "sac": "ddpg"}.get(group) if config.algo in EXPANDING else None
            own = None if own in UNUSED[config.algo] else own
            instead = f", see {own}.… for the settings of {config.algo}" if own else ""
            raise ConfigError(f"{name} has no meaning for algo={config.algo}, got {given}; leave it out{instead}")


ASKED = "asked"
"""Key of a run's `config.json` under which its settings stand as they were asked for, before `resolve`."""
