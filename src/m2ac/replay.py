"""D_env and D_model: one buffer for real transitions, one for imagined ones, and batches drawn from both.

Both are allocated once; what is valid in them is data, so nothing compiles again as they fill.
"""

from fractions import Fraction
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from m2ac.types import Border, Key, Transition


class Real(NamedTuple):
    """D_env: a ring of real transitions that holds every observation once.

    The observations are a ring of their own, in which the one that a transition leads to follows the one it started
    from: transitions in a row share them.
    """

    observations: Float[Array, "slots D"]
    at: Int[Array, "N"]  # the slot of each row's observation; its next one is in the slot behind
    action: Float[Array, "N A"]
    reward: Float[Array, "N"]
    terminated: Bool[Array, "N"]
    size: Int[Array, ""]  # valid rows, from the front
    cursor: Int[Array, ""]  # where the next row goes
    last: Int[Array, ""]  # the slot of the newest row's next observation

    @property
    def capacity(self) -> int:
        """The most rows there can be."""
        return self.at.shape[-1]

    @property
    def slots(self) -> int:
        """The most observations there can be."""
        return self.observations.shape[-2]

    @property
    def rows(self) -> Transition:
        """All rows, valid or not, with both observations each: twice the memory."""
        return take_real(self, jnp.arange(self.capacity))


class Imagined(NamedTuple):
    """D_model: the last few rollout phases, one slot each, so that rows age by phase however many a phase kept."""

    rows: Transition  # (slots × rows per slot, …)
    counts: Int[Array, "slots"]  # valid rows, from the front of each slot
    cursor: Int[Array, ""]  # the slot the next phase goes to
    border: Border  # what a mask with a threshold has learned from the phases so far


def _empty_rows(capacity: int, obs_dim: int, action_dim: int) -> Transition:
    return Transition(
        obs=jnp.zeros((capacity, obs_dim)),
        action=jnp.zeros((capacity, action_dim)),
        reward=jnp.zeros(capacity),
        next_obs=jnp.zeros((capacity, obs_dim)),
        terminated=jnp.zeros(capacity, dtype=bool),
    )


def first_slots(capacity: int) -> int:
    """Slots to begin with: enough unless episodes are shorter than eight steps."""
    return min(2 * capacity, capacity + capacity // 8 + 128)


def empty_real(capacity: int, obs_dim: int, action_dim: int, *, slots: int | None = None) -> Real:
    """Room for `capacity` real transitions; `slots` for their observations follow from it unless given."""
    slots = first_slots(capacity) if slots is None else slots
    return Real(
        observations=jnp.zeros((slots, obs_dim)),
        at=jnp.zeros(capacity, dtype=jnp.int32),
        action=jnp.zeros((capacity, action_dim)),
        reward=jnp.zeros(capacity),
        terminated=jnp.zeros(capacity, dtype=bool),
        size=jnp.int32(0),
        cursor=jnp.int32(0),
        last=jnp.int32(slots - 1),
    )


def empty_imagined(slots: int, rows_per_slot: int, obs_dim: int, action_dim: int) -> Imagined:
    """Room for `slots` rollout phases of at most `rows_per_slot` kept rows."""
    rows = max(1, rows_per_slot)  # a mask may keep nothing at all, yet an array needs a row to sample from
    return Imagined(
        _empty_rows(slots * rows, obs_dim, action_dim),
        jnp.zeros(slots, dtype=jnp.int32),
        jnp.int32(0),
        Border(jnp.float32(0), jnp.int32(0)),
    )


def _oldest(real: Real) -> Int[Array, ""]:
    return jnp.where(real.size < real.capacity, 0, real.cursor)


def slots_used(real: Real) -> Int[Array, ""]:
    """How many observations the rows hold."""
    return jnp.where(real.size == 0, 0, (real.last - real.at[_oldest(real)]) % real.slots + 1)


def grow_real(real: Real, capacity: int, *, slots: int) -> Real:
    """The same rows with more room, the oldest first; in their places where only the room for observations grows."""
    first_slot = real.at[_oldest(real)]
    oldest = jnp.int32(0) if capacity == real.capacity else _oldest(real)

    def grown(x: Array, first: Int[Array, ""], size: int) -> Array:
        return jnp.concatenate([jnp.roll(x, -first, axis=0), jnp.zeros((size - x.shape[0], *x.shape[1:]), x.dtype)])

    in_use = jnp.arange(slots)[:, None] < slots_used(real)
    return Real(
        observations=jnp.where(in_use, grown(real.observations, first_slot, slots), 0.0),
        at=grown((real.at - first_slot) % real.slots, oldest, capacity),
        action=grown(real.action, oldest, capacity),
        reward=grown(real.reward, oldest, capacity),
        terminated=grown(real.terminated, oldest, capacity),
        size=real.size,
        cursor=real.cursor if capacity == real.capacity else real.size % capacity,
        last=jnp.where(real.size == 0, slots - 1, (real.last - first_slot) % real.slots),
    )


def add_real(real: Real, rows: Transition, count: Int[Array, ""]) -> Real:
    """Append the first `count` of the given rows, over the oldest where there is no room.

    There must be two free slots for each of them, or two slots for every row there can be.
    """
    offset = jnp.arange(rows.reward.shape[0])
    before = jnp.concatenate([real.observations[real.last][None], rows.next_obs[:-1]])
    goes_on = jnp.all(_bits(before) == _bits(rows.obs), axis=-1) & (real.size + offset > 0)
    behind = real.last + jnp.cumsum(jnp.where(goes_on, 1, 2), dtype=jnp.int32)
    new = offset < count
    row = jnp.where(new, (real.cursor + offset) % real.capacity, real.capacity)

    def write(old: Array, values: Array) -> Array:
        return old.at[row].set(values, mode="drop")

    def write_slots(old: Array, slot: Int[Array, "n"], values: Array) -> Array:
        return old.at[jnp.where(new, slot % real.slots, real.slots)].set(values, mode="drop")

    return Real(
        observations=write_slots(write_slots(real.observations, behind - 1, rows.obs), behind, rows.next_obs),
        at=write(real.at, (behind - 1) % real.slots),
        action=write(real.action, rows.action),
        reward=write(real.reward, rows.reward),
        terminated=write(real.terminated, rows.terminated),
        size=jnp.minimum(real.size + count, real.capacity),
        cursor=(real.cursor + count) % real.capacity,
        last=jnp.where(count == 0, real.last, behind[jnp.maximum(count - 1, 0)] % real.slots),
    )


def _bits(x: Float[Array, "*N"]) -> UInt[Array, "*N"]:
    """For comparing numbers exactly: as numbers, 0 and −0 would be equal."""
    return jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}").type)


def add_imagined(imagined: Imagined, rows: Transition, keep: Bool[Array, "H B"]) -> Imagined:
    """Replace the oldest slot by the kept rows of an (H, B) rollout, in the order of steps and rows."""
    slots = imagined.counts.shape[0]
    size = imagined.rows.reward.shape[0] // slots
    chosen = jnp.nonzero(keep.ravel(), size=size, fill_value=0)[0]
    count = jnp.sum(keep, dtype=jnp.int32)
    start = imagined.cursor * size

    def write(old: Array, new: Array) -> Array:
        packed = new.reshape(-1, *new.shape[2:])[chosen]
        counts = (jnp.arange(size) < count).reshape(-1, *[1] * (packed.ndim - 1))
        # Zeros behind the kept rows: the rows that fill up there may be anything, also not finite.
        return jax.lax.dynamic_update_slice_in_dim(old, jnp.where(counts, packed, 0).astype(old.dtype), start, axis=0)

    return imagined._replace(
        rows=jax.tree.map(write, imagined.rows, rows),
        counts=imagined.counts.at[imagined.cursor].set(count),
        cursor=(imagined.cursor + 1) % slots,
    )


def take(rows: Transition, index: Int[Array, "*N"]) -> Transition:
    """Those rows, with the shape of `index`."""
    return jax.tree.map(lambda x: x[index], rows)


def take_real(real: Real, index: Int[Array, "*N"]) -> Transition:
    """Those rows of D_env, with the shape of `index`."""
    at = real.at[index]
    return Transition(
        obs=real.observations[at],
        action=real.action[index],
        reward=real.reward[index],
        next_obs=real.observations[(at + 1) % real.slots],
        terminated=real.terminated[index],
    )


def sample_obs(real: Real, count: int, *, key: Key) -> Float[Array, "B D"]:
    """Line 6 of Algorithm 1: states of D_env, uniformly with replacement."""
    return real.observations[real.at[jax.random.randint(key, (count,), 0, real.size)]]


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
    real_rows = take_real(real, jax.random.randint(key_real, shape, 0, real.size))
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
