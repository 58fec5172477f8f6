"""PPO: a rollout of several environments, the advantages of its steps, and some epochs of clipped updates on them.

State is one pytree; `prepare` turns a rollout into batches and `update` is one gradient step. Observations are
standardised and rewards scaled by statistics of all rollouts: those before the one under way to act, that one included
to learn from it.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from m2ac.finite import all_finite
from m2ac.learner_config import PPOConfig
from m2ac.learners.updating import GuardedUpdates, Updates, scanned, scanned_guarded
from m2ac.networks import MLP, Linear, apply_mlp, init_mlp, orthogonal
from m2ac.types import Key, Transition

ADAM_EPSILON = 1e-5
LARGEST_REWARD = 10.0
"""In scaled units; what is beyond is cut."""
SMALL = 1e-8


class Statistics(NamedTuple):
    """Mean and variance of all that was seen."""

    rows: Float[Array, ""]
    mean: Float[Array, "*D"]
    variance: Float[Array, "*D"]


class PPOState(NamedTuple):
    """Everything that is learned, its optimiser, and the statistics that inputs and rewards are measured by."""

    policy: MLP  # gives the mean
    log_std: Float[Array, "A"]
    critic: MLP
    optimiser: optax.OptState
    seen: Statistics  # of observations
    earned: Statistics  # of discounted sums of rewards
    sums: Float[Array, "E"]  # the discounted sum of the episode under way, environment by environment


class Batch(NamedTuple):
    """Rows that a gradient step learns from."""

    obs: Float[Array, "*B D"]  # standardised
    action: Float[Array, "*B A"]
    log_prob: Float[Array, "*B"]  # of the policy that acted
    advantage: Float[Array, "*B"]
    target: Float[Array, "*B"]  # for the critic, in scaled units


class PPOLosses(NamedTuple):
    """What an update saw; means over the batch."""

    policy_loss: Float[Array, "*N"]
    critic_loss: Float[Array, "*N"]
    entropy: Float[Array, "*N"]
    divergence: Float[Array, "*N"]  # KL from the policy that acted, estimated
    clipped: Float[Array, "*N"]  # share of rows
    value: Float[Array, "*N"]  # in the end in units of the rewards


def _optimiser(config: PPOConfig) -> optax.GradientTransformation:
    assert config.learning_rate is not None
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_norm), optax.adam(config.learning_rate, eps=ADAM_EPSILON)
    )


def init_ppo(config: PPOConfig, obs_dim: int, action_dim: int, *, key: Key) -> PPOState:
    """Fresh networks: the policy's mean starts near 0, whatever is observed."""
    key_policy, key_critic = jax.random.split(key)
    hidden = [config.hidden] * config.layers
    policy = init_mlp([obs_dim, *hidden, action_dim], orthogonal(2**0.5), key=key_policy, last=orthogonal(0.01))
    critic = init_mlp([obs_dim, *hidden, 1], orthogonal(2**0.5), key=key_critic, last=orthogonal(1.0))
    log_std = jnp.full(action_dim, config.log_std, dtype=jnp.float32)
    return PPOState(
        policy=policy,
        log_std=log_std,
        critic=critic,
        optimiser=_optimiser(config).init((policy, log_std, critic)),
        seen=Statistics(jnp.float32(0), jnp.zeros(obs_dim), jnp.ones(obs_dim)),
        earned=Statistics(jnp.float32(0), jnp.float32(0), jnp.float32(1)),
        sums=jnp.zeros(config.envs),
    )


def with_more(statistics: Statistics, rows: Float[Array, "N *D"]) -> Statistics:
    """The statistics with some rows more; as they were where these are too large for a variance."""
    count = statistics.rows + rows.shape[0]
    off = jnp.mean(rows, axis=0) - statistics.mean
    share = rows.shape[0] / count
    within = (1.0 - share) * statistics.variance + share * jnp.var(rows, axis=0)
    after = Statistics(count, statistics.mean + share * off, within + share * (1.0 - share) * jnp.square(off))
    return jax.tree.map(partial(jnp.where, all_finite(after)), after, statistics)


def deviation(statistics: Statistics) -> Float[Array, "*D"]:
    """The standard deviation; 1 for what has been the same up to rounding, which may yet change."""
    std = jnp.sqrt(statistics.variance)
    return jnp.where(std <= 1e-5 * (jnp.abs(statistics.mean) + 1e-5), 1.0, std)


def standardised(statistics: Statistics, obs: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """Observations in units of what was seen before."""
    return (obs - statistics.mean) / deviation(statistics)


def scale(state: PPOState) -> Float[Array, ""]:
    """What rewards are divided by."""
    return deviation(state.earned)


def acting(state: PPOState) -> MLP:
    """The policy as one network of what is observed, whose outputs are the mean and the log of the deviation."""
    first, *others = state.policy
    weight = first.weight / deviation(state.seen)[:, None]
    layers = [Linear(weight, first.bias - state.seen.mean @ weight), *others]
    last = layers[-1]
    layers[-1] = Linear(
        jnp.concatenate([last.weight, jnp.zeros_like(last.weight)], axis=1), jnp.concatenate([last.bias, state.log_std])
    )
    return tuple(layers)


def log_prob(mean: Float[Array, "*B A"], log_std: Float[Array, "A"], action: Float[Array, "*B A"]) -> Array:
    """Of an action before it is cut to the range of actions."""
    z = (action - mean) / jnp.exp(log_std)
    return jnp.sum(-0.5 * jnp.square(z) - log_std - 0.5 * jnp.log(2.0 * jnp.pi), axis=-1)


def values(critic: MLP, obs: Float[Array, "*B D"]) -> Float[Array, "*B"]:
    """V(s) of standardised observations, in scaled units."""
    return apply_mlp(critic, obs, jnp.tanh)[..., 0]


def advantages(
    reward: Float[Array, "T *E"],
    value: Float[Array, "T *E"],
    next_value: Float[Array, "T *E"],
    terminated: Bool[Array, "T *E"],
    ended: Bool[Array, "T *E"],
    config: PPOConfig,
) -> Float[Array, "T *E"]:
    """Generalised advantage estimation (Schulman et al., 2016, Eq. 16).

    An episode that was cut off is worth what the critic says of where it was.
    """
    discount = config.discount
    assert discount is not None
    surprise = reward + discount * jnp.where(terminated, 0.0, next_value) - value

    def backwards(later: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        off, is_last = row
        here = off + discount * config.gae * jnp.where(is_last, 0.0, later)
        return here, here

    return jax.lax.scan(backwards, jnp.zeros_like(value[0]), (surprise, ended), reverse=True)[1]


def discounted_sums(
    before: Float[Array, "E"], reward: Float[Array, "T E"], ended: Bool[Array, "T E"], discount: float
) -> tuple[Float[Array, "E"], Float[Array, "T E"]]:
    """What every episode has earned so far, step by step, with earlier rewards discounted; and where that goes on."""

    def forwards(total: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        earned, is_last = row
        total = discount * total + earned
        return jnp.where(is_last | ~jnp.isfinite(total), 0.0, total), total

    return jax.lax.scan(forwards, before, (reward, ended))


@partial(jax.jit, static_argnames="config")
def prepare(
    state: PPOState, rollout: Transition, ended: Bool[Array, "T E"], config: PPOConfig, *, key: Key
) -> tuple[PPOState, Batch, Float[Array, ""]]:
    """Batches of all epochs from a (T, E) rollout; the statistics with it; and how much of the targets is explained.

    What acted and what the critic thought of it follow from the statistics before. The batches are measured by those
    with the rollout, so that the updates also make up for what the change does to both networks.
    """
    assert config.discount is not None
    obs, next_obs = (standardised(state.seen, x) for x in (rollout.obs, rollout.next_obs))
    acted = log_prob(apply_mlp(state.policy, obs, jnp.tanh), state.log_std, rollout.action)

    sums, so_far = discounted_sums(state.sums, rollout.reward, ended, config.discount)
    reward = rollout.reward
    if config.scale_rewards:
        state = state._replace(sums=sums, earned=with_more(state.earned, so_far.ravel()))
        reward = jnp.clip(reward / scale(state), -LARGEST_REWARD, LARGEST_REWARD)

    value = values(state.critic, obs)
    advantage = advantages(reward, value, values(state.critic, next_obs), rollout.terminated, ended, config)
    target = advantage + value
    if config.standardise:
        state = state._replace(seen=with_more(state.seen, rollout.obs.reshape(-1, rollout.obs.shape[-1])))
        obs = standardised(state.seen, rollout.obs)
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), Batch(obs, rollout.action, acted, advantage, target))
    count = rows.log_prob.shape[0]
    order = jax.vmap(lambda k: jax.random.permutation(k, count))(jax.random.split(key, config.epochs))
    batches = jax.tree.map(lambda x: x[order.reshape(-1, config.batch_size)], rows)
    explained = 1.0 - jnp.var(advantage) / (jnp.var(target) + SMALL)
    return state, batches, explained


def loss(
    learned: tuple[MLP, Float[Array, "A"], MLP], batch: Batch, config: PPOConfig
) -> tuple[Float[Array, ""], PPOLosses]:
    """The clipped surrogate (Schulman et al., 2017, Eq. 7), the critic's squared error and the entropy's bonus.

    And all that it is made of.
    """
    policy, log_std, critic = learned
    mean = apply_mlp(policy, batch.obs, jnp.tanh)
    log_ratio = log_prob(mean, log_std, batch.action) - batch.log_prob
    ratio = jnp.exp(log_ratio)
    better = (batch.advantage - jnp.mean(batch.advantage)) / (jnp.std(batch.advantage) + SMALL)
    cut = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
    policy_loss = -jnp.mean(jnp.minimum(ratio * better, cut * better))
    value = values(critic, batch.obs)
    critic_loss = jnp.mean(jnp.square(value - batch.target))
    entropy = jnp.sum(log_std + 0.5 * jnp.log(2.0 * jnp.pi * jnp.e))
    total = policy_loss + config.critic_weight * critic_loss - config.entropy_bonus * entropy
    divergence = jnp.mean(ratio - 1.0 - log_ratio)
    clipped = jnp.mean(jnp.abs(ratio - 1.0) > config.clip)
    return total, PPOLosses(policy_loss, critic_loss, entropy, divergence, clipped, jnp.mean(value))


def update(state: PPOState, batch: Batch, config: PPOConfig) -> tuple[PPOState, PPOLosses]:
    """One gradient step for policy and critic."""
    learned = state.policy, state.log_std, state.critic
    (_, told), gradient = jax.value_and_grad(loss, has_aux=True)(learned, batch, config)
    step, optimiser = _optimiser(config).update(gradient, state.optimiser)
    policy, log_std, critic = optax.apply_updates(learned, step)
    after = state._replace(policy=policy, log_std=log_std, critic=critic, optimiser=optimiser)
    return after, told._replace(value=told.value * scale(state))


@partial(jax.jit, static_argnames="config")
def update_many(state: PPOState, batches: Batch, config: PPOConfig, *, key: Key) -> Updates:
    """One update per batch on the first axis, in one compiled scan; the given state stays as it was."""
    return scanned(lambda s, b, _: update(s, b, config), state, batches, None)


@partial(jax.jit, static_argnames="config")
def update_many_guarded(state: PPOState, batches: Batch, config: PPOConfig, *, key: Key) -> GuardedUpdates:
    """`update_many` that leaves out every update after which a number of the state or the losses is not finite."""
    return scanned_guarded(lambda s, b, _: update(s, b, config), state, batches, None)
