"""DDPG, MVE and STEVE: candidate targets by hand, their weights, reductions, gradients, whole trainings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import check_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from test_training import assert_same, ran
from tiny import tiny

from m2ac import learn_together
from m2ac.agent import AGENTS
from m2ac.algorithms import value_expansion as loop
from m2ac.algorithms.value_expansion import ValueExpansion
from m2ac.config import AgentConfig
from m2ac.envs import make_env
from m2ac.envs.world import World
from m2ac.learner_config import DDPGConfig, WorldConfig
from m2ac.learners import ddpg
from m2ac.learners.acting import DeterministicPolicy
from m2ac.learners.choice import expansion_of
from m2ac.learners.ddpg import Expansion, init_ddpg
from m2ac.learners.expansion import candidate_targets, inverse_variance_weights, weighted_target
from m2ac.learners.world_model import init_world_model, world_loss
from m2ac.resolving import resolve
from m2ac.runs import checkpoint
from m2ac.settings import ConfigError, override
from m2ac.types import Transition

pytestmark = pytest.mark.usefixtures("as_users_run_it")

KEY = jax.random.key(3)


def small(algo):
    return {**tiny(algo), "ddpg.target_every": 7}


REWARDS, VALUES = jnp.array([1.0, 2.0, 4.0]), jnp.array([10.0, 20.0, 30.0])


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([0, 0, 0], [1 + 0.5 * 10, 1 + 0.5 * 2 + 0.25 * 20, 1 + 0.5 * 2 + 0.25 * 4 + 0.125 * 30]),
        ([1, 0, 0], [1, 1, 1]),  # the real step ends the episode: nothing is imagined behind it
        ([0, 1, 0], [6, 2, 2]),  # the first imagined step does: its reward counts, what follows does not
        ([0, 0, 1], [6, 7, 3]),
        ([0, 0.5, 0], [6, 2 + 0.25 * 0.5 * 20, 2 + 0.25 * 0.5 * 4 + 0.125 * 0.5 * 30]),
    ],
)
def test_candidate_targets_by_hand(ends, expected):
    made = candidate_targets(REWARDS, jnp.array(ends, dtype=float), VALUES, 0.5)
    np.testing.assert_allclose(made, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("variances", "expected"),
    [
        ([1.0, 4.0], [0.8, 0.2]),
        ([3.0], [1.0]),
        ([0.0, 0.0], [0.5, 0.5]),
        ([0.0, 1.0], [1.0, 0.0]),
        ([2, 2, 2], [1 / 3] * 3),
    ],
)
def test_inverse_variance_weights_by_hand(variances, expected):
    np.testing.assert_allclose(inverse_variance_weights(jnp.array(variances, dtype=float)), expected, atol=2e-8)


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.floats(0, 1e6, width=32), min_size=4, max_size=4))
def test_weights_are_shares(variances):
    weights = np.asarray(inverse_variance_weights(jnp.array(variances)))
    assert weights.sum() == pytest.approx(1, abs=1e-5)
    assert (weights >= 0).all()
    order = np.argsort(np.float32(variances), kind="stable")
    assert (np.diff(weights[order]) <= 1e-7).all()


def test_a_candidate_that_all_agree_on_is_the_target():
    target, weights = weighted_target(jnp.array([[[1.0], [3.0]], [[5.0], [5.0]]]))  # candidates, opinions, rows
    np.testing.assert_allclose(target, [5.0], rtol=1e-6)
    np.testing.assert_allclose(weights[:, 0], [0, 1], atol=1e-6)
    target, _ = weighted_target(jnp.array([[[1.0], [3.0]], [[4.0], [8.0]]]))  # variances 1 and 4
    np.testing.assert_allclose(target, [0.8 * 2 + 0.2 * 6], rtol=1e-6)


def test_one_candidate_is_the_target():
    only = jnp.array([[[1.0, 2.0], [3.0, 8.0]]])
    target, weights = weighted_target(only)
    np.testing.assert_array_equal(target, jnp.mean(only[0], axis=0))
    np.testing.assert_array_equal(weights, jnp.ones((1, 2)))


def how(horizon=2, target="weighted", critics=3, members=2, **changes) -> Expansion:
    return Expansion(
        DDPGConfig(hidden=4, layers=1, critics=critics, discount=0.5, target_every=3, **changes),
        WorldConfig(hidden=5, layers=1, reward_hidden=3, reward_layers=1, members=members),
        horizon,
        target,
    )


def batch(rows=6, *, seed=0, terminated=None) -> Transition:
    rng = np.random.default_rng(seed)
    return Transition(
        obs=jnp.array(rng.normal(size=(rows, 3))),
        action=jnp.array(rng.uniform(-1, 1, (rows, 2))),
        reward=jnp.array(rng.normal(size=rows)),
        next_obs=jnp.array(rng.normal(size=(rows, 3))),
        terminated=jnp.array(rng.random(rows) < 0.3 if terminated is None else terminated),
    )


def test_ddpgs_target_is_the_reward_and_the_discounted_value_of_the_next_action():
    chosen = how(horizon=0, target="last", critics=1)
    state, rows = init_ddpg(chosen, 3, 2, key=KEY), batch(2, terminated=[False, True])
    target, lookahead, _ = ddpg.critic_target(state, rows, chosen)
    value = ddpg.values(state.targets, rows.next_obs, ddpg.act(state.policy, rows.next_obs))[0]
    np.testing.assert_allclose(target, [rows.reward[0] + 0.5 * value[0], rows.reward[1]], rtol=1e-6)
    assert float(lookahead) == 0


def test_candidates_follow_every_member_on_a_path_of_its_own():
    chosen = how(horizon=2, critics=3, members=2)
    state, rows = init_ddpg(chosen, 3, 2, key=KEY), batch(1, terminated=[False])
    made = np.asarray(ddpg.candidates(state, rows, chosen)).reshape(3, 2, 2, 3)  # candidates, changes, rewards, critics
    for change in range(2):
        for judge in range(2):
            for critic in range(3):
                obs, total, weight = rows.next_obs, rows.reward[0], 0.5
                for step in range(3):
                    action = ddpg.act(state.policy, obs)
                    value = ddpg.values(state.targets, obs, action)[critic, 0]
                    np.testing.assert_allclose(made[step, change, judge, critic], total + weight * value, rtol=1e-5)
                    world = state.world
                    after, end = ddpg.world_model.step(world.changes[change], world.ends[change], obs, action)
                    total += weight * ddpg.world_model.reward(world.rewards[judge], obs, action, after)[0]
                    weight *= 0.5 * (1 - end[0])
                    obs = after


def test_what_is_imagined_behind_a_real_end_does_not_count():
    chosen = how(horizon=2)
    state, rows = init_ddpg(chosen, 3, 2, key=KEY), batch(4, terminated=[True] * 4)
    target, _, spread = ddpg.critic_target(state, rows, chosen)
    np.testing.assert_allclose(target, rows.reward, rtol=1e-6)
    assert float(spread) == pytest.approx(0, abs=1e-6)


def test_steve_with_one_candidate_is_that_candidate():
    only, last = how(horizon=0), how(horizon=0, target="last")
    state, rows = init_ddpg(only, 3, 2, key=KEY), batch()
    np.testing.assert_array_equal(ddpg.critic_target(state, rows, only)[0], ddpg.critic_target(state, rows, last)[0])


def test_gradients_of_every_loss_against_finite_differences():
    with jax.enable_x64(True):
        chosen, rows = how(), jax.tree.map(lambda x: x.astype(float) if x.dtype != bool else x, batch())
        state = jax.tree.map(lambda x: x.astype(float) if x.dtype != jnp.int32 else x, init_ddpg(chosen, 3, 2, key=KEY))
        target = jnp.arange(6.0)
        check_gradient(lambda critics: ddpg.critic_loss(critics, rows, target)[0], state.critics)
        check_gradient(lambda policy: ddpg.policy_loss(policy, state.critics, rows.obs, 0.1), state.policy)
        drawn = jnp.array([[0, 1, 1, 2, 5, 5], [3, 3, 4, 0, 1, 2]])
        check_gradient(lambda world: world_loss(world, rows, drawn, 0.01), state.world)


def test_the_world_models_loss_by_hand():
    world = init_world_model(
        WorldConfig(hidden=2, layers=1, reward_hidden=2, reward_layers=1, members=1), 1, 1, key=KEY
    )
    zero = jax.tree.map(jnp.zeros_like, world)
    rows = Transition(
        obs=jnp.array([[1.0], [2.0]]),
        action=jnp.zeros((2, 1)),
        reward=jnp.array([3.0, -1.0]),
        next_obs=jnp.array([[2.0], [4.0]]),
        terminated=jnp.array([True, False]),
    )
    both, first = jnp.array([[0, 1]]), jnp.array([[0, 0]])
    nothing_known = np.log(2)
    assert float(world_loss(zero, rows, both, 1.0)) == pytest.approx((1 + 4) / 2 + (9 + 1) / 2 + nothing_known)
    assert float(world_loss(zero, rows, first, 1.0)) == pytest.approx(1 + 9 + nothing_known)
    ones = jax.tree.map(jnp.ones_like, world)
    decay = float(world_loss(ones, rows, both, 1.0) - world_loss(ones, rows, both, 0.0))
    weights = sum(layer.weight.size for network in (*world.changes, *world.ends, *world.rewards) for layer in network)
    assert decay == pytest.approx(0.5 * weights)


def test_targets_are_copies_after_so_many_updates():
    chosen = how(horizon=1)
    state = init_ddpg(chosen, 3, 2, key=KEY)
    before = state.targets
    for count in range(1, 4):
        state, _ = ddpg.update(state, batch(seed=count), jnp.zeros((2, 6), dtype=jnp.int32), chosen)
        assert_same(state.targets, state.critics if count == 3 else before)


def training(algo, *, steps=150, **settings) -> ValueExpansion:
    base = override(AgentConfig(algo=algo), {**small(algo), **settings})
    world = World(make_env("Pendulum-v1"), seed=base.seed, stream="train")
    return ValueExpansion(resolve(base, {}, action_dim=world.action_dim, steps=steps), world)


def test_ddpg_is_mve_at_horizon_0_bit_for_bit():
    plain, expanded = training("ddpg"), training("mve", horizon=0)
    for each in (plain, expanded):
        ran(each, 110)
    assert_same(plain.state, expanded.state)
    assert plain.state.learner.world is None


def test_steve_of_one_member_at_horizon_0_is_ddpg_bit_for_bit():
    plain, expanded = training("ddpg"), training("steve", horizon=0, **{"ddpg.critics": 1, "world.members": 1})
    for each in (plain, expanded):
        ran(each, 110)
    assert_same(plain.state, expanded.state)


@pytest.mark.parametrize("algo", ["steve", "mve"])
def test_a_world_model_is_trained_before_the_first_update(algo, monkeypatch):
    monkeypatch.setattr(loop, "PRETRAIN_SLICE", 20)
    under_test = training(algo)
    seen = [(p.step, p.phase) for p in under_test.run(75)]
    assert seen.count((50, "fitting")) == 3  # 50 random steps, 50 updates: 20, 20 and 10
    metrics = [p.metrics for p in under_test.run(100) if p.metrics]
    assert under_test.state.counters.fits == 3
    assert 0 < metrics[-1]["ddpg/lookahead"] <= 3
    assert metrics[-1]["ddpg/world_loss"] > 0
    assert "fresh/rows" not in metrics[-1]


@pytest.mark.parametrize("algo", ["steve", "mve", "ddpg"])
def test_a_training_that_was_left_goes_on_exactly(algo, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "PRETRAIN_SLICE", 20)
    whole = training(algo)
    ran(whole, 110)
    for stop in (1, 4, 20, 45):  # in the exploration, in the pre-training, in the updates
        left = training(algo)
        for count, _ in enumerate(left.run(110)):
            if count == stop:
                break
        cycle, losses = left.unfinished()
        checkpoint.save(tmp_path / str(stop), left.state, left.config, losses=losses)
        found = checkpoint.load(tmp_path / str(stop))
        world = World(make_env("Pendulum-v1"), seed=0, stream="train")
        again = ValueExpansion(found.config, world, state=found.state)
        again.take_up(cycle, found.losses)
        assert again.rejoin()
        ran(again, 110)
        assert checkpoint.fingerprint(again.state) == checkpoint.fingerprint(whole.state)


def test_the_policy_outside_of_compiled_code_is_the_one_inside():
    state = init_ddpg(how(), 3, 2, key=KEY)
    policy = DeterministicPolicy(state.policy, exploration=0.25)
    obs = np.asarray(batch().obs, dtype=np.float32)
    np.testing.assert_allclose(policy(obs), ddpg.act(state.policy, jnp.asarray(obs)), atol=1e-6)
    noise = policy.draw(np.random.default_rng(0), 20_000)
    disturbed = noise != 0
    assert disturbed.mean() == pytest.approx(0.25, abs=0.01)
    assert noise[disturbed].std() == pytest.approx(1, abs=0.02)
    raw = np.arctanh(policy(obs).astype(np.float64))
    np.testing.assert_allclose(policy(obs, noise[:6]), np.tanh(raw + noise[:6]), atol=1e-5)


def test_what_is_left_open_follows_from_the_algorithm():
    steve, mve, plain = (
        resolve(AgentConfig(algo=algo), {}, action_dim=1, steps=9000) for algo in ("steve", "mve", "ddpg")
    )
    assert [config.horizon for config in (steve, mve, plain)] == [3, 3, None]
    assert [config.ddpg.critics for config in (steve, mve, plain)] == [4, 1, 1]
    assert [config.world.members for config in (steve, mve)] == [4, 1]
    assert [config.updates_per_step for config in (steve, mve, plain)] == [4, 4, 4]
    assert steve.world.pretrain == steve.random_steps == 5000
    assert expansion_of(steve).target == "weighted"
    assert expansion_of(plain) == expansion_of(plain)._replace(horizon=0, target="last")


def test_agents_of_every_kind_learn_and_are_loaded(tmp_path):
    for algo in ("steve", "mve", "ddpg"):
        agent = AGENTS[algo]("Pendulum-v1", **small(algo)).learn(80)
        agent.save(tmp_path / algo)
        again = AGENTS[algo].load(tmp_path / algo, "Pendulum-v1")
        obs = np.array([1.0, 0.0, 0.5])
        np.testing.assert_array_equal(
            again.predict(obs, deterministic=True)[0], agent.predict(obs, deterministic=True)[0]
        )
        assert agent.predict(np.zeros((5, 3)))[0].shape == (5, 1)


def test_agents_that_cannot_learn_together_say_so():
    with pytest.raises(ConfigError, match="M2AC, MBPO or SAC"):
        learn_together([AGENTS["ddpg"]("Pendulum-v1", seed=seed, **small("ddpg")) for seed in (0, 1)], 60)
