"""What is said about the trust in model and critics, against worlds in which it is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import spearmanr
from test_rollout import adding_ensemble, imagine
from test_training import assert_same, ran, training

from m2ac.algorithms import training as loop
from m2ac.algorithms.diagnostics import (
    INSIDE,
    MOST_ROWS,
    Window,
    critic_metrics,
    fresh_rows,
    judge_critics,
    judge_model,
    model_metrics,
    rank_correlation,
    window,
)
from m2ac.algorithms.state import Counters
from m2ac.config import AgentConfig
from m2ac.learner_config import SACConfig
from m2ac.learners.choice import learner_of
from m2ac.learners.sac import init_sac
from m2ac.replay import add_real, empty_real
from m2ac.resolving import resolve
from m2ac.types import Transition

KEY = jax.random.key(0)


def real_rows(obs, next_obs, *, reward=None, terminated=None, capacity=8):
    rows = Transition(
        obs=jnp.array(obs, dtype=float)[:, None],
        action=jnp.zeros((len(obs), 1)),
        reward=jnp.zeros(len(obs)) if reward is None else jnp.array(reward, dtype=float),
        next_obs=jnp.array(next_obs, dtype=float)[:, None],
        terminated=jnp.zeros(len(obs), dtype=bool) if terminated is None else jnp.array(terminated),
    )
    return add_real(empty_real(capacity, 1, 1), rows, jnp.int32(len(obs)))


NUMBERS = arrays.arrays(np.float64, st.integers(2, 30), elements=st.integers(-5, 5).map(float))


@given(NUMBERS, st.randoms(use_true_random=False))
def test_the_rank_correlation_is_spearmans_also_with_ties(x, random):
    y = np.array([random.choice([-1.0, 0.0, 2.5, 7.0]) for _ in x])
    ours = rank_correlation(x, y)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert np.isnan(ours)
    else:
        assert ours == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)


def test_the_rank_correlation_leaves_out_what_is_not_finite():
    assert rank_correlation(np.array([1.0, np.nan, 2.0, 3.0]), np.array([4.0, 0.0, 5.0, np.inf])) == pytest.approx(1)
    assert np.isnan(rank_correlation(np.array([np.nan, 1.0]), np.array([1.0, 1.0])))
    assert np.isnan(rank_correlation(np.array([np.nan]), np.array([1.0])))


def test_a_model_is_judged_by_what_really_happened():
    # It adds 1 and expects no reward. The world adds 1, 1, 3; a new episode begins at 50 and adds 0.
    real = real_rows([0, 1, 2, 50], [1, 2, 5, 50], reward=[1, 0, -1, 0])
    ensemble = adding_ensemble([1], log_variance=0.0)._replace(input_std=jnp.array([2.0, 1.0]))
    errors = judge_model(ensemble, real, KEY, jnp.int32(1), window=Window(4, 1), how=imagine())
    reward_spread = np.std([1, 0, -1, 0])
    off_by = np.array([[-1, 0], [0, 0], [1, -2], [0, 1]])  # predicted minus real: reward, observation
    np.testing.assert_allclose(errors.reward_error, off_by[:, 0], atol=1e-6)
    np.testing.assert_allclose(errors.error, np.sqrt(np.mean((off_by / [reward_spread, 2.0]) ** 2, axis=1)), rtol=1e-6)
    np.testing.assert_allclose(errors.deviations, -off_by, rtol=1e-5, atol=1e-6)  # of standard deviation 1
    told = model_metrics(errors, fresh=4, score="ova")
    assert told["fresh/inside_50_by_dim"] == [0.5]
    assert told["fresh/inside_90_by_dim"] == [0.75]
    assert (told["fresh/inside_50_reward"], told["fresh/inside_90_reward"]) == (0.5, 1.0)
    newest = model_metrics(errors, fresh=2, score="ova")
    assert newest["fresh/rows"] == 2
    assert newest["fresh/inside_50_by_dim"] == [0.0]


def test_the_model_on_its_own_is_followed_to_the_end_of_each_episode():
    # It adds 1 where the world adds 2: off by h after h steps. The episode that begins at 50 has two steps.
    real = real_rows([0, 2, 4, 50, 52], [2, 4, 6, 52, 54])
    ensemble = adding_ensemble([1])._replace(input_std=jnp.array([0.5, 1.0]))
    errors = judge_model(ensemble, real, KEY, jnp.int32(1), window=Window(5, 4), how=imagine())
    nan = np.nan
    expected = [[1, 1, 1, 1, 1], [2, 2, nan, 2, nan], [3, nan, nan, nan, nan], [nan] * 5]
    np.testing.assert_allclose(errors.open_loop, np.array(expected) / 0.5, rtol=1e-5)
    told = model_metrics(errors, fresh=5, score="ovr")["fresh/open_loop_error"]
    np.testing.assert_allclose(told, [2.0, 4.0, 6.0, nan], rtol=1e-5)


def test_the_model_on_its_own_stops_where_an_episode_terminates_and_at_the_seam_of_the_ring():
    ensemble = adding_ensemble([1])
    ended = real_rows([0, 1, 2], [1, 2, 3], terminated=[False, True, False])
    errors = judge_model(ensemble, ended, KEY, jnp.int32(1), window=Window(3, 2), how=imagine())
    np.testing.assert_array_equal(np.isnan(errors.open_loop[1]), [False, True, True])
    full = real_rows([0, 1, 2, 3], [1, 2, 3, 4], capacity=4)
    one_more = Transition(jnp.array([[4.0]]), jnp.zeros((1, 1)), jnp.zeros(1), jnp.array([[5.0]]), jnp.array([False]))
    full = add_real(full, one_more, jnp.int32(1))
    errors = judge_model(ensemble, full, KEY, jnp.int32(1), window=Window(4, 2), how=imagine())
    np.testing.assert_array_equal(np.isnan(errors.open_loop[1]), [False, False, False, True])


def test_predictions_that_are_not_finite_are_told_as_such():
    real = real_rows([0, 1, 2], [1, 2, 3])
    ensemble = adding_ensemble([np.nan])
    errors = judge_model(ensemble, real, KEY, jnp.int32(1), window=Window(3, 2), how=imagine())
    told = model_metrics(errors, fresh=3, score="ova")
    assert told["fresh/open_loop_error"] == [np.inf, np.inf]
    assert told["fresh/inside_90_obs"] == 0.0
    assert np.isnan(told["fresh/rank_ovr"])


def test_calibrated_predictions_are_told_as_calibrated():
    steps = np.random.default_rng(0).normal(0.0, 1.0, 900)
    obs = np.concatenate([[0.0], np.cumsum(steps)])
    real = real_rows(obs[:-1], obs[1:], capacity=900)
    for log_variance, inside in ((0.0, (0.5, 0.9)), (-2.0, (0.196, 0.455))):  # the second: a third of the spread
        ensemble = adding_ensemble([0, 0], log_variance=log_variance)
        errors = judge_model(ensemble, real, KEY, jnp.int32(1), window=Window(900, 1), how=imagine())
        told = model_metrics(errors, fresh=900, score="ovr")
        assert [told[f"fresh/inside_{percent}_obs"] for percent in INSIDE] == pytest.approx(inside, abs=0.05)


def test_the_half_that_is_trusted_is_that_of_the_lower_score():
    real = real_rows([0, 1, 2, 3], [1, 2, 5, 6])
    errors = judge_model(adding_ensemble([1, 1]), real, KEY, jnp.int32(1), window=Window(4, 1), how=imagine())
    errors = errors._replace(
        error=np.array([4.0, 3.0, 1.0, 2.0]), reward_error=np.arange(4.0), scores=np.array([[0.9, 0.8, 0.1, 0.2]] * 4)
    )
    told = model_metrics(errors, fresh=4, score="ovr")
    assert (told["fresh/error_trusted"], told["fresh/error_distrusted"]) == (1.5, 3.5)
    assert (told["fresh/optimism_trusted"], told["fresh/optimism_distrusted"]) == (2.5, 0.5)
    assert told["fresh/rank_ovr_absolute"] == pytest.approx(1.0)
    told = model_metrics(errors._replace(deviations=np.array([[1.0], [2.0], [3.0], [-4.0]])), fresh=4, score="ovr")
    assert told["fresh/rank_ovr"] == pytest.approx(-0.8)
    assert (told["fresh/relative_error_trusted"], told["fresh/relative_error_distrusted"]) == (3.5, 1.5)


def learner(value):
    """Critics that say `value` everywhere."""
    state = init_sac(SACConfig(hidden=2, layers=1, target_entropy=-1.0), 1, 1, key=KEY)
    zeros = jax.tree.map(jnp.zeros_like, state.critics)
    critics = tuple((first, last._replace(bias=jnp.full(1, value))) for first, last in zeros)
    return state._replace(critics=critics)


def test_critics_are_judged_by_the_rewards_that_followed():
    # Two steps that terminate; one that is cut off by a new episode; and the newest, of which no more is known.
    real = real_rows(
        [0, 1, 10, 20], [1, 2, 11, 21], reward=[1, 2, 3, 4], terminated=[False, True, False, False], capacity=4
    )
    judged = learner_of(AgentConfig(sac=SACConfig(discount=0.5)))
    returns = judge_critics(learner(7.0), real, jnp.float32(0.5 * 2.0), learner=judged)
    np.testing.assert_allclose(returns.value, [7, 7, 7, 7], rtol=1e-6)
    np.testing.assert_allclose(returns.reward, [1 + 0.5 * 2, 2, 3 + 0.5 * 7, 4 + 0.5 * 7], rtol=1e-6)
    np.testing.assert_allclose(returns.bonus, [0.5 * 1, 0, 0.5 * 1, 0.5 * 1], rtol=1e-6)  # 0.5 · 2 per later step
    np.testing.assert_allclose(returns.unknown, [0, 0, 0.5, 0.5], rtol=1e-6)
    told = critic_metrics(returns, acted=4)
    assert told["critic/rows"] == 2
    assert (told["critic/value"], told["critic/return"], told["critic/bonus"]) == pytest.approx((7, 2, 0.25))
    assert told["critic/bias"] == pytest.approx(7 - 2 - 0.25)
    assert critic_metrics(returns, acted=3)["critic/rows"] == 1
    assert critic_metrics(returns, acted=2) == {}


def test_what_is_looked_at_follows_from_the_settings():
    config = resolve(AgentConfig(horizon=12), {}, action_dim=1, steps=25_000)
    assert window(config, 25_000) == Window(250, 12)
    assert window(resolve(AgentConfig(rhythm="epoch"), {}, action_dim=1, steps=9_000), 9_000) == Window(MOST_ROWS, 10)
    assert window(config, 5) == Window(5, 5)
    assert fresh_rows(Counters(steps=5000), Window(250, 10)) == 0
    assert fresh_rows(Counters(steps=5100, fits=1, modelled_at=5000), Window(250, 10)) == 100
    assert fresh_rows(Counters(steps=5700, fits=1, modelled_at=5000), Window(250, 10)) == 250


def test_a_training_tells_of_its_model_from_the_second_cycle_on():
    first, *later = [p.metrics for p in training(steps=200).run(150) if p.metrics]
    assert not any(name.startswith("fresh/") for name in first)
    for metrics in later:
        assert metrics["fresh/rows"] == 25
        assert all(-1 <= metrics[f"fresh/rank_{name}"] <= 1 for name in ("ovr", "ova", "nll"))
        assert len(metrics["fresh/open_loop_error"]) == 10
        assert metrics["time/judge"] > 0


def test_judging_changes_nothing_in_a_training(monkeypatch):
    judged, alone = training(), training()
    ran(judged, 110)
    monkeypatch.setattr(loop, "fresh_rows", lambda *_: 0)
    monkeypatch.setattr(loop.Training, "_judged_critics", lambda *_: {})
    assert not any("fresh/rows" in p.metrics for p in ran(alone, 110) if p.metrics)
    assert_same(judged.state, alone.state)
