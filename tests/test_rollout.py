"""Masked rollouts in fake worlds whose output shows the path."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from m2ac.dynamics import ensemble as ensembles
from m2ac.dynamics.ensemble import Ensemble, init_ensemble
from m2ac.dynamics.uncertainty import SCORES
from m2ac.imagination import rollout as rollouts
from m2ac.imagination.mask import Threshold, keep_all, most_rows_kept, rank_mask
from m2ac.imagination.rollout import Imagination, masked_rollouts, roll_out, start_rollouts
from m2ac.model_config import ModelConfig, mask_rates
from m2ac.types import Border

KEY = jax.random.key(0)


def never(obs, action, next_obs):
    return jnp.array(False)


def adding_ensemble(amounts, *, obs_dim=1, log_variance=-60.0, elites=None) -> Ensemble:
    """Member k predicts reward 10·k and adds amounts[k] to every observation, with no noise to speak of."""
    config = ModelConfig(members=len(amounts), elites=1, hidden=2, layers=1, weight_decay=(0.0, 0.0))
    ensemble = init_ensemble(config, obs_dim, 1, learns_termination=False, key=KEY)
    members = []
    for k, amount in enumerate(amounts):
        mean = jnp.array([10.0 * k] + [float(amount)] * obs_dim)
        bias = jnp.concatenate([mean, jnp.full(obs_dim + 1, log_variance)])
        zero = jax.tree.map(jnp.zeros_like, ensemble.params.members[k])
        members.append((zero[0], zero[1]._replace(bias=bias)))
    bounds = jnp.full(obs_dim + 1, log_variance - 30), jnp.full(obs_dim + 1, log_variance + 30)
    params = ensemble.params._replace(members=tuple(members), min_log_variance=bounds[0], max_log_variance=bounds[1])
    chosen = range(len(amounts)) if elites is None else elites
    return ensemble._replace(params=params, elites=jnp.array(list(chosen), dtype=jnp.int32))


def still(obs, key):
    return jnp.zeros((obs.shape[0], 1))


def imagine(**changes) -> Imagination:
    defaults = Imagination(
        horizon=1,
        mask=keep_all,
        score=SCORES["ovr"],
        penalty=0.0,
        stop="nonstop",
        draw="elites",
        rest="all",
        termination_fn=never,
        reward_fn=None,
    )
    return defaults._replace(**changes)


def constant_score(u):
    return lambda prediction, member, outcome, company: jnp.array(u, dtype=float)


def moves(rollout):
    """The kept transitions as (obs, next_obs) pairs of whole numbers, in order of steps and rows."""
    keep = np.asarray(rollout.keep)
    pairs = np.stack([rollout.rows.obs[..., 0], rollout.rows.next_obs[..., 0]], axis=-1)[keep]
    return [tuple(int(x) for x in np.round(pair)) for pair in pairs]


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("nonstop", [(10, 11), (30, 31), (11, 12), (31, 32)]),
        ("hardstop", [(10, 11), (30, 31), (11, 12)]),
    ],
)
@pytest.mark.parametrize("x64", [False, True], ids=["float32", "float64"])
def test_the_two_stop_modes_in_a_world_that_counts(stop, expected, x64):  # V13
    with jax.enable_x64(x64):
        how = imagine(horizon=2, stop=stop, mask=rank_mask((Fraction(1, 2),) * 2), score=constant_score([4, 1, 3, 2]))
        starts = jnp.array([[0.0], [10.0], [20.0], [30.0]])
        assert moves(masked_rollouts(still, adding_ensemble([1, 1]), starts, how, key=KEY)) == expected


@pytest.mark.parametrize("x64", [False, True], ids=["float32", "float64"])
def test_the_stored_reward_is_lowered_by_the_penalty_times_the_score(x64):  # V14
    with jax.enable_x64(x64):
        how = imagine(penalty=1e-3, score=constant_score([2.0]), reward_fn=lambda o, a, n: jnp.array(1.0))
        rollout = masked_rollouts(still, adding_ensemble([1, 1]), jnp.zeros((1, 1)), how, key=KEY)
        np.testing.assert_allclose(rollout.rows.reward, [[0.998]], rtol=1e-6)


def test_sample_reward_and_score_come_from_one_and_the_same_member():
    """Member k adds k and pays 10 k; the score of member k against the others is known."""
    ensemble = adding_ensemble([0, 1, 2, 5], log_variance=0.0)
    ensemble = ensemble._replace(
        params=ensemble.params._replace(
            members=tuple(
                (m[0], m[1]._replace(bias=m[1].bias.at[2:].set(jnp.log(1e-4)))) for m in ensemble.params.members
            )
        )
    )
    rollout = masked_rollouts(still, ensemble, jnp.zeros((400, 1)), imagine(), key=KEY)
    member = np.asarray(rollout.member[0])
    added = np.array([0, 1, 2, 5])[member]
    np.testing.assert_allclose(rollout.rows.next_obs[0, :, 0], added, atol=0.1)
    np.testing.assert_allclose(rollout.rows.reward[0], 10 * member, atol=0.1)
    for k in range(4):
        others = [j for j in range(4) if j != k]
        expected = 0.0
        for means in ([0, 10, 20, 30], [0, 1, 2, 5]):
            rest_mean = np.mean([means[j] for j in others])
            rest_var = 1e-4 + np.var([means[j] for j in others])
            expected += 0.5 * (1e-4 / rest_var - 1 - np.log(1e-4 / rest_var) + (means[k] - rest_mean) ** 2 / rest_var)
        np.testing.assert_allclose(rollout.uncertainty[0][member == k], expected, rtol=1e-3)


def test_every_row_and_every_step_draws_its_own_member_from_the_elites():
    ensemble = adding_ensemble([0, 1, 2, 3, 4], elites=[1, 3])
    rollout = masked_rollouts(still, ensemble, jnp.zeros((2000, 1)), imagine(horizon=2), key=KEY)
    member = np.asarray(rollout.member)
    assert set(member.ravel()) == {1, 3}
    assert 900 < (member[0] == 1).sum() < 1100
    assert 900 < (member[0] == member[1]).sum() < 1100
    everyone = masked_rollouts(still, ensemble, jnp.zeros((2000, 1)), imagine(draw="all"), key=KEY)
    assert set(np.asarray(everyone.member).ravel()) == {0, 1, 2, 3, 4}


def test_rest_can_be_the_elites_alone():
    """Members 0 and 1 differ by 10 in reward and 2 in the observation; with unit variance that is 50 + 2 nats."""
    ensemble = adding_ensemble([0, 2, 9], elites=[0, 1], log_variance=0.0)
    everyone = masked_rollouts(still, ensemble, jnp.zeros((50, 1)), imagine(), key=KEY)
    elites = masked_rollouts(still, ensemble, jnp.zeros((50, 1)), imagine(rest="elites"), key=KEY)
    np.testing.assert_allclose(elites.uncertainty, 52.0, rtol=1e-3)
    assert not np.isclose(everyone.uncertainty, 52.0, rtol=0.1).any()


def test_an_elite_that_is_the_only_one_is_compared_with_all_the_others():
    """Of three places for elites one member has all, as after a fit in which no other had a finite loss; 52 nats."""
    ensemble = adding_ensemble([0, 2], elites=[1, 1, 1], log_variance=0.0)
    rollout = masked_rollouts(still, ensemble, jnp.zeros((50, 1)), imagine(rest="elites"), key=KEY)
    np.testing.assert_allclose(rollout.uncertainty, 52.0, rtol=1e-3)
    assert np.asarray(rollout.keep).all()


def test_a_terminated_row_is_stored_once_and_then_dead():
    how = imagine(horizon=3, termination_fn=lambda o, a, n: n[0] > 1.5)
    rollout = masked_rollouts(still, adding_ensemble([1, 1]), jnp.array([[0.0], [1.0], [-5.0]]), how, key=KEY)
    np.testing.assert_array_equal(rollout.alive, [[1, 1, 1], [1, 0, 1], [0, 0, 1]])
    np.testing.assert_array_equal(rollout.keep, rollout.alive)
    np.testing.assert_array_equal(rollout.rows.terminated & rollout.alive, [[0, 1, 0], [1, 0, 0], [0, 0, 0]])


def test_dead_rows_do_not_count_in_the_share():
    """Of 4 rows 2 die at once; the half of the living is 1."""
    how = imagine(
        horizon=2,
        mask=rank_mask((Fraction(1, 2),) * 2),
        score=constant_score([1, 2, 3, 4]),
        termination_fn=lambda o, a, n: n[0] < 5,
    )
    rollout = masked_rollouts(still, adding_ensemble([1, 1]), jnp.array([[0.0], [1.0], [20.0], [30.0]]), how, key=KEY)
    np.testing.assert_array_equal(rollout.keep, [[1, 1, 0, 0], [0, 0, 1, 0]])


def test_non_finite_predictions_are_never_kept_nor_continued():
    how = imagine(horizon=2, reward_fn=lambda o, a, n: jnp.where(n[0] == 1.0, jnp.nan, 0.0))
    rollout = masked_rollouts(still, adding_ensemble([1, 1]), jnp.array([[0.0], [10.0]]), how, key=KEY)
    np.testing.assert_array_equal(rollout.keep, [[0, 1], [0, 1]])
    np.testing.assert_array_equal(rollout.alive, [[1, 1], [0, 1]])
    assert np.isnan(rollout.uncertainty[0, 0])


@pytest.mark.parametrize("stop", ["nonstop", "hardstop"])
@pytest.mark.parametrize("horizon", [4, 7])
def test_the_rows_kept_fill_the_room_that_the_schedule_foresees(stop, horizon):
    rates = mask_rates("paper", horizon)
    how = imagine(horizon=horizon, stop=stop, mask=rank_mask(rates))
    starts = jax.random.normal(KEY, (1000, 1))
    rollout = masked_rollouts(still, adding_ensemble([1, 2, 3], log_variance=0.0), starts, how, key=KEY)
    assert int(rollout.keep.sum()) == most_rows_kept(rates, 1000, stop)
    assert rollout.keep.shape == (horizon, 1000)


def test_blocks_of_rows_do_not_change_what_a_row_sees(monkeypatch):
    """A number of rows that no block size divides: each row still goes on from its own start."""
    monkeypatch.setattr(rollouts, "BLOCK", 16)
    starts = jnp.arange(37.0)[:, None] * 100
    rollout = masked_rollouts(still, adding_ensemble([1, 1]), starts, imagine(horizon=2), key=KEY)
    np.testing.assert_allclose(rollout.rows.obs[:, :, 0], [np.arange(37) * 100, np.arange(37) * 100 + 1], atol=1e-3)
    assert rollout.keep.all()


def test_actions_come_from_the_policy_with_a_key_of_their_own():
    def noisy(obs, key):
        return jax.random.normal(key, (obs.shape[0], 1))

    rollout = masked_rollouts(noisy, adding_ensemble([1, 1]), jnp.zeros((500, 1)), imagine(horizon=2), key=KEY)
    actions = np.asarray(rollout.rows.action)[..., 0]
    assert abs(np.corrcoef(actions[0], actions[1])[0, 1]) < 0.15
    assert 0.9 < actions.std() < 1.1


def ending_ensemble(*logits):
    """Members of which each has one logit of the end everywhere."""
    config = ModelConfig(members=len(logits), elites=len(logits), hidden=2, layers=1, weight_decay=(0.0, 0.0))
    ensemble = init_ensemble(config, 1, 1, learns_termination=True, key=KEY)
    members = []
    for logit, member in zip(logits, ensemble.params.members, strict=True):
        zero = jax.tree.map(jnp.zeros_like, member)
        members.append((zero[0], zero[1]._replace(bias=zero[1].bias.at[-1].set(logit))))
    return ensemble._replace(params=ensemble.params._replace(members=tuple(members)))


def test_learned_termination_follows_the_drawn_member():
    ensemble = ending_ensemble(-30.0, 30.0)
    rollout = masked_rollouts(still, ensemble, jnp.zeros((200, 1)), imagine(termination_fn=None), key=KEY)
    np.testing.assert_array_equal(rollout.rows.terminated, rollout.member == 1)


@pytest.mark.parametrize("score", [None, imagine().score])
def test_an_end_that_is_likely_to_some_degree_comes_as_often_and_whatever_else_is_drawn(score):
    ensemble, how = ending_ensemble(*np.log([0.3 / 0.7] * 2)), imagine(termination_fn=None, horizon=2, score=score)
    rollout = masked_rollouts(still, ensemble, jnp.zeros((20_000, 1)), how, key=KEY)
    ended, alive = np.asarray(rollout.rows.terminated), np.asarray(rollout.alive)
    for h in range(2):
        assert abs(ended[h][alive[h]].mean() - 0.3) < 0.015
    assert abs(alive[1].mean() - 0.7) < 0.015
    moved = np.asarray(rollout.rows.next_obs - rollout.rows.obs)[0, :, 0]
    assert abs(np.corrcoef(moved, ended[0])[0, 1]) < 0.03


@pytest.mark.parametrize("rows", [1, 7, 60])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("draw", ["elites", "all"])
def test_without_a_score_only_the_drawn_member_is_asked_and_the_rows_are_the_same(monkeypatch, rows, learned, draw):
    monkeypatch.setattr(ensembles, "CHUNK", 8)  # several chunks for some members, none for others
    config = ModelConfig(members=5, elites=2, hidden=16, layers=2, weight_decay=(0.0,) * 3)
    ensemble = init_ensemble(config, 3, 1, learns_termination=learned, key=jax.random.key(0))
    ensemble = ensemble._replace(elites=jnp.array([3, 1], dtype=jnp.int32))
    starts = jax.random.normal(jax.random.key(1), (rows, 3))
    how = imagine(horizon=3, draw=draw, termination_fn=None if learned else never)
    scored = masked_rollouts(still, ensemble, starts, how, key=jax.random.key(2))
    drawn = masked_rollouts(still, ensemble, starts, how._replace(score=None), key=jax.random.key(2))
    np.testing.assert_array_equal(drawn.member, scored.member)
    np.testing.assert_array_equal(drawn.keep, scored.keep)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), drawn.rows, scored.rows)
    assert not np.any(drawn.uncertainty)


def test_without_a_score_a_non_finite_prediction_is_still_not_kept():
    ensemble = adding_ensemble([1, jnp.nan])
    drawn = masked_rollouts(still, ensemble, jnp.zeros((40, 1)), imagine(score=None), key=jax.random.key(0))
    broken = np.asarray(drawn.member) == 1
    assert 0 < broken.sum() < broken.size
    np.testing.assert_array_equal(drawn.keep, ~broken)


def thresholded(**changes) -> Imagination:
    mask = Threshold(quantile=0.5, factor=2.0)
    return imagine(mask=mask, score=constant_score([4.0, 1.0, 3.0, 2.0, 9.0]), stop="hardstop", horizon=2, **changes)


STARTS = jnp.array([[0.0], [10.0], [20.0], [30.0], [40.0]])


def test_a_threshold_keeps_what_is_below_twice_the_usual_score_of_first_steps():
    rollout = masked_rollouts(still, adding_ensemble([1, 1]), STARTS, thresholded(), key=KEY)
    assert moves(rollout) == [(s, s + 1) for s in (0, 10, 20, 30)] + [(s + 1, s + 2) for s in (0, 10, 20, 30)]


def test_a_threshold_is_the_mean_over_all_phases():
    before = Border(jnp.float32(0.0), jnp.int32(1))  # with (0 + 2 · 3) / 2 = 3 the score 3 is not below
    rolling = start_rollouts(adding_ensemble([1, 1]), STARTS, thresholded(), border=before, key=KEY)
    rolling = roll_out(rolling, still, adding_ensemble([1, 1]), thresholded(), steps=2)
    assert moves(rolling.rollout) == [(10, 11), (30, 31), (11, 12), (31, 32)]
    assert (float(rolling.border.level), int(rolling.border.phases)) == (3.0, 2)


def test_a_threshold_learns_nothing_from_scores_that_are_not_finite():
    bad = thresholded()._replace(score=constant_score([np.nan, np.inf, np.nan, np.nan, np.nan]))
    before = Border(jnp.float32(7.0), jnp.int32(3))
    rolling = start_rollouts(adding_ensemble([1, 1]), STARTS, bad, border=before, key=KEY)
    rolling = roll_out(rolling, still, adding_ensemble([1, 1]), bad, steps=2)
    assert not rolling.rollout.keep.any()
    assert (float(rolling.border.level), int(rolling.border.phases)) == (7.0, 3)
    some = thresholded()._replace(score=constant_score([np.nan, 1.0, np.inf, 3.0, 2.0]))
    rolling = start_rollouts(adding_ensemble([1, 1]), STARTS, some, key=KEY)
    assert roll_out(rolling, still, adding_ensemble([1, 1]), some, steps=1).border.level == 4.0
