"""Numbers that are not finite in training: left out and counted, told with their place, and one too many ends it."""

from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from m2ac.config import AgentConfig
from m2ac.dynamics.fit import Dynamics, FitReport
from m2ac.finite import first_faulty
from m2ac.learners.choice import Learner, Losses
from m2ac.replay import Real
from m2ac.settings import UserError

L = TypeVar("L", bound=Losses)


class NumbersError(UserError):
    """Training cannot go on with numbers that are not finite; the message says which, where and what to do."""


class Place(NamedTuple):
    """Where in a training."""

    step: int
    update: int
    seed: int

    def __str__(self) -> str:
        return f"update {self.update} at step {self.step} (seed {self.seed})"


class Skips(NamedTuple):
    """Updates that were left out of some made together."""

    updates: int = 0
    longest: int = 0  # in a row, with those right before
    at_end: int = 0  # in a row, up to the last update of all
    last: int = 0  # which one was the last to be left out
    what: str = ""  # was not finite in that one


def skips_of(learner: Learner, losses: Losses, faulty: Bool[ndarray, "N P"], *, before: int) -> Skips:
    """What `update_many_guarded` left out, where `before` updates in a row were left out right before."""
    skipped = np.any(faulty, axis=1)
    run, longest = before, 0
    for each in skipped.tolist():
        run = run + 1 if each else 0
        longest = max(longest, run)
    last = int(np.flatnonzero(skipped)[-1]) if skipped.any() else 0
    return Skips(int(skipped.sum()), longest, run, last, _what(learner, losses, faulty, last))


def _what(learner: Learner, losses: Losses, faulty: Bool[ndarray, "N P"], i: int) -> str:
    """The losses that were not finite, with their values; without one, what their gradients touched."""
    told = [f"{name} {value[i]}" for name, value in losses._asdict().items() if not np.isfinite(value[i])]
    return ", ".join(told or [name for name, bad in zip(learner.parts, faulty[i], strict=True) if bad])


def without_skipped(losses: L, faulty: Bool[ndarray, "*S N P"]) -> L:
    """NaN in place of the losses of updates that were left out."""
    skipped = np.any(faulty, axis=-1)
    return jax.tree.map(lambda x: np.where(skipped, np.float32(np.nan), x), losses)


def mean_of_finite(x: Float[ndarray, "N"]) -> float:
    """The mean without the numbers that are not finite; NaN where there is no other."""
    finite = np.isfinite(x)
    if finite.all():
        return float(np.mean(x))
    return float(np.mean(x[finite])) if finite.any() else float("nan")


def check_skips(skips: Skips, learner: Learner, config: AgentConfig, real: Real, place: Place) -> None:
    """Stop where too many updates in a row were left out; `place` is that of the first of those made together."""
    if skips.longest > config.skips_allowed:
        raise NumbersError(
            f"{skips.longest} updates in a row were skipped because their numbers were not finite, and skips_allowed "
            f"is {config.skips_allowed}; the last with {skips.what} in "
            f"{place._replace(update=place.update + skips.last)}; {_largest(real)}, "
            f"or lower {learner.group}.learning_rate ({getattr(config, learner.group).learning_rate})"
        )


def check_state(state: Any) -> None:
    """Refuse a state to go on from that holds a number which is not finite."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    fault = first_faulty({jax.tree_util.keystr(path): leaf for path, leaf in leaves})
    if fault is not None:
        raise NumbersError(
            f"state{fault[0]} is {fault[1]}; a training cannot begin with it, go on from an earlier checkpoint"
        )


def check_learner(learner: Learner, faulty: Bool[ndarray, "P"], place: Place) -> None:
    """Stop where the learner itself is damaged: no update can mend it."""
    names = [name for name, bad in zip(learner.state._fields, faulty, strict=True) if bad]
    if names:
        raise NumbersError(
            f"numbers in the learner's {', '.join(names)} are not finite before {place}; "
            f"go on from an earlier checkpoint"
        )


def check_dynamics(faulty: Bool[ndarray, "P"], place: Place) -> None:
    """Stop where the model itself is damaged: no batch can mend it."""
    members = len(faulty) - 2
    names = [*(f"member {k}" for k in range(members)), "bounds and standardisation", "optimiser"]
    bad = [name for name, is_bad in zip(names, faulty, strict=True) if is_bad]
    if bad:
        raise NumbersError(
            f"numbers in the model's {', '.join(bad)} are not finite in its fit before {place}; "
            f"go on from an earlier checkpoint"
        )


def is_refused(report: FitReport, config: AgentConfig) -> Any:
    """Whether no member of a fit can be judged, or for several fits which are such."""
    loss = report.holdout_nll if config.model.stop_on == "nll" else report.holdout_mse
    return ~np.isfinite(loss).any(axis=-1)


def check_refused(before: Dynamics, real: Real, place: Place) -> None:
    """Stop where a fit was refused and there is no earlier one to go on with."""
    counts = [int(x) for x in jax.tree.leaves(before.optimiser) if np.issubdtype(x.dtype, np.integer)]
    if not any(counts):
        raise NumbersError(
            f"no member of the model has a finite holdout loss after its first fit, before {place}; {_largest(real)}"
        )


def _largest(real: Real) -> str:
    reward, obs = (float(np.abs(np.asarray(x)).max()) for x in (real.reward, real.observations))
    return f"the largest real reward is {reward:.2g} and the largest observation {obs:.2g}: scale them to about 1"
