"""PPO: advantages and the clipped loss by hand, statistics, gradients, environments side by side, whole trainings."""

import io
import shutil
import warnings

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import check_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from test_training import assert_same, ran, told_by, without_times
from tiny import arguments, tiny

from m2ac import PPO, learn_together
from m2ac.algorithms.on_policy import OnPolicy
from m2ac.cli import main
from m2ac.config import AgentConfig, RunConfig
from m2ac.envs import make_env
from m2ac.envs.world import EnvError, World
from m2ac.learner_config import PPOConfig
from m2ac.learners import ppo
from m2ac.learners.acting import GaussianPolicy
from m2ac.learners.ppo import Batch, Statistics
from m2ac.resolving import resolve
from m2ac.runs import checkpoint
from m2ac.runs.checkpoint import fingerprint
from m2ac.runs.directory import RunDirectory
from m2ac.runs.execute import execute
from m2ac.settings import ConfigError, override
from m2ac.types import Transition

KEY = jax.random.key(5)
HALF = PPOConfig(discount=0.5, gae=0.5, learning_rate=1e-3)


# Advantages


REWARD, VALUE, NEXT = jnp.array([1.0, 2.0, 4.0]), jnp.array([3.0, 5.0, 7.0]), jnp.array([5.0, 7.0, 9.0])


@pytest.mark.parametrize(
    ("terminated", "ended", "expected"),
    [
        # surprises: 1 + .5·5 − 3 = .5, 2 + .5·7 − 5 = .5, 4 + .5·9 − 7 = 1.5; each later one counts a quarter
        ([0, 0, 0], [0, 0, 0], [0.5 + 0.25 * (0.5 + 0.25 * 1.5), 0.5 + 0.25 * 1.5, 1.5]),
        # the second step is cut off by a time limit: its value goes on, the next episode's surprise does not reach it
        ([0, 0, 0], [0, 1, 0], [0.5 + 0.25 * 0.5, 0.5, 1.5]),
        # it terminates: 2 − 5
        ([0, 1, 0], [0, 1, 0], [0.5 + 0.25 * -3, -3, 1.5]),
        ([0, 0, 1], [0, 0, 1], [0.5 + 0.25 * (0.5 + 0.25 * -3), 0.5 + 0.25 * -3, -3]),
    ],
)
def test_advantages_by_hand(terminated, ended, expected):
    made = ppo.advantages(REWARD, VALUE, NEXT, jnp.array(terminated, bool), jnp.array(ended, bool), HALF)
    np.testing.assert_allclose(made, expected, rtol=1e-6)


def test_environments_side_by_side_know_nothing_of_each_other():
    ended = jnp.array([[0, 1], [1, 0], [0, 0]], bool)
    both = [jnp.stack([x, 2 * x[::-1]], axis=1) for x in (REWARD, VALUE, NEXT)]
    made = ppo.advantages(*both, jnp.zeros((3, 2), bool), ended, HALF)
    for env in range(2):
        alone = ppo.advantages(*(x[:, env] for x in both), jnp.zeros(3, bool), ended[:, env], HALF)
        np.testing.assert_array_equal(made[:, env], alone)


def test_with_all_later_surprises_the_advantage_is_the_return_without_them_the_first_surprise():
    no, discount = jnp.zeros(3, bool), 0.9
    whole = ppo.advantages(REWARD, VALUE, jnp.array([5.0, 7.0, 9.0]), no, no, PPOConfig(discount=discount, gae=1.0))
    returns = 1 + discount * (2 + discount * (4 + discount * 9))
    np.testing.assert_allclose(whole[0], returns - 3, rtol=1e-6)
    first = ppo.advantages(REWARD, VALUE, NEXT, no, no, PPOConfig(discount=discount, gae=0.0))
    np.testing.assert_allclose(first, REWARD + discount * NEXT - VALUE, rtol=1e-6)


def test_discounted_sums_by_hand():
    reward, ended = jnp.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]), jnp.array([[0, 0], [0, 1], [0, 0]], bool)
    goes_on, sums = ppo.discounted_sums(jnp.array([8.0, 0.0]), reward, ended, 0.5)
    np.testing.assert_array_equal(sums, [[5, 1], [4.5, 2.5], [6.25, 4]])
    np.testing.assert_array_equal(goes_on, [6.25, 4])


# Statistics


@given(
    st.lists(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9), min_size=1, max_size=5),
    st.floats(-1000, 1000),
)
@settings(deadline=None, max_examples=50)
def test_statistics_of_parts_are_those_of_the_whole(parts, offset):
    statistics = Statistics(jnp.float32(0), jnp.float32(0), jnp.float32(1))
    for part in parts:
        statistics = ppo.with_more(statistics, jnp.array(part) + jnp.float32(offset))
    whole = np.concatenate([np.array(part) for part in parts]) + offset
    np.testing.assert_allclose(statistics.mean, whole.mean(), rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(statistics.variance, whole.var(), rtol=1e-3, atol=1e-2)


def test_what_never_changed_is_left_in_its_units():
    statistics = ppo.with_more(Statistics(jnp.float32(0), jnp.zeros(2), jnp.ones(2)), jnp.array([[0.3, 1], [0.3, 3]]))
    seen = ppo.standardised(statistics, jnp.array([1.3, 4.0]))
    np.testing.assert_allclose(seen, [1.0, 2.0], rtol=1e-5)


# The loss


def linear(*weights):
    return tuple(ppo.Linear(jnp.array(weight, jnp.float32), jnp.zeros(len(weight[0]))) for weight in weights)


def test_the_clipped_loss_by_hand():
    """Two rows of one action; the policy's mean is 0 and its deviation 1, the critic says the observation."""
    obs = jnp.array([[1.0], [2.0]])
    now = ppo.log_prob(jnp.zeros((2, 1)), jnp.zeros(1), jnp.array([[0.5], [-1.0]]))
    np.testing.assert_allclose(now, [-0.5 * 0.25 - 0.9189385, -0.5 - 0.9189385], rtol=1e-6)
    # Ratios 1.5 and 0.5: the first row is better than the second and its gain is cut at 1.2; the second row's loss
    # is cut at 0.8. Standardised, the advantages 3 and 1 are 1 and -1.
    batch = Batch(
        obs,
        jnp.array([[0.5], [-1.0]]),
        now - jnp.log(jnp.array([1.5, 0.5])),
        jnp.array([3.0, 1.0]),
        jnp.array([3.0, 3]),
    )
    config = PPOConfig(clip=0.2, critic_weight=0.5, entropy_bonus=0.1)
    total, told = ppo.loss((linear([[0.0]]), jnp.zeros(1), linear([[1.0]])), batch, config)
    assert told.policy_loss == pytest.approx(-(1.2 - 0.8) / 2, rel=1e-5)
    assert told.critic_loss == pytest.approx((4 + 1) / 2)
    assert told.entropy == pytest.approx(1.4189385)
    assert told.divergence == pytest.approx((0.5 - np.log(1.5) - 0.5 - np.log(0.5)) / 2, rel=1e-5)
    assert told.clipped == 1
    assert told.value == pytest.approx(1.5)
    assert total == pytest.approx(-0.2 + 0.5 * 2.5 - 0.1 * 1.4189385, rel=1e-5)


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "is_learned_from"),
    [(0.5, 1, False), (0.5, -1, True), (-0.5, 1, True), (-0.5, -1, False), (0.1, 1, True), (0.1, -1, True)],
)
def test_only_what_would_go_further_away_is_cut(log_ratio, advantage, is_learned_from):
    action, other = jnp.array([[0.7]]), jnp.array([[0.2]])

    def policy_loss(mean):
        policy = (ppo.Linear(jnp.zeros((1, 1)), mean),)
        rows = Batch(
            jnp.ones((2, 1)),
            jnp.concatenate([action, other]),
            jax.lax.stop_gradient(ppo.log_prob(jnp.zeros((2, 1)), jnp.zeros(1), jnp.concatenate([action, other])))
            - jnp.array([log_ratio, 5.0 * advantage * -1]),  # the other row is always cut
            jnp.array([advantage, -advantage], float),
            jnp.zeros(2),
        )
        return ppo.loss((policy, jnp.zeros(1), linear([[0.0]])), rows, PPOConfig())[1].policy_loss

    assert bool(jnp.abs(jax.grad(policy_loss)(jnp.zeros(1)))[0] > 1e-6) == is_learned_from


def some_batch(rows=6):
    keys = jax.random.split(KEY, 5)
    return Batch(
        jax.random.normal(keys[0], (rows, 3)),
        jax.random.normal(keys[1], (rows, 2)),
        -3 + 0.1 * jax.random.normal(keys[2], (rows,)),
        jax.random.normal(keys[3], (rows,)),
        jax.random.normal(keys[4], (rows,)),
    )


def test_the_gradient_against_finite_differences():
    config = PPOConfig(hidden=5, discount=0.9, learning_rate=1e-3, clip=10.0, entropy_bonus=0.01)
    with jax.enable_x64(True):
        state = ppo.init_ppo(config, 3, 2, key=KEY)
        learned = jax.tree.map(lambda x: x.astype(float), (state.policy, state.log_std, state.critic))
        rows = jax.tree.map(lambda x: x.astype(float), some_batch())
        check_gradient(lambda x: ppo.loss(x, rows, config)[0], learned)


def test_a_gradient_that_is_too_long_is_shortened():
    config = PPOConfig(hidden=5, discount=0.9, learning_rate=1e-3, gradient_norm=1e-12)
    state = ppo.init_ppo(config, 3, 2, key=KEY)
    after, _ = ppo.update(state, some_batch(), config)
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), after.policy, state.policy)
    assert max(jax.tree.leaves(moved)) < 1e-8  # Adam's own epsilon is far larger than such a gradient


def test_the_first_policy_hardly_looks_at_what_it_sees():
    state = ppo.init_ppo(PPOConfig(discount=0.9, learning_rate=1e-3), 3, 2, key=KEY)
    means = GaussianPolicy(ppo.acting(state))(np.eye(3, dtype=np.float32))
    assert 0 < np.abs(means).max() < 0.02


# A rollout as batches


def rollout(steps, envs):
    keys = jax.random.split(KEY, 5)
    return Transition(
        obs=3 + 2 * jax.random.normal(keys[0], (steps, envs, 3)),
        action=jax.random.normal(keys[1], (steps, envs, 2)),
        reward=5 * jax.random.normal(keys[2], (steps, envs)),
        next_obs=3 + 2 * jax.random.normal(keys[3], (steps, envs, 3)),
        terminated=jnp.zeros((steps, envs), bool),
    )


def test_every_epoch_has_every_row_once():
    config = PPOConfig(rollout=12, envs=2, batch_size=4, epochs=3, discount=0.9, learning_rate=1e-3)
    state = ppo.init_ppo(config, 3, 2, key=KEY)
    seen = rollout(6, 2)
    _, batches, _ = ppo.prepare(state, seen, jnp.zeros((6, 2), bool), config, key=KEY)
    assert batches.obs.shape == (9, 4, 3)
    rows = np.sort(np.asarray(seen.action).reshape(-1, 2)[:, 0])
    epochs = np.asarray(batches.action).reshape(3, 12, 2)[:, :, 0]
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), rows)
    assert not np.array_equal(epochs[0], epochs[1])


def test_what_acted_follows_from_the_statistics_before_and_what_learns_from_those_with_the_rollout():
    config = PPOConfig(rollout=12, envs=2, batch_size=12, epochs=1, discount=0.9, learning_rate=1e-3, hidden=8)
    state = ppo.init_ppo(config, 3, 2, key=KEY)
    obs, acted = (np.asarray(x).reshape(12, -1) for x in (rollout(6, 2).obs, rollout(6, 2).action))
    for times in (1, 2):  # twice the same rows
        policy = GaussianPolicy(ppo.acting(state))
        expected = ppo.log_prob(
            jnp.asarray(policy.uncut(obs, np.zeros((12, 2), "f"))), state.log_std, jnp.asarray(acted)
        )
        state, batches, _ = ppo.prepare(state, rollout(6, 2), jnp.zeros((6, 2), bool), config, key=KEY)
        np.testing.assert_allclose(np.sort(batches.log_prob[0]), np.sort(expected), rtol=1e-4)
        np.testing.assert_allclose(state.seen.mean, obs.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(state.seen.variance, obs.var(axis=0), rtol=1e-5)
        assert state.seen.rows == 12 * times
        np.testing.assert_allclose(np.mean(batches.obs[0], axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(np.std(batches.obs[0], axis=0), 1, rtol=1e-5)
        _, losses, _ = ppo.update_many(state, batches, config, key=KEY)
        assert losses.divergence[0] < (1e-2 if times == 1 else 1e-6)  # the same statistics, the same policy
        assert losses.clipped == 0


def test_the_policy_outside_of_compiled_code_is_the_one_inside():
    config = PPOConfig(rollout=12, envs=2, batch_size=12, epochs=1, discount=0.9, learning_rate=1e-3, log_std=-0.5)
    state, _, _ = ppo.prepare(
        ppo.init_ppo(config, 3, 2, key=KEY), rollout(6, 2), jnp.zeros((6, 2), bool), config, key=KEY
    )
    policy = GaussianPolicy(ppo.acting(state))
    obs = np.asarray(rollout(6, 2).obs)
    mean = ppo.apply_mlp(state.policy, ppo.standardised(state.seen, jnp.asarray(obs)), jnp.tanh)
    np.testing.assert_allclose(policy(obs), np.clip(mean, -1, 1), atol=1e-5)
    noise = np.full((6, 2, 2), 2.0, np.float32)
    np.testing.assert_allclose(policy.uncut(obs, 0 * noise), mean, atol=1e-5)
    np.testing.assert_allclose(policy.uncut(obs, noise), mean + 2 * np.exp(-0.5), atol=1e-5)
    assert np.abs(policy(obs, 5 * noise)).max() == 1


# Trainings


def worlds(count, make=lambda: make_env("Pendulum-v1"), seed=0):
    return [World(make(), seed=seed, stream="train") for _ in range(count)]


def training(envs=1, *, make=lambda: make_env("Pendulum-v1"), steps=400, state=None, **settings) -> OnPolicy:
    base = override(AgentConfig(algo="ppo"), {**tiny("ppo"), "ppo.envs": envs, **settings})
    config = resolve(base, {}, action_dim=1, steps=steps)
    return OnPolicy(config, worlds(envs, make), state=state)


def test_a_training_takes_its_steps_and_makes_its_updates():
    under_test = training(3)
    phases = [(p.step, p.phase, p.settled) for p in under_test.run(60)]
    assert phases == [
        (24, "collecting", False),
        (24, "learning", True),
        (48, "collecting", False),
        (48, "learning", True),
        (60, "collecting", False),
    ]
    assert under_test.counters.updates == 2 * 6


def test_two_calls_are_one():
    once, twice = training(2), training(2)
    ran(once, 100)
    ran(twice, 31)
    ran(twice, 100)
    assert_same(once.state, twice.state)


class Short(gym.Env):
    """Counts its steps; ends after three of them, by a time limit in every other episode."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self):
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.episodes = 0, self.episodes + 1
        self.start = float(self.np_random.random())
        return np.array([self.start, 0], np.float32), {}

    def step(self, action):
        self.count += 1
        last = self.count == 3
        obs = np.array([self.start, self.count], np.float32)
        return obs, float(self.count), last and self.episodes % 2 == 0, last and self.episodes % 2 == 1, {}


def test_an_episode_that_ends_is_followed_by_the_next_one_at_once():
    under_test = training(2, make=Short)
    ran(under_test, 20)
    rows = under_test.state.real.rows
    obs, following = (np.asarray(x)[:20].reshape(10, 2, 2) for x in (rows.obs, rows.next_obs))
    np.testing.assert_array_equal(obs[:, 0, 1], [0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
    np.testing.assert_array_equal(following[:, 0, 1], [1, 2, 3, 1, 2, 3, 1, 2, 3, 1])  # with what it ended in
    np.testing.assert_array_equal(np.asarray(rows.terminated)[:20].reshape(10, 2)[:, 1], [0, 0, 0, 0, 0, 1, 0, 0, 0, 0])
    ended = under_test.state.episodes.ended
    np.testing.assert_array_equal(ended[:10, 0], [0, 0, 1, 0, 0, 1, 0, 0, 1, 0])
    assert not ended[10:].any()
    starts = obs[[0, 3, 6, 9], :, 0]
    assert len(np.unique(starts)) == 8  # every episode of every environment has a seed of its own
    np.testing.assert_array_equal(under_test.state.episodes.number, [6, 7])


@pytest.mark.parametrize("envs", [1, 3])
def test_a_training_left_at_any_point_ends_with_the_same_state_and_the_same_metrics(envs, tmp_path, monkeypatch):
    monkeypatch.setattr("m2ac.algorithms.on_policy.COLLECTED_AT_ONCE", 5)  # not a multiple of the environments
    steps, limited = 70, lambda: gym.wrappers.TimeLimit(make_env("Pendulum-v1"), 11)
    whole = training(envs, make=limited, steps=steps)
    told = told_by(whole, steps)
    for point in range(19):
        left, seen = training(envs, make=limited, steps=steps), []
        for i, progress in enumerate(left.run(steps)):
            seen += [without_times(progress.metrics)] if progress.metrics is not None else []
            if i == point:
                break
        cycle, losses = left.unfinished()
        checkpoint.save(tmp_path / "left", left.state, left.config, losses=losses, cycle=cycle)
        found = checkpoint.load(tmp_path / "left")
        resumed = OnPolicy(found.config, worlds(envs, limited), state=found.state)
        resumed.take_up(found.manifest["cycle"], found.losses)
        assert resumed.rejoin()
        seen += told_by(resumed, steps)
        assert fingerprint(resumed.state) == fingerprint(whole.state), point
        assert seen == told, point


class Forgetful(Short):
    """Goes another way every time."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None)


def test_an_episode_that_cannot_be_played_again_has_ended():
    first = training(2, make=Forgetful)
    ran(first, 5)
    second = training(2, make=Forgetful, state=first.state)
    assert not second.rejoin()
    np.testing.assert_array_equal(second.state.episodes.length, [0, 0])
    np.testing.assert_array_equal(second.state.episodes.number, [2, 3])  # the first had ended on its own
    np.testing.assert_array_equal(second.state.episodes.ended[:4], [[0, 0], [0, 1], [1, 0], [0, 0]])
    ran(second, 100)


class Breaking(Short):
    """Raises at its ninth step."""

    taken = 0

    def step(self, action):
        self.taken += 1
        if self.taken == 9:
            raise OSError("the cable is loose")
        return super().step(action)


def test_an_environment_that_fails_leaves_everything_before_it_whole():
    makers = iter([Short, Breaking])
    under_test = training(2, make=lambda: next(makers)())
    with pytest.raises(EnvError, match="the cable is loose"):
        ran(under_test, 100)
    state = under_test.state
    assert state.counters.steps == int(state.real.size) == 17
    np.testing.assert_array_equal(state.episodes.length, [0, 0])
    assert state.episodes.ended[7, 1]  # its last step, the second of an episode
    assert state.episodes.ended[8, 0]
    ran(under_test, 100)
    assert under_test.step == 100


def test_numbers_that_are_not_finite_are_left_out_and_counted():
    class Huge(Short):
        def step(self, action):
            obs, _, *rest = super().step(action)
            return obs, 3e38 * (self.episodes % 3 == 0), *rest

    under_test = training(1, make=Huge, skips_allowed=10_000, **{"ppo.scale_rewards": False})
    told = told_by(under_test, 48)
    assert told[-1]["ppo/skipped_updates"] > 0
    assert "critic_loss" in told[-1]["ppo/skipped_because"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(under_test.state.learner))


@pytest.mark.parametrize("value", [1e20, 3e38])
def test_one_huge_reward_does_not_end_a_training(value):
    class Once(Short):
        def step(self, action):
            obs, reward, *rest = super().step(action)
            return obs, value if self.episodes == 3 and self.count == 1 else reward, *rest

    under_test = training(1, make=Once, skips_allowed=10_000)
    ran(under_test, 96)
    assert under_test.step == 96
    assert under_test.counters.updates == 4 * 6
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(under_test.state.learner))


def test_counters_that_do_not_belong_together_are_refused(tmp_path):
    left = training(2)
    ran(left, 31)
    counters, episodes, real = left.state.counters, left.state.episodes, left.state.real
    for number, damaged in enumerate(
        [
            left.state._replace(counters=counters._replace(updates=120)),
            left.state._replace(counters=counters._replace(updates=7)),
            left.state._replace(counters=counters._replace(steps=1000)),
            left.state._replace(counters=counters._replace(steps=0, updates=0)),
            left.state._replace(episodes=episodes._replace(length=np.array([2 * 10**7, 3]))),
            left.state._replace(real=real._replace(size=jnp.int32(5))),
        ]
    ):
        checkpoint.save(tmp_path / str(number), damaged, left.config)
        with pytest.raises(checkpoint.CheckpointError, match="its counters do not fit together"):
            checkpoint.load(tmp_path / str(number))


def test_an_episode_abandoned_behind_a_rollout_leaves_no_sum_of_rewards():
    first = training(2, make=Forgetful)
    ran(first, 24 + 24)
    ran(first, 48 + 0)
    assert np.all(np.asarray(first.state.learner.sums) == 0)  # both had just ended
    shifted = training(2, make=Forgetful, **{"ppo.rollout": 32})
    ran(shifted, 32)
    assert np.all(np.asarray(shifted.state.learner.sums) > 0)
    assert not shifted.rejoin()
    assert np.all(np.asarray(shifted.state.learner.sums) == 0)


def test_nothing_compiles_after_the_second_rollout(compilations):
    under_test = training(2, steps=200)
    ran(under_test, 48)
    before = len(compilations)
    ran(under_test, 144)
    assert len(compilations) == before


def test_a_rollout_learns_what_is_better():
    """Actions that are rewarded as they are: the mean goes up within a few rollouts."""

    class Rewarding(Short):
        def step(self, action):
            obs, _, *rest = super().step(action)
            return obs, float(action[0]), *rest

    settings = {"ppo.rollout": 240, "ppo.batch_size": 24, "ppo.learning_rate": 3e-3}
    under_test = training(2, make=Rewarding, steps=3000, **settings)
    ran(under_test, 2400)
    mean = under_test.acting_policy()(np.array([0.5, 1.0], np.float32))
    assert mean > 0.5


# Settings and agents


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ppo.envs": 3}, "ppo.rollout must be a multiple of ppo.envs .3. and of ppo.batch_size .64., .*; use 2112"),
        ({"ppo.batch_size": 60}, "ppo.rollout must be a multiple .* ppo.batch_size .60., got 2048; use 2040"),
        ({"ppo.discount": 1.0}, "ppo.discount must be in"),
        ({"random_steps": 10}, "random_steps has no meaning for algo=ppo, got 10"),
        ({"updates_per_step": 2}, "updates_per_step has no meaning for algo=ppo"),
        ({"horizon": 3}, "horizon has no meaning for algo=ppo"),
        ({"rhythm": "epoch"}, "rhythm has no meaning for algo=ppo"),
        ({"steps": 1000}, "steps must be at least ppo.rollout .2048. for algo=ppo, got 1000"),
    ],
)
def test_settings_that_cannot_work_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        override(RunConfig(algo="ppo"), values)


def test_what_is_left_open_follows_from_the_task():
    plain = resolve(RunConfig(algo="ppo"), {}, action_dim=1, steps=9000)
    assert (plain.ppo.discount, plain.ppo.learning_rate, plain.random_steps) == (0.99, 3e-4, 0)
    task = {"ppo.discount": 0.9, "random_steps": 500}
    assert resolve(RunConfig(algo="ppo"), task, action_dim=1, steps=9000).ppo.discount == 0.9
    with pytest.raises(ConfigError, match=r"replay\.capacity must be at least ppo\.rollout"):
        resolve(override(AgentConfig(algo="ppo"), {"replay.capacity": 1500}), {}, action_dim=1, steps=9000)


def test_an_agent_learns_is_saved_and_learns_on_exactly(tmp_path):
    settings = {**tiny("ppo"), "ppo.envs": 2}
    whole = PPO("Pendulum-v1", seed=1, **settings).learn(60)
    first = PPO("Pendulum-v1", seed=1, **settings).learn(33)
    first.save(tmp_path / "agent")
    again = PPO.load(tmp_path / "agent", "Pendulum-v1").learn(27)
    obs = np.array([1.0, 0.0, 0.5])
    np.testing.assert_array_equal(again.predict(obs, deterministic=True)[0], whole.predict(obs, deterministic=True)[0])
    np.testing.assert_array_equal(
        np.asarray(again._training.state.real.reward)[:60], np.asarray(whole._training.state.real.reward)
    )
    assert whole.predict(np.zeros((5, 3)))[0].shape == (5, 1)
    assert len(whole.evaluate(2)) == 2


def test_an_agent_whose_rollout_is_not_full_says_that_it_has_learned_nothing():
    agent = PPO("Pendulum-v1", **tiny("ppo"))
    with pytest.warns(UserWarning, match="nothing is learned yet: 20 steps do not fill a rollout of 24; learn on"):
        agent.learn(20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.learn(10)


def test_agents_that_cannot_learn_together_say_so():
    with pytest.raises(ConfigError, match="M2AC, MBPO or SAC"):
        learn_together([PPO("Pendulum-v1", seed=seed, **tiny("ppo")) for seed in (0, 1)], 60)


def test_several_environments_need_one_that_can_be_copied():
    agent = PPO(Short(), **{**tiny("ppo"), "ppo.envs": 2})
    with pytest.raises(ConfigError, match=r"no spec, so no second one can be made to learn in both; use ppo\.envs=1"):
        agent.learn(30)


def test_a_cycle_that_is_none_is_refused(tmp_path):
    agent = PPO("Pendulum-v1", **tiny("ppo")).learn(10)
    training = agent._training
    checkpoint.save(tmp_path / "agent", training.state, training.config, cycle={"time/collect": "long"})
    with pytest.raises(checkpoint.CheckpointError, match=r"is damaged \(times that are no numbers\); load another one"):
        PPO.load(tmp_path / "agent", "Pendulum-v1")


def test_a_run_does_not_go_on_from_the_checkpoint_of_another(tmp_path):
    settings = [*arguments(tiny("ppo")), "--env", "Pendulum-v1", "--final-episodes", "1", "--eval-every", "1000"]
    run, other = tmp_path / "run", tmp_path / "other"
    assert main(["train", "--algo", "ppo", "--steps", "30", "--out", str(run), *settings]) == 0
    assert main(["train", "--algo", "ppo", "--steps", "50", "--out", str(other), *settings, "--ppo.envs", "2"]) == 0
    (run / "DONE").unlink()
    (newest,) = (other / "checkpoints").iterdir()
    shutil.copytree(newest, run / "checkpoints" / newest.name)
    with pytest.raises(checkpoint.CheckpointError, match="is of another run"):
        execute(RunDirectory.read(str(run)).config, stream=io.StringIO())
