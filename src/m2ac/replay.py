"""D_env and D_model: one buffer for real transitions, one for imagined ones, and batches drawn from both.

Both are allocated once; what is valid in them is data, so nothing compiles again as they fill.
"""

from fractions import Fraction
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from m2ac.types import Key, Transition


class Real(NamedTuple):
    """D_env: a ring of real transitions."""

    rows: Transition  # (capacity, …)
    size: Int[Array, ""]  # valid rows, from the front
    cursor: Int[Array, ""]  # where the next row goes


class Imagined(NamedTuple):
    """D_model: the last few rollout phases, one slot each, so that rows age by phase however many a phase kept."""

    rows: Transition  # (slots × rows per slot, …)
    counts: Int[Array, "slots"]  # valid rows, from the front of each slot
    cursor: Int[Array, ""]  # the slot the next phase goes to


def _empty_rows(capacity: int, obs_dim: int, action_dim: int) -> Transition:
    return Transition(
        obs=jnp.zeros((capacity, obs_dim)),
        action=jnp.zeros((capacity, action_dim)),
        reward=jnp.zeros(capacity),
        next_obs=jnp.zeros((capacity, obs_dim)),
        terminated=jnp.zeros(capacity, dtype=bool),
    )


def empty_real(capacity: int, obs_dim: int, action_dim: int) -> Real:
    """Room for `capacity` real transitions."""
    return Real(_empty_rows(capacity, obs_dim, action_dim), jnp.int32(0), jnp.int32(0))


def empty_imagined(slots: int, rows_per_slot: int, obs_dim: int, action_dim: int) -> Imagined:
    """Room for `slots` rollout phases of at most `rows_per_slot` kept rows."""
    rows = max(1, rows_per_slot)  # a mask may keep nothing at all, yet an array needs a row to sample from
    return Imagined(_empty_rows(slots * rows, obs_dim, action_dim), jnp.zeros(slots, dtype=jnp.int32), jnp.int32(0))


def grow_real(real: Real, capacity: int) -> Real:
    """The same rows with more room, the oldest first."""
    old = real.rows.reward.shape[0]
    oldest = jnp.where(real.size < old, 0, real.cursor)
    rows = jax.tree.map(
        lambda x: jnp.concatenate([jnp.roll(x, -oldest, axis=0), jnp.zeros((capacity - old, *x.shape[1:]), x.dtype)]),
        real.rows,
    )
    return Real(rows, real.size, jnp.copy(real.size))  # a copy: the buffers are donated, each once


def add_real(real: Real, rows: Transition, count: Int[Array, ""]) -> Real:
    """Append the first `count` of the given rows, over the oldest where there is no room."""
    capacity = real.rows.reward.shape[0]
    offset = jnp.arange(rows.reward.shape[0])
    target = jnp.where(offset < count, (real.cursor + offset) % capacity, capacity)
    return Real(
        rows=jax.tree.map(lambda old, new: old.at[target].set(new, mode="drop"), real.rows, rows),
        size=jnp.minimum(real.size + count, capacity),
        cursor=(real.cursor + count) % capacity,
    )


def add_imagined(imagined: Imagined, rows: Transition, keep: Bool[Array, "H B"]) -> Imagined:
    """Replace the oldest slot by the kept rows of an (H, B) rollout, in the order of steps and rows."""
    slots = imagined.counts.shape[0]
    size = imagined.rows.reward.shape[0] // slots
    chosen = jnp.nonzero(keep.ravel(), size=size, fill_value=0)[0]
    start = imagined.cursor * size

    def write(old: Array, new: Array) -> Array:
        packed = new.reshape(-1, *new.shape[2:])[chosen]
        return jax.lax.dynamic_update_slice_in_dim(old, packed, start, axis=0)

    return Imagined(
        rows=jax.tree.map(write, imagined.rows, rows),
        counts=imagined.counts.at[imagined.cursor].set(jnp.sum(keep, dtype=jnp.int32)),
        cursor=(imagined.cursor + 1) % slots,
    )


def take(rows: Transition, index: Int[Array, "*N"]) -> Transition:
    """Those rows, with the shape of `index`."""
    return jax.tree.map(lambda x: x[index], rows)


def sample_obs(real: Real, count: int, *, key: Key) -> Float[Array, "B D"]:
    """Line 6 of Algorithm 1: states of D_env, uniformly with replacement."""
    return real.rows.obs[jax.random.randint(key, (count,), 0, real.size)]


def _imagined_index(imagined: Imagined, nth: Int[Array, "*N"]) -> Int[Array, "*N"]:
    """Position in the buffer of the nth valid row."""
    size = imagined.rows.reward.shape[0] // imagined.counts.shape[0]
    ends = jnp.cumsum(imagined.counts)
    slot = jnp.sum(nth[..., None] >= ends, axis=-1)
    return jnp.minimum(slot * size + nth - (ends - imagined.counts)[slot], imagined.rows.reward.shape[0] - 1)


def real_rows_per_batch(share: float, batch_size: int) -> int:
    """⌊share · batch size⌋ of the share as it was written: floats would give ⌊.29 · 100⌋ = 28."""
    return int(Fraction(repr(share)) * batch_size)


def sample_batches(
    real: Real,
    imagined: Imagined | None,
    *,
    batches: int,
    batch_size: int,
    real_share: float | Literal["union"],
    key: Key,
) -> Transition:
    """Batches (batches, batch_size, …) from D_env ∪ D_model, gathered before the updates that use them.

    With a share, floor(share × batch_size) rows of every batch are real; with "union" every row is drawn uniformly over
    both buffers. Where nothing is imagined, all rows are real and equal those of a call without an imagined buffer.
    """
    key_real, key_imagined, key_source = jax.random.split(key, 3)
    shape = (batches, batch_size)
    real_rows = take(real.rows, jax.random.randint(key_real, shape, 0, real.size))
    if imagined is None:
        return real_rows
    total = jnp.sum(imagined.counts)
    nth = jax.random.randint(key_imagined, shape, 0, jnp.maximum(total, 1))
    imagined_rows = take(imagined.rows, _imagined_index(imagined, nth))
    if real_share == "union":
        is_real = jax.random.randint(key_source, shape, 0, real.size + total) < real.size
    else:
        is_real = jnp.broadcast_to(jnp.arange(batch_size) < real_rows_per_batch(real_share, batch_size), shape)
    is_real = is_real | (total == 0)

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(is_real.reshape(*shape, *[1] * (a.ndim - 2)), a, b)

    return jax.tree.map(pick, real_rows, imagined_rows)
