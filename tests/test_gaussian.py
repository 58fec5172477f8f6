import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from m2ac.dynamics.gaussian import Gaussian, geometric_js, kl, merge, negative_log_density
from m2ac.dynamics.uncertainty import negative_likelihood, one_vs_all, one_vs_rest, pairwise


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"], autouse=True)
def precision(request):
    with jax.enable_x64(request.param is np.float64):
        yield request.param


def ensemble(means, variances, dtype) -> Gaussian:
    """Members (K, D) as predictions (K, K, D): row k is the one drawn from member k."""
    mean, variance = (np.array(x, dtype=dtype).reshape(len(means), 1, -1) for x in (means, variances))
    rows = (len(means), len(means), mean.shape[-1])
    return Gaussian(jnp.array(np.broadcast_to(mean, rows)), jnp.array(np.broadcast_to(variance, rows)))


def scores(score, prediction):
    """The score of each member when it is the drawn one."""
    K = prediction.mean.shape[0]
    return score(prediction, jnp.arange(K), prediction.mean[0], jnp.ones(K, dtype=bool))


def close(actual, expected, dtype, digits=6):
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, rtol=0, atol=0.51 * 10.0**-digits if dtype == np.float64 else 2e-6)


@pytest.mark.parametrize("K", [2, 3, 7])
def test_identical_members_agree_exactly(K, precision):  # V1
    prediction = ensemble([[0.3, -5.0]] * K, [[0.2, 9.0]] * K, precision)
    np.testing.assert_allclose(scores(one_vs_rest, prediction), 0.0, atol=1e-6)
    np.testing.assert_allclose(scores(one_vs_all, prediction), 0.0, atol=1e-6)
    np.testing.assert_array_equal(scores(pairwise, prediction), 0.0)


@pytest.mark.parametrize(
    ("means", "variances", "rest", "everyone"),
    [
        ([0, 2], [1, 1], [2, 2], [0.346574, 0.346574]),  # V2
        ([0, 1, -1], [1, 1, 1], [0.096574, 0.911572, 0.911572], [0.055413, 0.355413, 0.355413]),  # V3
        ([0, 0, 3], [1, 1, 1], [0.589327, 0.589327, 4.5], [0.382639, 0.382639, 0.882639]),  # V4
        ([0, 0], [1, 4], [0.318147, 0.806853], [0.158145, 0.064998]),  # V5
    ],
    ids=["V2", "V3", "V4", "V5"],
)
def test_scores_of_hand_computed_ensembles(means, variances, rest, everyone, precision):
    prediction = ensemble(means, variances, precision)
    close(scores(one_vs_rest, prediction), rest, precision)
    close(scores(one_vs_all, prediction), everyone, precision)


@pytest.mark.parametrize(
    ("means", "variances", "expected"),
    [
        ([0, 2], [1, 1], 4 / 8),
        ([0, 0], [1, 4], 0.5 * np.log(5 / 4)),
        ([0, 1, -1], [1, 1, 1], (1 / 8 + 1 / 8 + 4 / 8) / 3),
        ([0, 1, 2, 4], [1, 1, 1, 1], (1 + 4 + 16 + 1 + 9 + 4) / 8 / 6),  # all pairs once, also of an even number
        ([[0, 0], [2, 0]], [[1, 1], [1, 4]], 4 / 8 + 0.5 * np.log(5 / 4)),
    ],
)
def test_the_mean_divergence_of_pairs_by_hand(means, variances, expected, precision):
    close(scores(pairwise, ensemble(means, variances, precision)), [expected] * len(means), precision)


def test_pairs_are_those_of_the_company_and_the_drawn_member(precision):
    prediction = ensemble([0, 1, 2, 4], [1, 1, 1, 1], precision)
    company = jnp.array([True, True, False, False])
    made = pairwise(prediction, jnp.arange(4), prediction.mean[0], company)
    close(made, [1 / 8, 1 / 8, (1 + 4 + 1) / 24, (1 + 16 + 9) / 24], precision)


def test_the_geometric_divergence_is_half_the_kl_from_the_geometric_mean_to_each(precision):
    p = Gaussian(jnp.array([0.5, -1.0], precision), jnp.array([0.2, 3.0], precision))
    q = Gaussian(jnp.array([1.5, 0.0], precision), jnp.array([1.0, 0.5], precision))
    variance = 2 / (1 / p.variance + 1 / q.variance)
    middle = Gaussian(variance * 0.5 * (p.mean / p.variance + q.mean / q.variance), variance)
    expected = 0.5 * (kl(middle, p) + kl(middle, q))
    np.testing.assert_allclose(geometric_js(p, q), expected, rtol=1e-5)
    np.testing.assert_allclose(geometric_js(p, q), geometric_js(q, p), rtol=1e-6)


def test_one_vs_rest_sums_over_dimensions(precision):  # V6
    prediction = ensemble([[0, 0], [2, 0]], [[1, 1], [1, 4]], precision)
    close(scores(one_vs_rest, prediction), [2.318147, 2.806853], precision)


def test_merged_others_of_three_members(precision):  # V3
    prediction = ensemble([0, 1, -1], [1, 1, 1], precision)
    without_0 = merge(prediction, jnp.array([[False] * 3, [True] * 3, [True] * 3]))
    without_1 = merge(prediction, jnp.array([[True] * 3, [False] * 3, [True] * 3]))
    close(without_0.mean[0, 0], 0.0, precision)
    close(without_0.variance[0, 0], 2.0, precision)
    close(without_1.mean[0, 0], -0.5, precision)
    close(without_1.variance[0, 0], 1.25, precision)


def test_negative_log_density_in_the_merge_of_two(precision):  # V7
    merged = merge(ensemble([0, 2], [1, 1], precision), jnp.ones((2, 2), dtype=bool))
    close(merged.mean[0], [1.0], precision)
    close(merged.variance[0], [2.0], precision)
    close(negative_log_density(merged, jnp.array([[1.0], [3.0]], precision)), [1.265512, 2.265512], precision)
    narrow = Gaussian(jnp.array([5.0], precision), jnp.array([1e-4], precision))
    np.testing.assert_allclose(negative_log_density(narrow, narrow.mean), -3.686232, atol=2e-6)


def test_negative_likelihood_scores_the_drawn_outcome_under_all_members(precision):  # V7
    prediction = ensemble([0, 2], [1, 1], precision)
    outcome = jnp.array([[1.0], [3.0]], precision)
    u = negative_likelihood(prediction, jnp.array([0, 1]), outcome, jnp.ones(2, dtype=bool))
    close(u, [1.265512, 2.265512], precision)


def test_merged_variance_does_not_cancel_far_from_zero(precision):  # V8
    means = 100 + np.array([0, 1, -1, 2, 0, 1]) * 1e-3
    prediction = ensemble(means, [1e-4] * 6, precision)
    merged = merge(prediction, jnp.ones((6, 6), dtype=bool))
    np.testing.assert_allclose(merged.variance[0], 1.009e-4, rtol=2e-3)


def test_only_the_company_is_compared_with(precision):
    """With member 2 not in the company, members 0 and 1 are judged as if it were not there."""
    prediction = ensemble([0, 2, 50], [1, 1, 1], precision)
    company = jnp.array([True, True, False])
    u = one_vs_rest(prediction, jnp.arange(3), prediction.mean[0], company)
    close(u[:2], [2.0, 2.0], precision)
    np.testing.assert_allclose(u[2], 600.346574, rtol=1e-6)


def test_kl_and_density_agree_with_scipy(precision):
    p, q = stats.norm(0.3, 0.7), stats.norm(-0.4, 1.3)
    exact, _ = integrate.quad(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), -12, 12)
    ours = kl(*(Gaussian(jnp.array([d.mean()], precision), jnp.array([d.var()], precision)) for d in (p, q)))
    np.testing.assert_allclose(ours, exact, rtol=1e-6 if precision == np.float32 else 1e-9)
    density = negative_log_density(
        Gaussian(jnp.array([0.3], precision), jnp.array([0.49], precision)), jnp.array([1.1], precision)
    )
    np.testing.assert_allclose(density, -p.logpdf(1.1), rtol=1e-6)


members = st.integers(2, 6).flatmap(
    lambda K: st.integers(1, 3).flatmap(
        lambda D: st.tuples(
            st.lists(st.lists(st.floats(-3, 3), min_size=D, max_size=D), min_size=K, max_size=K),
            st.lists(st.lists(st.floats(0.05, 5), min_size=D, max_size=D), min_size=K, max_size=K),
        )
    )
)


@settings(max_examples=40, deadline=None)
@given(members)
def test_one_vs_all_is_never_above_one_vs_rest_and_both_are_never_negative(drawn):
    prediction = ensemble(*drawn, np.float64)
    rest, everyone = scores(one_vs_rest, prediction), scores(one_vs_all, prediction)
    assert np.all(np.asarray(everyone) <= np.asarray(rest) + 1e-5)
    assert np.all(np.asarray(everyone) >= -1e-6)


@settings(max_examples=40, deadline=None)
@given(members, st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_order_of_the_members(drawn, random):
    order = list(range(len(drawn[0])))
    random.shuffle(order)
    prediction = ensemble(*drawn, np.float64)
    shuffled = ensemble([drawn[0][i] for i in order], [drawn[1][i] for i in order], np.float64)
    for score in (one_vs_rest, one_vs_all):
        np.testing.assert_allclose(
            scores(score, shuffled), np.asarray(scores(score, prediction))[order], rtol=1e-4, atol=1e-5
        )


@settings(max_examples=40, deadline=None)
@given(members, st.floats(-10, 10), st.floats(0.1, 10))
def test_scores_do_not_depend_on_origin_and_units(drawn, shift, scale):
    prediction = ensemble(*drawn, np.float64)
    moved = Gaussian(prediction.mean * scale + shift, prediction.variance * scale**2)
    for score in (one_vs_rest, one_vs_all):
        np.testing.assert_allclose(scores(score, moved), scores(score, prediction), rtol=2e-3, atol=1e-4)
