"""What all learners' updates have in common: many in one compiled scan, and a watch for numbers not finite."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool

from m2ac.finite import all_finite

S = TypeVar("S")
"""A learner's state: a named tuple."""
L = TypeVar("L")
"""What an update saw: a named tuple of numbers."""
B = TypeVar("B")
"""What an update learns from: a named tuple, of several on the first axis."""
Noise = Any

UNROLL = 2
"""Updates per round of the compiled loop: of two, one reads what the other wrote; a single one would copy it back."""


class Updates(NamedTuple):
    """Updates made one after the other, and whether every number in them was finite."""

    state: Any
    losses: Any
    finite: Bool[Array, ""]


class GuardedUpdates(NamedTuple):
    """Updates of which those with a number that is not finite were left out."""

    state: Any
    losses: Any  # of all updates, those that were left out as well
    faulty: Bool[Array, "N P"]  # which part of losses or state was not finite; an update with any of them was left out


def scanned(update: Callable[[S, B, Noise], tuple[S, L]], state: S, batches: B, noise: Noise) -> Updates:
    """One update per batch on the first axis."""
    after, losses = jax.lax.scan(lambda s, x: update(s, x[0], x[1]), state, (batches, noise), unroll=UNROLL)
    return Updates(after, losses, _no_trace(after) & all_finite(losses))


def _no_trace(state: Any) -> Bool[Array, ""]:
    """Whether no gradient since a finite state was without bounds: each one stays in Adam's second moments.

    Their sum, as none is negative: it costs a tenth of looking at every number of the state.
    """
    fields = zip(state._fields, state, strict=True)
    optimisers = [part for name, part in fields if name.endswith("optimiser") and part is not None]
    moments = jax.tree.leaves([optax.tree_utils.tree_get(optimiser, "nu") for optimiser in optimisers])
    return jnp.isfinite(jnp.sum(jnp.stack([jnp.sum(moment) for moment in moments])))


def scanned_guarded(update: Callable[[S, B, Noise], tuple[S, L]], state: S, batches: B, noise: Noise) -> GuardedUpdates:
    """`scanned` that leaves out every update after which a number of the state or the losses is not finite."""

    def guarded(state: S, batch_and_noise: tuple[B, Noise]) -> tuple[S, tuple[L, Bool[Array, "P"]]]:
        after, losses = update(state, *batch_and_noise)
        faulty = ~jnp.stack([all_finite(part) for part in (*losses, *after)])
        return jax.tree.map(partial(jnp.where, jnp.any(faulty)), state, after), (losses, faulty)

    state, (losses, faulty) = jax.lax.scan(guarded, state, (batches, noise))
    return GuardedUpdates(state, losses, faulty)


@jax.jit
def faulty_parts(state: Any) -> Bool[Array, "P"]:
    """Which fields of a learner's state hold a number that is not finite."""
    return ~jnp.stack([all_finite(part) for part in state])
