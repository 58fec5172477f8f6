"""Every figure and ablation of the paper as a grid of runs and the axes that it is drawn with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from m2ac.config import Algo
from m2ac.experiments.trial import DESK, PAPER, Scale, Trial, at_scale
from m2ac.settings import ConfigError, perhaps

CHEETAH, WALKER, SWIMMER, HUMANOID = "HalfCheetah-v5", "Walker2d", "Swimmer", "Humanoid"
NOISY_CHEETAH = ("HalfCheetah-v5", "HalfCheetah-Noisy0", "HalfCheetah-Noisy1", "HalfCheetah-Noisy2")
NOISY_WALKER = ("Walker2d", "Walker2d-Noisy0", "Walker2d-Noisy1", "Walker2d-Noisy2")
MOST_NOISE = "HalfCheetah-Noisy2"
BOTH: tuple[Algo, ...] = ("m2ac", "mbpo")

Drawing = Literal["motivating", "benchmarks", "noisy", "ablation"]


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper: its runs and how they are drawn."""

    name: str
    title: str
    claim: str
    """What the paper says it shows."""
    drawing: Drawing
    grid: Callable[[Scale], Sequence[Trial]]
    setting: str | None = None
    """Of an ablation: what is varied."""
    labels: tuple[tuple[str, str], ...] = ()
    """Of an ablation: the values as they are typed and how the figure names them."""

    def trials(self, scale: Scale) -> list[Trial]:
        """The runs of the figure at that scale, each once; a seed is complete before the next one begins."""
        return sorted(dict.fromkeys(at_scale(self.grid(scale), scale)), key=lambda trial: trial.seed)


def _seeds(scale: Scale, papers: int) -> range:
    return range(scale.seeds or papers)


def _motivating(scale: Scale) -> list[Trial]:
    levels = NOISY_CHEETAH if scale.name == PAPER.name else NOISY_CHEETAH[::3]
    longest = max(scale.horizons)
    cells = [(MOST_NOISE, horizon) for horizon in scale.horizons] + [(env, longest) for env in levels]
    return [
        Trial(env, algo, horizon, seed, 25_000) for seed in _seeds(scale, 10) for env, horizon in cells for algo in BOTH
    ]


def _benchmarks(scale: Scale) -> list[Trial]:
    budgets = {CHEETAH: 200_000, WALKER: 200_000, SWIMMER: 200_000, HUMANOID: 300_000}
    if scale.name == DESK.name:  # two tasks take the night already
        budgets = {CHEETAH: 20_000, WALKER: 20_000}
    trials = []
    for seed in _seeds(scale, 7):
        for env, steps in budgets.items():
            for horizon in scale.horizons:
                trials += [Trial(env, algo, horizon, seed, steps) for algo in BOTH]
            trials += [Trial(env, "sac", None, seed, steps), Trial(env, "ppo", None, seed, steps)]
            trials.append(Trial(env, "steve", None, seed, steps))
    return trials


def _noisy(scale: Scale) -> list[Trial]:
    cheetahs, walkers = (
        (NOISY_CHEETAH, NOISY_WALKER) if scale.name == PAPER.name else (NOISY_CHEETAH[::3], NOISY_WALKER[3:])
    )
    return [
        Trial(env, algo, horizon, seed, steps)
        for seed in _seeds(scale, 10)
        for envs, steps in ((cheetahs, 25_000), (walkers, 50_000))
        for env in envs
        for horizon in scale.horizons
        for algo in BOTH
    ]


def _ablation(setting: str, values: Sequence[str], own: str) -> Callable[[Scale], list[Trial]]:
    """One setting varied; with the paper's own choice nothing is set, since that run is in other figures too."""

    def grid(scale: Scale) -> list[Trial]:
        return [
            Trial(MOST_NOISE, "m2ac", horizon, seed, 25_000, () if value == own else ((setting, value),))
            for seed in _seeds(scale, 10)
            for horizon in scale.horizons
            for value in values
        ]

    return grid


def _study(
    name: str, title: str, claim: str, setting: str, own: str, labels: tuple[tuple[str, str], ...]
) -> Experiment:
    grid = _ablation(setting, [value for value, _ in labels], own)
    return Experiment(name, title, claim, "ablation", grid, setting, labels)


_ALL = (
    Experiment(
        "motivating",
        "Two motivating examples",
        "MBPO is sensitive to the rollout length and its scores drop rapidly with noise; M2AC gains from long rollouts "
        "and is more robust.",
        "motivating",
        _motivating,
    ),
    Experiment(
        "benchmarks",
        "Training curves on MuJoCo",
        "Level with MBPO at length 1; MBPO falls as the length grows, M2AC does not; as good as the best model-free "
        "method with about a fifth of the samples.",
        "benchmarks",
        _benchmarks,
    ),
    Experiment(
        "noisy",
        "Noisy environments with very few interactions",
        "M2AC learns in all of them, whatever the length, while MBPO hardly learns anything in the noisy Walker2d.",
        "noisy",
        _noisy,
    ),
    _study(
        "ablation-rate",
        "Masking rate",
        "Insensitive to the rate, but for 0.9 with long rollouts; the decaying one works almost everywhere.",
        "mask.rate",
        "paper",
        (
            *[(rate, f"w = {rate}") for rate in ("0.1", "0.25", "0.5", "0.75", "0.9")],
            ("paper", "w decays"),
        ),
    ),
    _study(
        "ablation-penalty",
        "Penalty coefficient",
        "0.001 is the best of 0.01, 0.001 and 0.",
        "mask.penalty",
        "0.001",
        (("0", "α = 0"), ("0.001", "α = 0.001"), ("0.01", "α = 0.01")),
    ),
    _study(
        "ablation-mode",
        "Multi-step masked rollout mode",
        "Non-stop is better than hard-stop.",
        "mask.stop",
        "nonstop",
        (("nonstop", "non-stop"), ("hardstop", "hard-stop")),
    ),
    _study(
        "ablation-uncertainty",
        "Uncertainty estimation",
        "One-vs-Rest is better than One-vs-All and the negative likelihood.",
        "mask.uncertainty",
        "ovr",
        (("ovr", "One-vs-Rest"), ("ova", "One-vs-All"), ("nll", "negative likelihood")),
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}


def find_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ConfigError(f'there is no experiment "{name}".{perhaps(name, EXPERIMENTS)} There are {known}.')
    return EXPERIMENTS[name]
