"""DDPG, MVE and STEVE: a deterministic policy, critics, and targets that may look ahead with a model.

DDPG is MVE at horizon 0, and MVE is the last of STEVE's candidate targets with one member of everything. State is one
pytree; `update` returns the next one.
"""

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from m2ac.learner_config import DDPGConfig, WorldConfig
from m2ac.learners import world_model
from m2ac.learners.expansion import candidate_targets, weighted_target
from m2ac.learners.updating import GuardedUpdates, Updates, scanned, scanned_guarded
from m2ac.learners.world_model import WorldModel, init_world_model, world_loss
from m2ac.networks import MLP, apply_mlp, glorot_uniform, init_mlp
from m2ac.types import Key, Transition

Critics = tuple[MLP, ...]


class Expansion(NamedTuple):
    """How the targets are made; hashable, as it is part of the program."""

    ddpg: DDPGConfig
    world: WorldConfig
    horizon: int  # imagined steps, 0 for none
    target: Literal["last", "weighted"]  # of the candidates: MVE's, STEVE's


class DDPGState(NamedTuple):
    """Everything that is learned, and its optimisers."""

    policy: MLP
    critics: Critics
    targets: Critics
    world: WorldModel | None  # None: nothing is imagined
    updates: Int[Array, ""]  # after so many the targets are copied
    policy_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    world_optimiser: optax.OptState | None


class DDPGLosses(NamedTuple):
    """What an update saw; means over the batch."""

    critic_loss: Float[Array, "*N"]
    policy_loss: Float[Array, "*N"]
    world_loss: Float[Array, "*N"]  # 0 without a world model
    lookahead: Float[Array, "*N"]  # imagined steps in the target, weighted as it is
    spread: Float[Array, "*N"]  # standard deviation of the opinions on the longest candidate
    value: Float[Array, "*N"]


def init_ddpg(how: Expansion, obs_dim: int, action_dim: int, *, key: Key) -> DDPGState:
    """Fresh networks; the targets start as copies of the critics."""
    config = how.ddpg
    assert config.critics is not None
    hidden = [config.hidden] * config.layers
    key_policy, key_critics, key_world = jax.random.split(key, 3)
    policy = init_mlp([obs_dim, *hidden, action_dim], glorot_uniform, key=key_policy)
    sizes = [obs_dim + action_dim, *hidden, 1]
    critics = tuple(init_mlp(sizes, glorot_uniform, key=k) for k in jax.random.split(key_critics, config.critics))
    world = init_world_model(how.world, obs_dim, action_dim, key=key_world) if how.horizon else None
    adam = optax.adam(config.learning_rate)
    return DDPGState(
        policy=policy,
        critics=critics,
        targets=jax.tree.map(jnp.copy, critics),
        world=world,
        updates=jnp.int32(0),
        policy_optimiser=adam.init(policy),
        critic_optimiser=adam.init(critics),
        world_optimiser=None if world is None else optax.adam(how.world.learning_rate).init(world),
    )


def raw_action(policy: MLP, obs: Float[Array, "*B D"]) -> Float[Array, "*B A"]:
    """The action before its tanh."""
    return apply_mlp(policy, obs, jax.nn.relu)


def act(policy: MLP, obs: Float[Array, "*B D"]) -> Float[Array, "*B A"]:
    """π(s)."""
    return jnp.tanh(raw_action(policy, obs))


def values(critics: Critics, obs: Float[Array, "*B D"], action: Float[Array, "*B A"]) -> Float[Array, "M *B"]:
    """What every critic says."""
    x = jnp.concatenate([obs, action], axis=-1)
    return jnp.stack([apply_mlp(critic, x, jax.nn.relu)[..., 0] for critic in critics])


def candidates(state: DDPGState, batch: Transition, how: Expansion) -> Float[Array, "H1 N B"]:
    """The candidate targets in the opinion of all members: changes × rewards × critics."""
    critics = len(state.targets)
    imagined = state.world if state.world is not None else WorldModel((), (), ())
    changes, judges = max(1, len(imagined.changes)), max(1, len(imagined.rewards))
    opinions = changes, judges, critics, batch.reward.shape[0]
    rewards = [jnp.broadcast_to(batch.reward, opinions)]
    ends = [jnp.broadcast_to(batch.terminated.astype(batch.reward.dtype), opinions)]
    asked = [jnp.broadcast_to(values(state.targets, batch.next_obs, act(state.policy, batch.next_obs)), opinions)]
    paths = [batch.next_obs] * changes
    for _ in range(how.horizon):
        actions = [act(state.policy, obs) for obs in paths]
        steps = [
            world_model.step(change, end, obs, action)
            for change, end, obs, action in zip(imagined.changes, imagined.ends, paths, actions, strict=True)
        ]
        ahead = [next_obs for next_obs, _ in steps]
        worth = [
            jnp.stack([world_model.reward(network, *row) for network in imagined.rewards])
            for row in zip(paths, actions, ahead, strict=True)
        ]
        rewards.append(jnp.broadcast_to(jnp.stack(worth)[:, :, None], opinions))
        ends.append(jnp.broadcast_to(jnp.stack([end for _, end in steps])[:, None, None], opinions))
        said = jnp.stack([values(state.targets, obs, act(state.policy, obs)) for obs in ahead])
        asked.append(jnp.broadcast_to(said[:, None], opinions))
        paths = ahead
    made = candidate_targets(jnp.stack(rewards), jnp.stack(ends), jnp.stack(asked), how.ddpg.discount)
    return made.reshape(how.horizon + 1, -1, batch.reward.shape[0])


def critic_target(
    state: DDPGState, batch: Transition, how: Expansion
) -> tuple[Float[Array, "B"], Float[Array, ""], Float[Array, ""]]:
    """The target; how many imagined steps are in it; and how far the opinions on the longest candidate differ."""
    made = candidates(state, batch, how)
    spread = jnp.mean(jnp.std(made[-1], axis=0))
    if how.target == "last":
        return jnp.mean(made[-1], axis=0), jnp.float32(how.horizon), spread
    target, weights = weighted_target(made)
    return target, jnp.mean(jnp.sum(weights * jnp.arange(how.horizon + 1.0)[:, None], axis=0)), spread


def critic_loss(critics: Critics, batch: Transition, target: Float[Array, "B"]) -> tuple[Array, Array]:
    """Half the squared error of each critic, averaged over the batch and summed; and the mean value."""
    q = values(critics, batch.obs, batch.action)
    return 0.5 * jnp.sum(jnp.mean(jnp.square(q - target), axis=-1)), jnp.mean(q)


def policy_loss(policy: MLP, critics: Critics, obs: Float[Array, "B D"], penalty: float) -> Float[Array, ""]:
    """−E[Q(s, π(s))] by the mean of all critics, and a little for actions whose tanh is saturated."""
    raw = raw_action(policy, obs)
    value = jnp.mean(values(critics, obs, jnp.tanh(raw)), axis=0)
    return penalty * jnp.mean(jnp.square(raw)) - jnp.mean(value)


def update(
    state: DDPGState, batch: Transition, bootstrap: Int[Array, "K B"], how: Expansion
) -> tuple[DDPGState, DDPGLosses]:
    """One gradient step for the world model, the critics and the policy; the targets are copied every so often."""
    config = how.ddpg
    adam = optax.adam(config.learning_rate)
    target, lookahead, spread = critic_target(state, batch, how)
    state, loss_world = _learn_world(state, batch, bootstrap, how)

    (loss_q, value), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critics, batch, target)
    step, critic_optimiser = adam.update(gradient, state.critic_optimiser)
    critics = optax.apply_updates(state.critics, step)

    loss_pi, gradient = jax.value_and_grad(policy_loss)(state.policy, critics, batch.obs, config.saturation_penalty)
    step, policy_optimiser = adam.update(gradient, state.policy_optimiser)
    policy = optax.apply_updates(state.policy, step)

    updates = state.updates + 1
    is_time = updates % config.target_every == 0
    state = state._replace(
        policy=policy,
        critics=critics,
        targets=jax.tree.map(partial(jnp.where, is_time), critics, state.targets),
        updates=updates,
        policy_optimiser=policy_optimiser,
        critic_optimiser=critic_optimiser,
    )
    return state, DDPGLosses(loss_q, loss_pi, loss_world, lookahead, spread, value)


def _learn_world(
    state: DDPGState, batch: Transition, bootstrap: Int[Array, "K B"], how: Expansion
) -> tuple[DDPGState, Float[Array, ""]]:
    """One gradient step for the world model, where there is one."""
    if state.world is None:
        return state, jnp.float32(0)
    loss, gradient = jax.value_and_grad(world_loss)(state.world, batch, bootstrap, how.world.weight_decay)
    step, optimiser = optax.adam(how.world.learning_rate).update(gradient, state.world_optimiser)
    return state._replace(world=optax.apply_updates(state.world, step), world_optimiser=optimiser), loss


def _bootstraps(batches: Transition, how: Expansion, key: Key) -> Int[Array, "N K B"]:
    """For each batch and member, rows drawn from it with replacement."""
    members = how.world.members if how.horizon else 0
    assert members is not None
    count, rows = batches.reward.shape
    return jax.random.randint(key, (count, members, rows), 0, rows)


@partial(jax.jit, static_argnames="how")
def update_many(state: DDPGState, batches: Transition, how: Expansion, *, key: Key) -> Updates:
    """One update per batch on the first axis, in one compiled scan; the given state stays as it was."""
    return scanned(lambda s, b, n: update(s, b, n, how), state, batches, _bootstraps(batches, how, key))


@partial(jax.jit, static_argnames="how")
def update_many_guarded(state: DDPGState, batches: Transition, how: Expansion, *, key: Key) -> GuardedUpdates:
    """`update_many` that leaves out every update after which a number of the state or the losses is not finite."""
    return scanned_guarded(lambda s, b, n: update(s, b, n, how), state, batches, _bootstraps(batches, how, key))


@partial(jax.jit, static_argnames="how")
def pretrain(state: DDPGState, batches: Transition, how: Expansion, *, key: Key) -> tuple[DDPGState, Float[Array, "N"]]:
    """The world model alone, one step per batch on the first axis."""
    return jax.lax.scan(lambda s, x: _learn_world(s, x[0], x[1], how), state, (batches, _bootstraps(batches, how, key)))
