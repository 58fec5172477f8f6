from fractions import Fraction
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from m2ac.imagination.mask import floor_of_share, keep_all, most_rows_kept, rank_mask, smallest
from m2ac.model_config import mask_rates

NAN, INF = float("nan"), float("inf")


ROOM = 30
"""Rows of every mask here, so that few programs are compiled; dead rows follow, with the best score of all."""


@cache
def mask_of(rate):
    return jax.jit(rank_mask((Fraction(str(rate)),)))


def with_dead_rows(uncertainty, alive, dtype=np.float32):
    more = ROOM - len(uncertainty)
    return jnp.array([*uncertainty, *[-1.0] * more], dtype=dtype), jnp.array([*alive, *[False] * more])


def kept(uncertainty, rate, alive=None, dtype=np.float32):
    alive = [True] * len(uncertainty) if alive is None else alive
    return set(np.flatnonzero(mask_of(rate)(*with_dead_rows(uncertainty, alive, dtype), jnp.int32(0))).tolist())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rate", "expected"), [(0.5, {2, 3, 5}), (1, {0, 2, 3, 5})])
def test_a_row_without_a_finite_score_is_never_kept(rate, expected, dtype):  # V9
    with jax.enable_x64(dtype is np.float64):
        assert kept([0.3, NAN, 0.1, 0.1, INF, 0.2], rate, dtype=dtype) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_rank_is_over_alive_rows_only(dtype):  # V10
    alive = [False, False, True, True, True, True]
    with jax.enable_x64(dtype is np.float64):
        assert kept([0.01, 0.02, 0.5, 0.4, 0.3, 0.2], 0.5, alive, dtype) == {4, 5}


def test_ties_go_to_the_first_rows():
    assert kept([0.2, 0.1, 0.2, 0.2], 0.5) == {0, 1}


def test_all_rows_dead_keeps_nothing():
    assert kept([0.1, 0.2], 1, [False, False]) == set()


def test_a_share_below_one_row_keeps_nothing():
    assert kept([0.1, 0.2, 0.3], 0.3) == set()


def test_the_floor_is_exact_where_floats_are_not():
    assert int(0.29 * 100) == 28
    assert int(floor_of_share(mask_rates(0.29, 1)[0], jnp.int32(100))) == 29


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 46_340), st.integers(1, 46_340), st.integers(0, 2**31 - 1))
def test_the_floor_of_any_share_is_exact_in_int32(p, q, rows):
    p, q = min(p, q), max(p, q)
    assert int(floor_of_share((jnp.int32(p), jnp.int32(q)), jnp.int32(rows))) == p * rows // q


def test_rates_of_the_paper():  # V11
    assert [float(w) for w in mask_rates("paper", 4)] == [0.4, 0.3, 0.2, 0.1]
    assert mask_rates("paper", 10) == tuple(Fraction(10 - h, 22) for h in range(10))
    assert mask_rates("paper", 1) == (Fraction(1, 2),)


@pytest.mark.parametrize("horizon", [2, 4, 7, 10, 33])
def test_the_decaying_rate_has_mean_one_quarter_exactly(horizon):
    assert sum(mask_rates("paper", horizon)) / horizon == Fraction(1, 4)


@pytest.mark.parametrize(
    ("stop", "horizon", "rows"),
    [
        ("nonstop", 4, 100_000),
        ("nonstop", 7, 175_000),
        ("nonstop", 10, 249_995),
        ("hardstop", 4, 54_640),
        ("hardstop", 7, 66_834),
        ("hardstop", 10, 73_706),
    ],
)
def test_rows_kept_of_a_hundred_thousand_rollouts(stop, horizon, rows):  # V12
    assert most_rows_kept(mask_rates("paper", horizon), 100_000, stop) == rows


def test_each_rollout_step_has_its_own_rate():
    mask = rank_mask(mask_rates("paper", 4))
    u, alive = jnp.arange(100.0), jnp.ones(100, dtype=bool)
    assert [int(mask(u, alive, jnp.int32(h)).sum()) for h in range(4)] == [40, 30, 20, 10]


score_lists = st.lists(st.one_of(st.floats(0, 10, width=32), st.just(NAN)), min_size=1, max_size=ROOM)


@settings(max_examples=60, deadline=None)
@given(score_lists, st.integers(1, 20), st.integers(1, 20))
def test_a_lower_rate_keeps_a_subset(u, a, b):
    low, high = sorted((Fraction(a, 20), Fraction(b, 20)))
    assert kept(u, low) <= kept(u, high) <= kept(u, 1)


@settings(max_examples=60, deadline=None)
@given(score_lists, st.integers(1, 20))
def test_the_mask_keeps_the_floor_of_rate_times_alive_rows_and_no_worse_row_before_a_better(u, a):
    rate = Fraction(a, 20)
    rows = kept(u, rate)
    finite = [i for i, x in enumerate(u) if np.isfinite(x)]
    assert len(rows) == min(int(rate * len(u)), len(finite))
    dropped = [u[i] for i in finite if i not in rows]
    assert max((u[i] for i in rows), default=-INF) <= min(dropped, default=INF)


@settings(max_examples=40, deadline=None)
@given(score_lists)
def test_rate_one_is_keep_all(u):
    u, alive = with_dead_rows(u, [i % 3 != 0 for i in range(len(u))])
    ranked = mask_of(1)(u, alive, jnp.int32(0))
    np.testing.assert_array_equal(ranked, keep_all(u, alive, jnp.int32(0)))


smallest_of_them = jax.jit(smallest)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([-np.inf, -3.5, -0.0, 0.0, 1e-45, 0.25, 7.0, 7.0, 1e38, np.inf])
        | st.floats(width=32, allow_nan=False),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 13),
    st.booleans(),
)
@example([-np.inf, 1e-39, -0.0], 2, False)
def test_the_smallest_are_those_that_a_stable_sort_puts_in_front(numbers, count, x64):
    with jax.enable_x64(x64):
        x = jnp.array([*numbers, *[np.inf] * (12 - len(numbers))], dtype=float)
        expected = np.zeros(12, dtype=bool)
        expected[np.argsort(np.asarray(x), kind="stable")[:count]] = True
        np.testing.assert_array_equal(smallest_of_them(x, jnp.int32(count)), expected)
