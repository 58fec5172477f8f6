"""STEVE's world model: deterministic networks for the change of the state, its end, and the reward."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from m2ac.learner_config import WorldConfig
from m2ac.networks import MLP, apply_mlp, glorot_uniform, init_mlp
from m2ac.types import Key, Transition


class WorldModel(NamedTuple):
    """As many of each as there are members."""

    changes: tuple[MLP, ...]  # s' − s from (s, a)
    ends: tuple[MLP, ...]  # a logit from (s', s, a); each belongs to the change of its number
    rewards: tuple[MLP, ...]  # from (s', s, a)


def init_world_model(config: WorldConfig, obs_dim: int, action_dim: int, *, key: Key) -> WorldModel:
    """Fresh networks."""
    count = config.members
    assert count is not None
    seen = obs_dim + action_dim
    change = [seen, *[config.hidden] * config.layers, obs_dim]
    judge = [seen + obs_dim, *[config.reward_hidden] * config.reward_layers, 1]

    def members(sizes: list[int], key: Key) -> tuple[MLP, ...]:
        return tuple(init_mlp(sizes, glorot_uniform, key=k) for k in jax.random.split(key, count))

    keys = jax.random.split(key, 3)
    return WorldModel(members(change, keys[0]), members(judge, keys[1]), members(judge, keys[2]))


def step(
    change: MLP, end: MLP, obs: Float[Array, "*B D"], action: Float[Array, "*B A"]
) -> tuple[Float[Array, "*B D"], Float[Array, "*B"]]:
    """Where one member thinks that the world goes, and with what probability it ends there."""
    next_obs = obs + apply_mlp(change, jnp.concatenate([obs, action], axis=-1), jax.nn.relu)
    return next_obs, jax.nn.sigmoid(_judged(end, obs, action, next_obs))


def reward(
    network: MLP, obs: Float[Array, "*B D"], action: Float[Array, "*B A"], next_obs: Float[Array, "*B D"]
) -> Float[Array, "*B"]:
    """What one member thinks that a transition is worth."""
    return _judged(network, obs, action, next_obs)


def _judged(network: MLP, obs: Array, action: Array, next_obs: Array) -> Array:
    return apply_mlp(network, jnp.concatenate([next_obs, obs, action], axis=-1), jax.nn.relu)[..., 0]


def world_loss(
    model: WorldModel, batch: Transition, bootstrap: Int[Array, "K B"], weight_decay: float
) -> Float[Array, ""]:
    """Squared errors of change and reward, cross-entropy of the end, decay of all weights; each member has rows of its
    own."""
    total = jnp.float32(0)
    for k, (change, end, network) in enumerate(zip(*model, strict=True)):
        obs, action, target, next_obs, terminated = jax.tree.map(lambda x, k=k: x[bootstrap[k]], batch)
        x = jnp.concatenate([obs, action], axis=-1)
        moved = apply_mlp(change, x, jax.nn.relu)
        total += jnp.mean(jnp.sum(jnp.square(moved - (next_obs - obs)), axis=-1))
        total += jnp.mean(jnp.square(_judged(network, obs, action, next_obs) - target))
        logit = _judged(end, obs, action, next_obs)
        total += jnp.mean(optax.sigmoid_binary_cross_entropy(logit, terminated.astype(logit.dtype)))
        for layer in (*change, *end, *network):
            total += weight_decay * 0.5 * jnp.sum(jnp.square(layer.weight))
    return total
