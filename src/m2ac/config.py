"""What can be set, with its default, its meaning and its limits.

Each docstring below a field is the text of `m2ac train --help`. A field whose default is None takes the task's value,
or else the value its docstring names; `resolve` fills it in, and a run's `config.json` holds the filled form.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, TypeVar

Algo = Literal["m2ac", "mbpo", "sac"]

LARGEST_DENOMINATOR = 46_340
"""Its square fits in 31 bits, so floor(rate * rows) is exact in int32 on any device."""


class ConfigError(Exception):
    """A setting that cannot work; the message names the field, the value received and the remedy.

    Not a ValueError: tyro would take that for a word it could not parse and wrap the message in its own.
    """


def perhaps(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f' Perhaps you meant "{near[0]}"?' if near else ""


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)


def _at_least(name: str, value: float | None, low: float, remedy: str = "") -> None:
    _check(
        value is None or value >= low, f"{name} must be at least {low}, got {value}{'; ' + remedy if remedy else ''}"
    )


def _positive(name: str, value: float | None, remedy: str = "") -> None:
    _check(value is None or value > 0, f"{name} must be positive, got {value}{'; ' + remedy if remedy else ''}")


def _share(name: str, value: float, remedy: str = "") -> None:
    _check(0 <= value <= 1, f"{name} must be in [0, 1], got {value}{'; ' + remedy if remedy else ''}")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    hint = perhaps(value, allowed) if isinstance(value, str) else ""
    _check(value in allowed, f"{name} must be one of {', '.join(allowed)}, got {value!r}.{hint}")


@dataclass(frozen=True)
class MaskConfig:
    """Which imagined transitions are trusted (Algorithm 2)."""

    rate: float | Literal["paper"] = "paper"
    """Share of the imagined rows kept at each rollout step, in (0, 1]. "paper" is 0.5 at horizon 1 and otherwise decays
    as (H-h)/(2(H+1)); 1 keeps everything."""
    stop: Literal["nonstop", "hardstop"] = "nonstop"
    """Whether a rollout goes on from every row (nonstop) or only from the kept ones (hardstop)."""
    uncertainty: Literal["ovr", "ova", "nll"] = "ovr"
    """Score that ranks the rows: One-vs-Rest or One-vs-All divergence, or the ensemble's negative log-likelihood."""
    penalty: float | None = None
    """Kept imagined rewards are lowered by this times the score. None: 0.001, but 0 with the nll score, which can be
    negative."""
    draw: Literal["elites", "all"] = "elites"
    """The members a prediction is drawn from."""
    rest: Literal["all", "elites"] = "all"
    """The members the drawn one is compared with."""

    def __post_init__(self) -> None:
        if isinstance(self.rate, str):
            _check(self.rate == "paper", f'mask.rate must be a number in (0, 1] or "paper", got {self.rate!r}')
        else:
            _check(0 < self.rate <= 1, f"mask.rate must be in (0, 1], got {self.rate}; use 1 to keep everything (MBPO)")
        _one_of("mask.stop", self.stop, ("nonstop", "hardstop"))
        _one_of("mask.uncertainty", self.uncertainty, ("ovr", "ova", "nll"))
        _at_least("mask.penalty", self.penalty, 0, "a negative penalty would reward the model's doubt")
        _one_of("mask.draw", self.draw, ("elites", "all"))
        _one_of("mask.rest", self.rest, ("all", "elites"))


@dataclass(frozen=True)
class ModelConfig:
    """The ensemble of probabilistic dynamics models and how it is fitted."""

    members: int = 7
    """Networks in the ensemble (K)."""
    elites: int = 5
    """Members with the lowest holdout loss that predictions are drawn from."""
    hidden: int | None = None
    """Width of the hidden layers. None: the task's, else 200."""
    layers: int = 4
    """Hidden layers."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    batch_size: int = 256
    """Rows per member in a training step."""
    weight_decay: tuple[float, ...] = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)
    """Factor of half the squared weights in the loss, one per layer from input to output."""
    holdout_share: float = 0.2
    """Share of the real rows held out for early stopping."""
    holdout_max: int = 5000
    """At most this many rows are held out."""
    stop_on: Literal["nll", "mse"] = "nll"
    """Holdout loss that early stopping watches: nll as the paper says, mse as MBPO's code does."""
    improvement: float = 0.01
    """A member has improved when its holdout loss fell by more than this share of its absolute value."""
    patience: int = 5
    """Fitting stops when no member improved for more than this many epochs."""
    max_epochs: int | None = None
    """Upper limit of epochs per fit. None: early stopping alone decides."""
    max_log_variance: float = 0.5
    """Start of the learned upper bound of the log-variance."""
    min_log_variance: float = -10.0
    """Start of the learned lower bound of the log-variance."""

    def __post_init__(self) -> None:
        _at_least("model.members", self.members, 1)
        _at_least("model.elites", self.elites, 1)
        _check(
            self.elites <= self.members,
            f"model.elites must be at most model.members ({self.members}), got {self.elites}; "
            f"lower model.elites or raise model.members",
        )
        _at_least("model.hidden", self.hidden, 1)
        _at_least("model.layers", self.layers, 1)
        _positive("model.learning_rate", self.learning_rate)
        _at_least("model.batch_size", self.batch_size, 1)
        _check(
            len(self.weight_decay) == self.layers + 1,
            f"model.weight_decay needs one value per layer ({self.layers} hidden and the output: {self.layers + 1}), "
            f"got {len(self.weight_decay)}",
        )
        _check(min(self.weight_decay) >= 0, f"model.weight_decay must not be negative, got {self.weight_decay}")
        _check(
            0 < self.holdout_share < 1,
            f"model.holdout_share must be in (0, 1), got {self.holdout_share}; early stopping needs rows on both sides",
        )
        _at_least("model.holdout_max", self.holdout_max, 1)
        _one_of("model.stop_on", self.stop_on, ("nll", "mse"))
        _at_least("model.improvement", self.improvement, 0)
        _at_least("model.patience", self.patience, 0)
        _at_least("model.max_epochs", self.max_epochs, 1)
        _check(
            self.min_log_variance < self.max_log_variance,
            f"model.min_log_variance must be below model.max_log_variance ({self.max_log_variance}), "
            f"got {self.min_log_variance}",
        )


@dataclass(frozen=True)
class ReplayConfig:
    """Where the learner's batches come from."""

    real_share: float | Literal["union"] = 0.05
    """Share of real rows in every batch; "union" samples uniformly over real and imagined rows together."""
    capacity: int | None = None
    """Real transitions kept. None: as many as the run collects, at most a million."""

    def __post_init__(self) -> None:
        if isinstance(self.real_share, str):
            _check(
                self.real_share == "union",
                f'replay.real_share must be a number in [0, 1] or "union", got {self.real_share!r}',
            )
        else:
            _share("replay.real_share", self.real_share, "0.05 is MBPO's")
        _at_least("replay.capacity", self.capacity, 1)


@dataclass(frozen=True)
class SACConfig:
    """Soft Actor-Critic, the learner."""

    hidden: int = 256
    """Width of the hidden layers of policy and critics."""
    layers: int = 2
    """Hidden layers of policy and critics."""
    learning_rate: float = 3e-4
    """Adam's step size for policy, critics and temperature."""
    discount: float = 0.99
    """Discount factor (gamma)."""
    target_rate: float = 5e-3
    """How far the target critics move towards the critics at each update (tau)."""
    batch_size: int = 256
    """Rows per update."""
    target_entropy: float | None = None
    """Entropy the temperature steers to. None: the task's, else minus the number of action dimensions."""
    temperature: float = 1.0
    """Temperature at the start."""

    def __post_init__(self) -> None:
        _at_least("sac.hidden", self.hidden, 1)
        _at_least("sac.layers", self.layers, 1)
        _positive("sac.learning_rate", self.learning_rate)
        _check(
            0 <= self.discount < 1,
            f"sac.discount must be in [0, 1), got {self.discount}; 0.99 looks about 100 steps ahead",
        )
        _check(0 < self.target_rate <= 1, f"sac.target_rate must be in (0, 1], got {self.target_rate}")
        _at_least("sac.batch_size", self.batch_size, 1)
        _positive("sac.temperature", self.temperature)


@dataclass(frozen=True)
class AgentConfig:
    """How an agent learns."""

    algo: Algo = "m2ac"
    """m2ac: masked model rollouts; mbpo: the same, keeping everything; sac: no model."""
    horizon: int | None = None
    """Model rollout length (H_max). None: 1."""
    seed: int = 0
    """Everything random follows from it: networks, batches, environment resets."""
    rhythm: Literal["mbpo", "epoch"] = "mbpo"
    """mbpo: fit and imagine every 250 steps, updates after every step; epoch: Algorithm 1 to the letter, all once
    per 1000 steps."""
    updates_per_step: int | None = None
    """Updates of policy and critics per environment step. None: 10, or 1 for sac."""
    model_every: int | None = None
    """Environment steps between fits of the model. None: 250 in the mbpo rhythm, 1000 in the epoch rhythm."""
    rollouts_per_update: int = 10
    """Model rollouts started per update."""
    retain: int | None = None
    """Rollout phases whose imagined rows are kept. None: as many as 1000 steps hold in the mbpo rhythm, 1 in the epoch
    rhythm."""
    random_steps: int | None = None
    """Uniformly random actions at the start, counted as steps. None: the task's, else 5000, but a fifth of a run that
    is shorter."""
    mask: MaskConfig = field(default_factory=MaskConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    sac: SACConfig = field(default_factory=SACConfig)

    def __post_init__(self) -> None:
        _one_of("algo", self.algo, typing.get_args(Algo))
        _at_least("horizon", self.horizon, 1, "use --algo sac to train without a model")
        _check(0 <= self.seed < 2**32, f"seed must be in [0, 2**32), got {self.seed}")
        _one_of("rhythm", self.rhythm, ("mbpo", "epoch"))
        _at_least("updates_per_step", self.updates_per_step, 1)
        _at_least("model_every", self.model_every, 1)
        _at_least("rollouts_per_update", self.rollouts_per_update, 1)
        _at_least("retain", self.retain, 1)
        _at_least(
            "random_steps", self.random_steps, 2, "the first fit needs a row to learn from and one to be judged by"
        )
        if self.algo == "sac":
            _check(
                self.horizon is None,
                f"horizon has no meaning for algo=sac, got {self.horizon}; leave it out, or use --algo mbpo or m2ac",
            )
            _check(
                self.mask == MaskConfig(),
                "mask settings have no meaning for algo=sac; leave them out, or use --algo m2ac",
            )
        if self.algo == "mbpo":
            _check(
                self.mask.rate in ("paper", 1) and not self.mask.penalty and self.mask.stop == "nonstop",
                f"algo=mbpo keeps every imagined row unpenalised, got mask.rate={self.mask.rate}, "
                f"mask.penalty={self.mask.penalty}, mask.stop={self.mask.stop}; use --algo m2ac",
            )
        if self.algo == "m2ac":
            _check(
                self.model.members >= 2 or (self.mask.rate == 1 and self.mask.penalty == 0),
                f"model.members must be at least 2 for a mask, got {self.model.members}: "
                f"one model has no rest to disagree with; use --algo mbpo or more members",
            )


@dataclass(frozen=True)
class RunConfig(AgentConfig):
    """One training run."""

    env: str = "Pendulum-v1"
    """Task name (see m2ac envs), any Gymnasium id, or package.module:Id-v0."""
    steps: int | None = None
    """Environment steps of the run, random ones included. None: the task's."""
    out: str | None = None
    """Run directory. None: runs/ENV-ALGO-SEED, with the horizon where there is one."""
    eval_every: int | None = None
    """Environment steps between evaluations. None: the task's, else 1000."""
    eval_episodes: int = 5
    """Episodes per evaluation, played with the policy's mean action in an environment of their own."""
    final_episodes: int = 10
    """Episodes of the evaluation at the end."""
    checkpoint_minutes: float = 10.0
    """Minutes between saves of the whole state; a save also happens at the end and on Ctrl-C."""
    tensorboard: bool = True
    """Write TensorBoard files into the run directory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(bool(self.env), "env must name an environment, got an empty string; see m2ac envs")
        _positive("steps", self.steps)
        _at_least("eval_every", self.eval_every, 1)
        _at_least("eval_episodes", self.eval_episodes, 1)
        _at_least("final_episodes", self.final_episodes, 1)
        _positive("checkpoint_minutes", self.checkpoint_minutes)
        if self.steps is not None and self.random_steps is not None:
            _check(
                self.random_steps < self.steps,
                f"random_steps must be below steps ({self.steps}), got {self.random_steps}; nothing would be learned",
            )


C = TypeVar("C", bound=AgentConfig)


def resolve(config: C, task: Mapping[str, Any], *, action_dim: int, steps: int) -> C:
    """The same configuration with no None left where a value is needed.

    `task` holds the task's values by dotted name, such as "sac.target_entropy"; what the user set stays.
    """
    modelled = config.algo != "sac"
    updates = config.updates_per_step or task.get("updates_per_step") or (10 if modelled else 1)
    every = config.model_every or task.get("model_every") or {"mbpo": 250, "epoch": 1000}[config.rhythm]
    fifth = -(-steps // 5)
    random_steps = task.get("random_steps", 5000)
    if config.random_steps is not None:
        random_steps = config.random_steps
    elif random_steps >= steps:  # a run shorter than the task's exploration would learn nothing
        random_steps = fifth
    keep_all = config.algo == "mbpo"
    penalty = 0.0 if keep_all or config.mask.uncertainty == "nll" else 1e-3
    values: dict[str, Any] = {
        "horizon": (config.horizon or task.get("horizon") or 1) if modelled else None,
        "updates_per_step": updates,
        "model_every": every,
        "retain": config.retain or (max(1, 1000 // every) if config.rhythm == "mbpo" else 1),
        "random_steps": random_steps,
        "model": {"hidden": config.model.hidden or task.get("model.hidden", 200)},
        "replay": {"capacity": config.replay.capacity or min(steps, 1_000_000)},
        "sac": {
            "target_entropy": task.get("sac.target_entropy", -float(action_dim))
            if config.sac.target_entropy is None
            else config.sac.target_entropy
        },
    }
    if modelled:
        values["mask"] = {
            "rate": 1.0 if keep_all else config.mask.rate,
            "penalty": penalty if config.mask.penalty is None else config.mask.penalty,
        }
    if isinstance(config, RunConfig):
        values["steps"] = steps
        values["eval_every"] = config.eval_every or task.get("eval_every", 1000)
    return override(config, values)


def override(config: C, values: Mapping[str, Any]) -> C:
    """`config` with some values replaced; keys may be dotted ("mask.rate") and values may be nested mappings."""
    names = [f.name for f in dataclasses.fields(config)]
    changes: dict[str, Any] = {}
    for key, value in values.items():
        name, _, inner = key.partition(".")
        if name not in names:
            raise ConfigError(f'there is no setting "{key}".{perhaps(name, names)}')
        current = changes.get(name, getattr(config, name))
        if dataclasses.is_dataclass(current) and not dataclasses.is_dataclass(value):
            nested = {inner: value} if inner else value
            if not isinstance(nested, Mapping):
                raise ConfigError(f"{name} is a group of settings, got {value!r}; set one of its fields instead")
            changes[name] = override(typing.cast(Any, current), nested)
        elif inner:
            raise ConfigError(f'there is no setting "{key}": {name} has no parts')
        else:
            changes[name] = value
    return dataclasses.replace(config, **changes)


def to_dict(config: AgentConfig) -> dict[str, Any]:
    """Plain values for JSON."""
    return dataclasses.asdict(config)


def from_dict(kind: type[C], values: Mapping[str, Any]) -> C:
    """The inverse of `to_dict`, with every name and type checked."""
    return _build(kind, values, "")


def _build(kind: type[Any], values: Mapping[str, Any], prefix: str) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{prefix.rstrip('.') or 'the configuration'} must be a group of settings, got {values!r}")
    hints = typing.get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]
    built = {}
    for name, value in values.items():
        if name not in names:
            raise ConfigError(f'there is no setting "{prefix}{name}".{perhaps(str(name), names)}')
        hint = hints[name]
        built[name] = (
            _build(hint, value, f"{prefix}{name}.")
            if isinstance(hint, type) and dataclasses.is_dataclass(hint)
            else _coerce(value, hint, f"{prefix}{name}")
        )
    return kind(**built)


def _coerce(value: Any, hint: Any, name: str) -> Any:
    """JSON's value as the annotated type: lists become tuples, whole numbers may stand for floats."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        for option in typing.get_args(hint):
            try:
                return _coerce(value, option, name)
            except ConfigError:
                continue
    elif origin is Literal:
        if value in typing.get_args(hint):
            return value
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(_coerce(item, typing.get_args(hint)[0], name) for item in value)
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif hint is type(None):
        if value is None:
            return None
    elif type(value) is hint:
        return value
    options = " or ".join(str(a) for a in typing.get_args(hint)) or getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{name} must be {options}, got {value!r}")


def mask_rates(rate: float | Literal["paper"], horizon: int) -> tuple[Fraction, ...]:
    """The share kept at h = 0 .. H-1, exactly: floats would give floor(.29 * 100) = 28."""
    if rate == "paper":
        if horizon == 1:
            return (Fraction(1, 2),)
        return tuple(Fraction(horizon - h, 2 * (horizon + 1)) for h in range(horizon))
    return (Fraction(repr(float(rate))).limit_denominator(LARGEST_DENOMINATOR),) * horizon
