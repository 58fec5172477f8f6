from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import check_gradient
from scipy import stats

from m2ac.learner_config import SACConfig
from m2ac.learners import tanh_normal
from m2ac.learners.acting import ActingPolicy
from m2ac.learners.sac import (
    critic_loss,
    critic_target,
    distribution,
    init_sac,
    policy_loss,
    sample_action,
    temperature_loss,
    update,
    update_many,
    values,
)
from m2ac.types import Transition

KEY = jax.random.key(5)
CONFIG = SACConfig(hidden=8, batch_size=6, target_entropy=-2.0)


def batch(count=6, *, dtype=np.float32, seed=0, **changes) -> Transition:
    rng = np.random.default_rng(seed)
    rows = Transition(
        obs=jnp.array(rng.normal(size=(count, 3)), dtype),
        action=jnp.array(rng.uniform(-1, 1, (count, 2)), dtype),
        reward=jnp.array(rng.normal(size=count), dtype),
        next_obs=jnp.array(rng.normal(size=(count, 3)), dtype),
        terminated=jnp.zeros(count, dtype=bool),
    )
    return rows._replace(**changes)


def state64():
    return jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x,
        init_sac(CONFIG, 3, 2, key=KEY),
    )


def noise(count=6, seed=1, dtype=np.float32):
    return jnp.array(np.random.default_rng(seed).normal(size=(count, 2)), dtype)


def test_gradients_of_every_loss_against_finite_differences():
    with jax.enable_x64(True):
        state, rows, eps = state64(), batch(dtype=np.float64), noise(dtype=np.float64)
        target = jnp.linspace(-1.0, 1.0, 6)
        check_gradient(lambda c: critic_loss(c, rows, target)[0], state.critics)
        temperature = jnp.float64(0.7)
        check_gradient(lambda p: policy_loss(p, state.critics, temperature, rows.obs, eps)[0], state.policy)
        check_gradient(lambda t: temperature_loss(t, jnp.float64(1.3), -2.0), jnp.float64(0.4))


def test_the_critics_target_by_hand():
    """r + γ (min(Q̄₁, Q̄₂) − τ log π), computed with NumPy and scipy."""
    with jax.enable_x64(True):
        state, rows, eps = state64(), batch(dtype=np.float64), noise(dtype=np.float64)
        state = state._replace(log_temperature=jnp.log(0.3))
        rows = rows._replace(terminated=jnp.array([False, True, False, False, False, True]))
        p = distribution(state.policy, rows.next_obs)
        x = np.asarray(p.mean) + np.exp(np.asarray(p.log_std)) * np.asarray(eps)
        log_slope = np.log(1 - np.tanh(x) ** 2)
        log_prob = np.sum(stats.norm(p.mean, np.exp(p.log_std)).logpdf(x) - log_slope, axis=1)
        q = np.asarray(values(state.targets, rows.next_obs, jnp.tanh(jnp.array(x)))).min(axis=0)
        expected = np.asarray(rows.reward) + 0.99 * np.where(rows.terminated, 0.0, q - 0.3 * log_prob)
        np.testing.assert_allclose(critic_target(state, rows, eps, 0.99), expected, rtol=1e-9)


def test_a_terminated_row_ends_the_bootstrap_even_where_the_value_is_not_finite():
    state = init_sac(CONFIG, 3, 2, key=KEY)
    rows = batch(terminated=jnp.ones(6, dtype=bool), next_obs=jnp.full((6, 3), jnp.inf))
    np.testing.assert_array_equal(critic_target(state, rows, noise(), 0.99), rows.reward)


def test_the_two_critics_start_different_and_the_targets_like_them():
    state = init_sac(CONFIG, 3, 2, key=KEY)
    assert not np.array_equal(state.critics[0][0].weight, state.critics[1][0].weight)
    jax.tree.map(np.testing.assert_array_equal, state.critics, state.targets)


def test_targets_move_by_the_target_rate():
    state = init_sac(CONFIG, 3, 2, key=KEY)
    new, _ = update(state, batch(), jnp.stack([noise(), noise(seed=2)]), CONFIG)
    expected = jax.tree.map(lambda q, t: 0.005 * q + 0.995 * t, new.critics, state.targets)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), new.targets, expected)


def test_the_temperature_rises_while_the_entropy_is_too_low_and_falls_while_it_is_too_high():
    state = init_sac(CONFIG, 3, 2, key=KEY)
    eps = jnp.stack([noise(), noise(seed=2)])
    low, _ = update(state, batch(), eps, replace(CONFIG, target_entropy=50.0))
    high, _ = update(state, batch(), eps, replace(CONFIG, target_entropy=-50.0))
    assert float(low.log_temperature) > float(state.log_temperature) > float(high.log_temperature)


def test_many_updates_in_one_call_equal_single_ones():
    batches = jax.tree.map(lambda *x: jnp.stack(x), *[batch(seed=i) for i in range(4)])
    draws = jax.random.normal(KEY, (4, 2, 6, 2))
    state = init_sac(CONFIG, 3, 2, key=KEY)
    for i in range(4):
        state, _ = update(state, jax.tree.map(lambda x, i=i: x[i], batches), draws[i], CONFIG)
    together, losses, finite = update_many(init_sac(CONFIG, 3, 2, key=KEY), batches, CONFIG, key=KEY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), state, together)
    assert losses.critic_loss.shape == (4,)
    assert bool(finite)


def test_sampled_actions_have_the_policys_distribution():
    state = init_sac(CONFIG, 3, 2, key=KEY)
    obs = jnp.tile(batch(1).obs, (20_000, 1))
    p = distribution(state.policy, obs[:1])
    drawn = np.arctanh(np.asarray(sample_action(state.policy, obs, KEY), np.float64))
    np.testing.assert_allclose(drawn.mean(axis=0), p.mean[0], atol=0.03)
    np.testing.assert_allclose(drawn.std(axis=0), np.exp(p.log_std[0]), rtol=0.03)


def test_the_policy_in_numpy_equals_the_compiled_one():
    state = init_sac(SACConfig(target_entropy=-6.0), 17, 6, key=KEY)
    rng = np.random.default_rng(0)
    obs, eps = rng.normal(size=(500, 17)).astype(np.float32) * 3, rng.normal(size=(500, 6)).astype(np.float32)
    policy = ActingPolicy(state.policy)
    p = distribution(state.policy, jnp.array(obs))
    np.testing.assert_allclose(policy(obs), np.tanh(p.mean), atol=1e-5)
    np.testing.assert_allclose(policy(obs, eps), tanh_normal.sample(p, jnp.array(eps))[0], atol=1e-5)
    np.testing.assert_allclose(np.stack([policy(o) for o in obs[:20]]), policy(obs[:20]), atol=1e-6)
    assert policy(obs[0]).dtype == np.float32


@pytest.mark.parametrize(("terminated", "expected"), [(False, 1 / (1 - 0.9)), (True, 1.0)])
def test_the_value_of_reward_one_forever_is_one_over_one_minus_the_discount(terminated, expected):
    """Rows that end by a time limit are stored as not terminated, so the value is the endless sum; γ = 0.9 here."""
    config = SACConfig(
        hidden=16, discount=0.9, batch_size=16, target_entropy=-2.0, learning_rate=3e-3, target_rate=0.05
    )
    obs = batch(16).obs
    action = jax.random.uniform(KEY, (1500, 16, 2), minval=-1, maxval=1)  # every action is tried in every state
    batches = Transition(
        jnp.broadcast_to(obs, (1500, 16, 3)),
        action,
        jnp.ones((1500, 16)),
        jnp.broadcast_to(obs, (1500, 16, 3)),
        jnp.full((1500, 16), terminated),
    )
    state = init_sac(config, 3, 2, key=KEY)
    # No entropy bonus: a temperature near zero that cannot move.
    state = state._replace(log_temperature=jnp.float32(-30.0))
    state, *_ = update_many(state, batches, config, key=KEY)
    q = values(state.critics, obs, action[0])
    np.testing.assert_allclose(np.mean(q), expected, rtol=0.03)


def test_adam_is_the_reference_adam():
    """One step of Adam from zero moments moves every weight by the learning rate, against its gradient."""
    state = init_sac(CONFIG, 3, 2, key=KEY)
    rows, eps = batch(), jnp.stack([noise(), noise(seed=2)])
    new, _ = update(state, rows, eps, CONFIG)
    target = critic_target(state, rows, eps[0], 0.99)
    gradient = jax.grad(lambda c: critic_loss(c, rows, target)[0])(state.critics)
    moved = jax.tree.map(lambda a, b: a - b, new.critics, state.critics)
    for g, m in zip(jax.tree.leaves(gradient), jax.tree.leaves(moved), strict=True):
        large = np.abs(g) > 1e-5
        np.testing.assert_allclose(np.asarray(m)[large], -3e-4 * np.sign(np.asarray(g)[large]), rtol=2e-2)
    assert int(optax.tree_utils.tree_get(new.critic_optimiser, "count")) == 1
