"""The whole state of a training: with it and the configuration, a run goes on as if it had never stopped."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from m2ac.config import MODELLED, AgentConfig
from m2ac.dynamics.fit import Dynamics, init_dynamics
from m2ac.imagination.mask import most_rows_kept
from m2ac.learner_config import PPOConfig
from m2ac.learners.choice import LearnerState, learner_of
from m2ac.learners.ppo import PPOState
from m2ac.model_config import mask_rates
from m2ac.replay import Imagined, Real, empty_imagined, empty_real
from m2ac.scaling import Scaling, no_scaling
from m2ac.types import Key


class Counters(NamedTuple):
    """How far a training is."""

    steps: int = 0  # environment steps
    updates: int = 0  # updates of the learner
    fits: int = 0  # fits of the model, each followed by a rollout phase; or slices of a world model's pre-training
    modelled_at: int = -1  # the step of the last of them
    skips: int = 0  # updates in a row, up to the last one, left out because their numbers were not finite


class Episode(NamedTuple):
    """The episode under way; its actions are the last `length` rows of the real buffer."""

    number: int
    length: int
    total: float
    obs: Float[ndarray, "D"]


class State(NamedTuple):
    """Line 2 of Algorithm 1 and everything that grows from it."""

    learner: LearnerState
    real: Real
    dynamics: Dynamics | None
    imagined: Imagined | None
    counters: Counters
    episode: Episode
    scaling: Scaling  # between observations of the environment and those in the buffers


class Episodes(NamedTuple):
    """The episodes under way in environments side by side, whose rows take turns in the real buffer."""

    number: Int[ndarray, "E"]
    length: Int[ndarray, "E"]
    total: Float[ndarray, "E"]
    obs: Float[ndarray, "E D"]
    ended: Bool[ndarray, "T E"]  # of the rollout under way: which steps were the last of their episode


class OnPolicyState(NamedTuple):
    """Everything that PPO has: the rollout under way is the end of the real buffer."""

    learner: PPOState
    real: Real
    counters: Counters
    episodes: Episodes


AnyState = State | OnPolicyState


def rollout_position(counters: Counters, config: PPOConfig) -> int:
    """Steps of the rollout under way; beyond its size only where the counters do not belong together."""
    rollouts, others = divmod(counters.updates, config.epochs * config.rollout // config.batch_size)
    return -1 if others else counters.steps - rollouts * config.rollout


def init_state(
    config: AgentConfig, obs_dim: int, action_dim: int, *, learns_termination: bool, slots: int | None = None
) -> State:
    """Networks drawn from the seed, buffers empty; see `empty_real` for `slots`."""
    without_seed = replace(config, seed=0)  # one program for all seeds
    learner, real, dynamics, imagined = _init_arrays(
        jax.random.key(config.seed), without_seed, obs_dim, action_dim, learns_termination, slots
    )
    return State(
        learner=learner,
        real=real,
        dynamics=dynamics,
        imagined=imagined,
        counters=Counters(),
        episode=_no_episode(obs_dim),
        scaling=no_scaling(obs_dim),
    )


def init_on_policy(config: AgentConfig, obs_dim: int, action_dim: int) -> OnPolicyState:
    """Networks drawn from the seed, the buffer empty."""
    capacity = config.replay.capacity
    assert capacity is not None
    slots = None if config.ppo.envs == 1 else 2 * capacity  # rows that take turns share no observation
    learner, real, *_ = _init_arrays(
        jax.random.key(config.seed), replace(config, seed=0), obs_dim, action_dim, False, slots
    )
    assert isinstance(learner, PPOState)
    episodes = Episodes(*(np.array(x) for x in _no_episodes(config, obs_dim)))
    return OnPolicyState(learner, real, Counters(), episodes._replace(number=np.arange(config.ppo.envs)))


def state_shapes(
    config: AgentConfig, obs_dim: int, action_dim: int, *, learns_termination: bool, slots: int | None = None
) -> AnyState:
    """What a training would begin with, with shapes and types in the place of arrays: nothing is computed."""
    arrays = jax.eval_shape(
        lambda key: _init_arrays(key, config, obs_dim, action_dim, learns_termination, slots), jax.random.key(0)
    )
    if config.algo == "ppo":
        learner, real, *_ = arrays
        return OnPolicyState(learner, real, Counters(), _no_episodes(config, obs_dim))
    return State(*arrays, counters=Counters(), episode=_no_episode(obs_dim), scaling=no_scaling(obs_dim))


def _no_episode(obs_dim: int) -> Episode:
    return Episode(number=0, length=0, total=0.0, obs=np.zeros(obs_dim, np.float32))


def _no_episodes(config: AgentConfig, obs_dim: int) -> Episodes:
    """Of all environments, in arrays that take no memory: what is not trusted may ask for any number of them."""
    envs = config.ppo.envs
    return Episodes(
        number=np.broadcast_to(np.int64(0), envs),
        length=np.broadcast_to(np.int64(0), envs),
        total=np.broadcast_to(np.float64(0), envs),
        obs=np.broadcast_to(np.float32(0), (envs, obs_dim)),
        ended=np.broadcast_to(np.bool_(False), (config.ppo.rollout // envs, envs)),
    )


@partial(jax.jit, static_argnums=(1, 2, 3, 4, 5))
def _init_arrays(
    key: Key, config: AgentConfig, obs_dim: int, action_dim: int, learns_termination: bool, slots: int | None
) -> tuple[LearnerState, Real, Dynamics | None, Imagined | None]:
    """One program instead of a hundred small ones, which would take seconds to compile."""
    key_learner, key_dynamics = jax.random.split(key)
    assert config.replay.capacity is not None
    dynamics, imagined = None, None
    if config.algo in MODELLED:
        assert config.retain is not None
        dynamics = init_dynamics(
            config.model, obs_dim, action_dim, learns_termination=learns_termination, key=key_dynamics
        )
        imagined = empty_imagined(config.retain, rows_per_phase(config), obs_dim, action_dim)
    chosen = learner_of(config)
    learner: LearnerState = chosen.init(chosen.how, obs_dim, action_dim, key=key_learner)
    real = empty_real(config.replay.capacity, obs_dim, action_dim, slots=slots)
    return learner, real, dynamics, imagined


def rollouts_per_phase(config: AgentConfig) -> int:
    """B of Algorithm 1."""
    assert config.updates_per_step is not None
    assert config.model_every is not None
    return config.rollouts_per_update * config.updates_per_step * config.model_every


def rows_per_phase(config: AgentConfig) -> int:
    """The most rows a rollout phase can keep, from the mask's own schedule."""
    assert config.horizon is not None
    assert config.mask.stop is not None
    rates = mask_rates(1.0 if config.mask.rule == "threshold" else config.mask.rate, config.horizon)
    return most_rows_kept(rates, rollouts_per_phase(config), config.mask.stop)
