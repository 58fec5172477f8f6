"""The compiled phases of Algorithm 1 for several seeds at once, which are the first axis of every array.

Each is the phase of one seed under `jax.vmap`. A loop then goes on until every seed is done, and those that are done
before stay as they are.
"""

from functools import partial
from inspect import unwrap
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from jaxtyping import Key as KeyArray

from m2ac.algorithms import diagnostics, phases, watch
from m2ac.algorithms.diagnostics import ModelErrors, Returns, Window
from m2ac.algorithms.phases import Trust
from m2ac.algorithms.training import in_env_units
from m2ac.compiling import compile_for_ensemble
from m2ac.dynamics import fit as single
from m2ac.dynamics.ensemble import Ensemble
from m2ac.dynamics.fit import Dynamics, Fit, FitReport
from m2ac.imagination.rollout import Imagination
from m2ac.learner_config import SACConfig
from m2ac.learners import sac, updating
from m2ac.learners.choice import Learner
from m2ac.learners.sac import SACState
from m2ac.learners.updating import GuardedUpdates, Updates
from m2ac.model_config import ModelConfig
from m2ac.networks import MLP
from m2ac.replay import Imagined, Real, add_real, grow_real, slots_used
from m2ac.scaling import Scaling
from m2ac.types import Key, Transition

Keys = KeyArray[Array, "S"]
"""One random key per seed."""

# The functions themselves: what the compiler is told about each has to be told about the whole program.
_start_fit: Any = unwrap(single.start_fit)
_fit_slice: Any = unwrap(single.fit_slice)
_finish_fit: Any = unwrap(single.finish_fit)
_imagine: Any = unwrap(phases.imagine)
_draw_batches: Any = unwrap(phases.draw_batches)
_update_many: Any = unwrap(sac.update_many)
_update_many_guarded: Any = unwrap(sac.update_many_guarded)
_faulty_parts: Any = unwrap(updating.faulty_parts)
_fit_slice_guarded: Any = unwrap(single.fit_slice_guarded)
_fit_is_finite: Any = unwrap(single.fit_is_finite)
_faulty_dynamics: Any = unwrap(single.faulty_dynamics)
_reward_range: Any = unwrap(watch.reward_range)
_judge_model: Any = unwrap(diagnostics.judge_model)
_judge_critics: Any = unwrap(diagnostics.judge_critics)


_store = jax.jit(jax.vmap(add_real, in_axes=(0, 0, None)), donate_argnums=0)
_slots_used = jax.jit(jax.vmap(slots_used))


def store(real: Real, rows: Transition, count: int) -> Real:
    """Line 4 of Algorithm 1: every seed's D_env takes the first `count` rows of its own."""
    return _store(phases.with_slots(real, rows.reward.shape[1], _slots_used, _grow), rows, np.int32(count))


def _grow(real: Real, capacity: int, *, slots: int) -> Real:
    return jax.vmap(partial(grow_real, capacity=capacity, slots=slots))(real)


@compile_for_ensemble(static_argnames=("window", "how"))
def judge_model(
    ensemble: Ensemble, real: Real, keys: Keys, phase: Int[Array, ""], *, window: Window, how: Imagination
) -> ModelErrors:
    """Every model on the newest rows of its own."""

    def judge(ensemble: Ensemble, real: Real, key: Key) -> ModelErrors:
        return _judge_model(ensemble, real, key, phase, window=window, how=how)

    return jax.vmap(judge)(ensemble, real, keys)


@partial(jax.jit, static_argnames="learner")
def judge_critics(states: SACState, real: Real, bonus: Float[Array, "S"], *, learner: Learner) -> Returns:
    """Every learner's critics on the newest rows of its own."""
    return jax.vmap(partial(_judge_critics, learner=learner))(states, real, bonus)


@partial(jax.jit, static_argnames="config")
def start_fit(dynamics: Dynamics, real: Real, keys: Keys, fits: Int[Array, ""], config: ModelConfig) -> Fit:
    """Line 5 of Algorithm 1 begins; `keys` are those of the fits, `fits` says how many there were."""

    def start(dynamics: Dynamics, real: Real, key: Key) -> Fit:
        return _start_fit(dynamics, real, config, key=jax.random.fold_in(key, fits))

    return jax.vmap(start)(dynamics, real, keys)


@compile_for_ensemble(static_argnames="config")
def fit_slice(fit: Fit, real: Real, budget: Int[Array, ""], config: ModelConfig) -> Fit:
    """Go on with the fits that are not done, each for at most `budget` batches."""
    return jax.vmap(lambda fit, real: _fit_slice(fit, real, budget, config))(fit, real)


@compile_for_ensemble(static_argnames="config")
def fit_slice_guarded(fit: Fit, real: Real, budget: Int[Array, ""], config: ModelConfig) -> Fit:
    """`fit_slice` without the batches after which something is not finite."""
    return jax.vmap(lambda fit, real: _fit_slice_guarded(fit, real, budget, config))(fit, real)


fit_is_finite = jax.jit(jax.vmap(_fit_is_finite))
faulty_dynamics = jax.jit(jax.vmap(_faulty_dynamics))
faulty_parts = jax.jit(jax.vmap(_faulty_parts))
reward_range = jax.jit(jax.vmap(_reward_range))


@compile_for_ensemble(static_argnames="config")
def finish_fit(fit: Fit, real: Real, config: ModelConfig) -> tuple[Dynamics, FitReport]:
    """Line 5 of Algorithm 1 ends."""
    return jax.vmap(lambda fit, real: _finish_fit(fit, real, config))(fit, real)


@compile_for_ensemble(static_argnames=("rollouts", "how"), donate_argnums=0)
def imagine(
    imagined: Imagined,
    policy: MLP,
    ensemble: Ensemble,
    real: Real,
    keys: Keys,
    scaling: Scaling | None,
    phase: Int[Array, ""],
    *,
    rollouts: int,
    how: Imagination,
) -> tuple[Imagined, Trust]:
    """Lines 6-7 of Algorithm 1; `scaling` is None where every seed's networks see the environment's observations."""

    def imagine_one(scaling: Scaling | None, *own: Any) -> tuple[Imagined, Trust]:
        own_how = how if scaling is None else in_env_units(how, scaling)
        return _imagine(*own, phase, rollouts=rollouts, how=own_how)

    return jax.vmap(imagine_one)(scaling, imagined, policy, ensemble, real, keys)


@partial(jax.jit, static_argnames=("batches", "batch_size", "real_share"))
def draw_batches(
    real: Real,
    imagined: Imagined | None,
    keys: Keys,
    updates: Int[Array, ""],
    *,
    batches: int,
    batch_size: int,
    real_share: float | Literal["union"],
) -> tuple[Transition, Keys]:
    """The batches of line 8 of Algorithm 1, and the keys of the updates' own noise."""
    how = partial(_draw_batches, batches=batches, batch_size=batch_size, real_share=real_share)
    return jax.vmap(how, in_axes=(0, 0, 0, None))(real, imagined, keys, updates)


@partial(jax.jit, static_argnames="config")
def update_many(state: SACState, batches: Transition, keys: Keys, config: SACConfig) -> Updates:
    """Line 8 of Algorithm 1: as many updates as there are batches on the second axis."""

    def update(state: SACState, batches: Transition, key: Key) -> Updates:
        return _update_many(state, batches, config, key=key)

    return jax.vmap(update)(state, batches, keys)


@partial(jax.jit, static_argnames="config")
def update_many_guarded(state: SACState, batches: Transition, keys: Keys, config: SACConfig) -> GuardedUpdates:
    """`update_many` without the updates after which something is not finite, each seed for itself."""

    def update(state: SACState, batches: Transition, key: Key) -> GuardedUpdates:
        return _update_many_guarded(state, batches, config, key=key)

    return jax.vmap(update)(state, batches, keys)
