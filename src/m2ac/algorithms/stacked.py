"""The arrays of many states as one tree, whose first axis they are."""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from m2ac.algorithms.state import State
from m2ac.dynamics.fit import Dynamics
from m2ac.learners.sac import SACState
from m2ac.replay import Imagined, Real

T = TypeVar("T")


class Arrays(NamedTuple):
    """The arrays of the states of all seeds, which are their first axis."""

    learner: SACState
    real: Real
    dynamics: Dynamics | None
    imagined: Imagined | None


def arrays_of(state: State) -> Arrays:
    """Those of one state."""
    assert isinstance(state.learner, SACState)
    return Arrays(state.learner, state.real, state.dynamics, state.imagined)


@jax.jit
def stacked(*trees: T) -> T:
    """One tree with a first axis for many that have none."""
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


@jax.jit
def one_or_other(first: Any, tree: T, other: T) -> T:
    """Stacked trees mixed: from the first one where `first` says so."""
    return jax.tree.map(lambda a, b: jnp.where(first.reshape(-1, *[1] * (a.ndim - 1)), a, b), tree, other)


@jax.jit
def one_of(tree: T, i: Any) -> T:
    """The part of a stacked tree that is at index i of its first axis."""
    return jax.tree.map(lambda x: x[i], tree)
