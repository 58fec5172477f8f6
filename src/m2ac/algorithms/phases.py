"""The compiled phases of Algorithm 1. Each is compiled once; sizes that grow are data."""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from m2ac.compiling import compile_for_ensemble
from m2ac.dynamics.ensemble import Ensemble
from m2ac.imagination.rollout import Imagination, Rolling, roll_out, start_rollouts
from m2ac.learners.sac import sample_action
from m2ac.networks import MLP
from m2ac.replay import (
    Imagined,
    Real,
    add_imagined,
    add_real,
    grow_real,
    sample_batches,
    sample_obs,
    slots_used,
    take_real,
)
from m2ac.scaling import Scaling
from m2ac.types import Border, Key, Transition

_store = jax.jit(add_real, donate_argnums=0)
_slots_used = jax.jit(slots_used)


def store(real: Real, rows: Transition, count: int) -> Real:
    """Line 4 of Algorithm 1: D_env ← D_env ∪ {(s, a, r, s')}."""
    return _store(with_slots(real, rows.reward.shape[0], _slots_used, grow_real), rows, np.int32(count))


def with_slots(real: Real, rows: int, used: Callable[[Real], Array], grow: Callable[..., Real]) -> Real:
    """Room for the observations of that many rows more: where episodes are very short, nothing can be shared."""
    if real.slots < 2 * real.capacity and np.max(used(real)) + 2 * rows > real.slots:
        return grow(real, real.capacity, slots=2 * real.capacity)
    return real


def rescaled(real: Real, scaling: Scaling) -> Real:
    """The same transitions with their observations as networks are to see them."""
    if scaling.idle:
        return real
    used = np.asarray(_slots_used(real))
    seen = np.array(real.observations)
    slots = (int(real.last) - np.arange(int(used))) % real.slots
    seen[slots] = scaling.apply(seen[slots])
    return real._replace(observations=jnp.asarray(seen))


@partial(jax.jit, static_argnames=("rows", "envs"))
def newest(real: Real, *, rows: int, envs: int) -> Transition:
    """The last rows of D_env as (T, E), where the environments took turns."""
    index = (real.cursor - rows + jnp.arange(rows)) % real.capacity
    return take_real(real, index.reshape(-1, envs))


class Trust(NamedTuple):
    """What a rollout phase kept and what it thought of it."""

    kept_by_step: Int[Array, "H"]
    alive_by_step: Int[Array, "H"]
    share_kept: Float[Array, ""]  # of the alive rows
    uncertainty_kept: Float[Array, ""]  # means
    uncertainty_dropped: Float[Array, ""]
    nonfinite_rows: Int[Array, ""]
    terminated_rows: Int[Array, ""]
    terminated_kept: Int[Array, ""]
    border: Float[Array, ""]  # of a threshold


def _trust(rolling: Rolling) -> Trust:
    rollout = rolling.rollout
    finite = jnp.isfinite(rollout.uncertainty)
    dropped = rollout.alive & finite & ~rollout.keep
    kept_by_step = jnp.sum(rollout.keep, axis=1, dtype=jnp.int32)
    alive_by_step = jnp.sum(rollout.alive, axis=1, dtype=jnp.int32)
    return Trust(
        kept_by_step=kept_by_step,
        alive_by_step=alive_by_step,
        share_kept=jnp.sum(kept_by_step) / jnp.sum(alive_by_step),
        uncertainty_kept=jnp.mean(rollout.uncertainty, where=rollout.keep),
        uncertainty_dropped=jnp.mean(rollout.uncertainty, where=dropped),
        nonfinite_rows=jnp.sum(rollout.alive & ~finite, dtype=jnp.int32),
        terminated_rows=jnp.sum(rollout.alive & rollout.rows.terminated, dtype=jnp.int32),
        terminated_kept=jnp.sum(rollout.keep & rollout.rows.terminated, dtype=jnp.int32),
        border=rolling.border.level,
    )


@partial(jax.jit, static_argnames=("rollouts", "how"))
def start_imagining(
    ensemble: Ensemble, real: Real, border: Border, key: Key, phase: Int[Array, ""], *, rollouts: int, how: Imagination
) -> Rolling:
    """Line 6 of Algorithm 1: sample B states to roll the model out from."""
    key_starts, key_rollout = jax.random.split(jax.random.fold_in(key, phase))
    starts = sample_obs(real, rollouts, key=key_starts)
    return start_rollouts(ensemble, starts, how, border=border, key=key_rollout)


@compile_for_ensemble(static_argnames="how", donate_argnums=0)
def imagine_step(rolling: Rolling, policy: MLP, ensemble: Ensemble, *, how: Imagination) -> Rolling:
    """Line 7 of Algorithm 1: one step of the rollouts; a chance to stop after each."""
    return roll_out(rolling, partial(sample_action, policy), ensemble, how, steps=1)


@partial(jax.jit, donate_argnums=0)
def finish_imagining(imagined: Imagined, rolling: Rolling) -> tuple[Imagined, Trust]:
    """Line 7 of Algorithm 1 ends: what the mask trusts is kept."""
    rollout = rolling.rollout
    return add_imagined(imagined, rollout.rows, rollout.keep)._replace(border=rolling.border), _trust(rolling)


@compile_for_ensemble(static_argnames=("rollouts", "how"), donate_argnums=0)
def imagine(
    imagined: Imagined,
    policy: MLP,
    ensemble: Ensemble,
    real: Real,
    key: Key,
    phase: Int[Array, ""],
    *,
    rollouts: int,
    how: Imagination,
) -> tuple[Imagined, Trust]:
    """Lines 6-7 of Algorithm 1 in one go, where several seeds learn together."""
    rolling = start_imagining(ensemble, real, imagined.border, key, phase, rollouts=rollouts, how=how)
    rolling = roll_out(rolling, partial(sample_action, policy), ensemble, how, steps=how.horizon)
    return finish_imagining(imagined, rolling)


@partial(jax.jit, static_argnames=("batches", "batch_size", "real_share"))
def draw_batches(
    real: Real,
    imagined: Imagined | None,
    key: Key,
    updates: Int[Array, ""],
    *,
    batches: int,
    batch_size: int,
    real_share: float | Literal["union"],
) -> tuple[Transition, Key]:
    """Batches from D_env ∪ D_model for line 8 of Algorithm 1, and the key of the updates' own noise.

    Apart from the updates, so that these are one and the same program whatever the batches are drawn from.
    """
    key_batches, key_noise = jax.random.split(jax.random.fold_in(key, updates))
    drawn = sample_batches(
        real, imagined, batches=batches, batch_size=batch_size, real_share=real_share, key=key_batches
    )
    return drawn, key_noise
