"""Soft Actor-Critic (Haarnoja et al., 2018): twin critics, a tanh-Gaussian policy, a learned temperature.

State is one pytree; `update` returns the next one.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from m2ac.learner_config import SACConfig
from m2ac.learners import tanh_normal
from m2ac.learners.updating import GuardedUpdates, Updates, scanned, scanned_guarded
from m2ac.networks import MLP, apply_mlp, glorot_uniform, init_mlp
from m2ac.types import Key, Transition

Critics = tuple[MLP, MLP]


class SACState(NamedTuple):
    """Everything Soft Actor-Critic learns, and its optimisers."""

    policy: MLP
    critics: Critics
    targets: Critics
    log_temperature: Float[Array, ""]
    policy_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    temperature_optimiser: optax.OptState


class SACLosses(NamedTuple):
    """What an update saw; means over the batch."""

    critic_loss: Float[Array, "*N"]
    policy_loss: Float[Array, "*N"]
    temperature: Float[Array, "*N"]
    entropy: Float[Array, "*N"]
    value: Float[Array, "*N"]


def init_sac(config: SACConfig, obs_dim: int, action_dim: int, *, key: Key) -> SACState:
    """Fresh networks; the targets start as copies of the critics."""
    hidden = [config.hidden] * config.layers
    key_policy, *key_critics = jax.random.split(key, 3)
    policy = init_mlp([obs_dim, *hidden, 2 * action_dim], glorot_uniform, key=key_policy)
    first, second = (init_mlp([obs_dim + action_dim, *hidden, 1], glorot_uniform, key=k) for k in key_critics)
    log_temperature = jnp.log(jnp.float32(config.temperature))
    adam = optax.adam(config.learning_rate)
    return SACState(
        policy=policy,
        critics=(first, second),
        targets=jax.tree.map(jnp.copy, (first, second)),
        log_temperature=log_temperature,
        policy_optimiser=adam.init(policy),
        critic_optimiser=adam.init((first, second)),
        temperature_optimiser=adam.init(log_temperature),
    )


def distribution(policy: MLP, obs: Float[Array, "*B D"]) -> tanh_normal.TanhNormal:
    """π(·|s)."""
    return tanh_normal.from_output(apply_mlp(policy, obs, jax.nn.relu))


def sample_action(policy: MLP, obs: Float[Array, "B D"], key: Key) -> Float[Array, "B A"]:
    """Actions drawn from π(·|s)."""
    p = distribution(policy, obs)
    return tanh_normal.sample(p, jax.random.normal(key, p.mean.shape))[0]


def mean_action(policy: MLP, obs: Float[Array, "*B D"]) -> Float[Array, "*B A"]:
    """What is done where nothing is left to chance."""
    return jnp.tanh(distribution(policy, obs).mean)


def values(critics: Critics, obs: Float[Array, "*B D"], action: Float[Array, "*B A"]) -> Float[Array, "2 *B"]:
    """Q₁ and Q₂."""
    x = jnp.concatenate([obs, action], axis=-1)
    return jnp.stack([apply_mlp(critic, x, jax.nn.relu)[..., 0] for critic in critics])


def critic_target(state: SACState, batch: Transition, noise: Float[Array, "B A"], discount: float) -> Float[Array, "B"]:
    """r + γ (1 − terminated) (min Q̄(s', a') − τ log π(a'|s')), a' ~ π; a time-out is not a termination."""
    action, log_prob = tanh_normal.sample(distribution(state.policy, batch.next_obs), noise)
    value = jnp.min(values(state.targets, batch.next_obs, action), axis=0)
    soft_value = value - jnp.exp(state.log_temperature) * log_prob
    return batch.reward + discount * jnp.where(batch.terminated, 0.0, soft_value)


def critic_loss(critics: Critics, batch: Transition, target: Float[Array, "B"]) -> tuple[Array, Array]:
    """Half the squared error of each critic, averaged over the batch and summed; and the mean value."""
    q = values(critics, batch.obs, batch.action)
    return 0.5 * jnp.sum(jnp.mean(jnp.square(q - target), axis=-1)), jnp.mean(q)


def policy_loss(
    policy: MLP, critics: Critics, temperature: Float[Array, ""], obs: Float[Array, "B D"], noise: Float[Array, "B A"]
) -> tuple[Array, Array]:
    """E[τ log π(a|s) − min Q(s, a)], a ~ π; and the mean log-probability."""
    action, log_prob = tanh_normal.sample(distribution(policy, obs), noise)
    value = jnp.min(values(critics, obs, action), axis=0)
    return jnp.mean(temperature * log_prob - value), jnp.mean(log_prob)


def temperature_loss(
    log_temperature: Float[Array, ""], log_prob: Float[Array, ""], target_entropy: float
) -> Float[Array, ""]:
    """−log τ · (E log π + target entropy): the temperature rises while the entropy is below its target."""
    return -log_temperature * (log_prob + target_entropy)


def update(
    state: SACState, batch: Transition, noise: Float[Array, "2 B A"], config: SACConfig
) -> tuple[SACState, SACLosses]:
    """One gradient step for critics, policy and temperature, and one step of the targets after the critics.

    `noise` is standard normal: for the next actions of the critics' target, and for the policy's own.
    """
    assert config.target_entropy is not None
    adam = optax.adam(config.learning_rate)

    target = critic_target(state, batch, noise[0], config.discount)
    (loss_q, value), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critics, batch, target)
    step, critic_optimiser = adam.update(gradient, state.critic_optimiser)
    critics = optax.apply_updates(state.critics, step)

    temperature = jnp.exp(state.log_temperature)
    (loss_pi, log_prob), gradient = jax.value_and_grad(policy_loss, has_aux=True)(
        state.policy, critics, temperature, batch.obs, noise[1]
    )
    step, policy_optimiser = adam.update(gradient, state.policy_optimiser)
    policy = optax.apply_updates(state.policy, step)

    gradient = jax.grad(temperature_loss)(state.log_temperature, log_prob, config.target_entropy)
    step, temperature_optimiser = adam.update(gradient, state.temperature_optimiser)

    return (
        SACState(
            policy=policy,
            critics=critics,
            targets=optax.incremental_update(critics, state.targets, config.target_rate),
            log_temperature=optax.apply_updates(state.log_temperature, step),
            policy_optimiser=policy_optimiser,
            critic_optimiser=critic_optimiser,
            temperature_optimiser=temperature_optimiser,
        ),
        SACLosses(loss_q, loss_pi, temperature, -log_prob, value),
    )


def _noise(batches: Transition, key: Key) -> Float[Array, "N 2 B A"]:
    return jax.random.normal(key, (batches.reward.shape[0], 2, *batches.action.shape[1:]))


@partial(jax.jit, static_argnames="config")
def update_many(state: SACState, batches: Transition, config: SACConfig, *, key: Key) -> Updates:
    """One update per batch on the first axis, in one compiled scan with the noise drawn before it.

    The given state stays as it was: where something was not finite, `update_many_guarded` begins there again.
    """
    return scanned(lambda s, b, n: update(s, b, n, config), state, batches, _noise(batches, key))


@partial(jax.jit, static_argnames="config")
def update_many_guarded(state: SACState, batches: Transition, config: SACConfig, *, key: Key) -> GuardedUpdates:
    """`update_many` that leaves out every update after which a number of the state or the losses is not finite.

    Another program, compiled when it is first needed: what it makes differs from `update_many` in the last digits.
    """
    return scanned_guarded(lambda s, b, n: update(s, b, n, config), state, batches, _noise(batches, key))
