"""What the scores of a few runs say, by hand, beside SciPy, and for all inputs."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from m2ac.report.statistics import (
    Interval,
    bootstrap_interval,
    finite,
    interquartile_mean,
    mean,
    probability_of_improvement,
    probability_of_improvement_interval,
    standard_deviation,
    stratified_bootstrap_interval,
)

SCORES = [3.0, 9.0, 1.0, 5.0, 2.0, 100.0, 4.0, -50.0]  # in order: -50 1 2 3 4 5 9 100
STATISTICS = [mean, standard_deviation, interquartile_mean]
RUNS = arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e4, 1e4, width=32))
HALVES = st.lists(st.integers(-8, 8).map(lambda n: n / 2), min_size=1, max_size=8)  # few values: many are equal


# By hand


def test_mean_and_standard_deviation_are_of_the_population() -> None:
    assert mean([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == 5
    assert standard_deviation([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == 2  # √(32/8); of a sample √(32/7) = 2.14


def test_the_interquartile_mean_of_eight_runs_is_that_of_the_middle_four() -> None:
    assert interquartile_mean(SCORES) == (2 + 3 + 4 + 5) / 4


def test_the_interquartile_mean_of_five_runs_cuts_one_whole_run_at_either_end() -> None:
    assert interquartile_mean([10.0, 0.0, 1.0, 2.0, 99.0]) == (1 + 2 + 10) / 3


def test_the_interquartile_mean_of_up_to_three_runs_is_the_mean() -> None:
    assert interquartile_mean([1.0, 2.0, 6.0]) == 3


def test_statistics_reduce_the_last_axis() -> None:
    rows = np.array([[1.0, 2.0, 3.0, 6.0], [4.0, 4.0, 4.0, 4.0]])
    np.testing.assert_array_equal(mean(rows), [3, 4])
    np.testing.assert_array_equal(interquartile_mean(rows), [2.5, 4])
    np.testing.assert_allclose(standard_deviation(rows), [math.sqrt(3.5), 0])


def test_the_bootstrap_of_two_runs_spans_both() -> None:
    # Each resample is 0, ½ or 1 with probabilities ¼, ½ and ¼; 5 % and 95 % lie in the outer ones.
    assert bootstrap_interval([0.0, 1.0], mean) == Interval(0, 1)
    assert bootstrap_interval([0.0, 1.0], mean, confidence=0.4) == Interval(0.5, 0.5)


def test_the_stratified_bootstrap_keeps_the_number_of_runs_of_each_task() -> None:
    # Without strata the mean of all four could be anything between 0 and 11.
    interval = stratified_bootstrap_interval({"a": [0.0, 1.0], "b": [10.0, 11.0]}, mean, confidence=0.999)
    assert interval == Interval(5, 6)


def test_the_probability_of_improvement_counts_the_pairs_that_are_won_and_half_of_those_that_are_equal() -> None:
    # Of the pairs of (1, 3) and (0, 1, 2): won 1>0, 3>0, 3>1, 3>2; equal 1=1.
    assert probability_of_improvement({"a": [1.0, 3.0]}, {"a": [0.0, 1.0, 2.0]}) == 4.5 / 6


def test_the_probability_of_improvement_is_the_mean_over_tasks_however_many_runs_they_have() -> None:
    x = {"a": [1.0, 3.0], "b": [0.0]}
    y = {"b": [5.0, 6.0, 7.0, 8.0, 9.0], "a": [0.0, 1.0, 2.0]}
    assert probability_of_improvement(x, y) == (4.5 / 6 + 0) / 2


def test_a_diverged_run_is_the_worst_where_only_the_order_counts() -> None:
    x, y = {"a": [-math.inf, 2.0]}, {"a": [1.0, -math.inf]}
    assert probability_of_improvement(x, y) == (0.5 + 0 + 1 + 1) / 4


def test_where_every_run_is_better_both_bounds_are_one() -> None:
    assert probability_of_improvement_interval({"a": [3.0, 4.0]}, {"a": [1.0, 2.0]}) == Interval(1, 1)


def test_diverged_runs_are_left_out_and_counted() -> None:
    kept, left_out = finite([1.0, math.nan, 2.0, -math.inf, math.inf])
    assert (kept.tolist(), left_out) == ([1, 2], 3)
    assert finite([]).left_out == 0


# Edges


def test_one_run_has_no_interval() -> None:
    assert bootstrap_interval([7.0], mean) is None
    assert stratified_bootstrap_interval({"a": [1.0, 2.0], "b": [7.0]}, mean) is None
    assert probability_of_improvement_interval({"a": [1.0, 2.0]}, {"a": [1.0]}) is None
    assert (mean([7.0]), standard_deviation([7.0]), interquartile_mean([7.0])) == (7, 0, 7)


def test_equal_runs_have_an_interval_of_no_width() -> None:
    assert bootstrap_interval([7.0, 7.0, 7.0], interquartile_mean) == Interval(7, 7)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        *((lambda f=f: f([]), ["at least one run", "shape (0,)"]) for f in STATISTICS),
        *((lambda f=f: f([1.0, math.nan]), ["finite", "got nan", "finite()"]) for f in STATISTICS),
        (lambda: mean(3.0), ["at least one run", "shape ()"]),
        (lambda: bootstrap_interval([], mean), ["at least one run", "leave the group out"]),
        (lambda: bootstrap_interval([1.0, -math.inf], mean), ["finite", "got -inf"]),
        (lambda: bootstrap_interval([[1.0], [2.0]], mean), ["one number per run", "shape (2, 1)"]),
        (lambda: bootstrap_interval([1.0, 2.0], mean, confidence=90), ["confidence", "(0, 1)", "got 90"]),
        (lambda: bootstrap_interval([1.0, 2.0], mean, resamples=0), ["resamples", "got 0"]),
        (lambda: stratified_bootstrap_interval({}, mean), ["at least one task"]),
        (lambda: stratified_bootstrap_interval({"Ant": []}, mean), ["Ant: ", "at least one run"]),
        (lambda: probability_of_improvement({}, {}), ["at least one task"]),
        (lambda: probability_of_improvement({"Ant": [1.0]}, {"Hopper": [1.0]}), ["'Ant'", "both have"]),
        (lambda: probability_of_improvement({"Ant": [math.nan]}, {"Ant": [1.0]}), ["Ant: ", "got nan"]),
    ],
)
def test_what_has_no_answer_is_refused(call: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        call()
    assert [word for word in words if word not in str(error.value)] == []


# Seeds and time


def test_the_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    x, y = {"a": SCORES, "b": SCORES[:5]}, {"a": SCORES[2:], "b": SCORES[3:]}
    for interval in (
        lambda seed: bootstrap_interval(SCORES, mean, seed=seed),
        lambda seed: stratified_bootstrap_interval(x, mean, seed=seed),
        lambda seed: probability_of_improvement_interval(x, y, seed=seed, resamples=50),
    ):
        assert interval(0) == interval(0) != interval(1)


def test_two_thousand_resamples_of_ten_runs_take_milliseconds() -> None:
    started = time.process_time()
    for seed in range(10):
        bootstrap_interval(np.arange(10.0), interquartile_mean, seed=seed)
    assert time.process_time() - started < 0.5  # all ten


# Beside SciPy


@pytest.mark.parametrize("runs", range(1, 14))
def test_the_interquartile_mean_is_scipys_trimmed_mean(runs: int) -> None:
    scores = np.random.default_rng(runs).normal(size=(3, runs))
    np.testing.assert_allclose(interquartile_mean(scores), scipy.stats.trim_mean(scores, 0.25, axis=-1), rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_probability_of_improvement_is_the_mann_whitney_u_of_scipy_over_the_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 6, 7), rng.integers(0, 6, 4)
    u = scipy.stats.mannwhitneyu(x, y).statistic
    assert probability_of_improvement({"a": x}, {"a": y}) == pytest.approx(u / 28, rel=1e-12)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_the_bootstrap_interval_is_near_scipys(statistic: Callable[..., Any]) -> None:
    scores = np.random.default_rng(0).normal(100, 10, size=12)
    ours = bootstrap_interval(scores, statistic, confidence=0.9, resamples=20_000)
    theirs = scipy.stats.bootstrap(
        (scores,),
        lambda sample, axis: statistic(sample),
        confidence_level=0.9,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    # The bounds are known to about 0.03 standard errors of the statistic with so many resamples, here 2 to 3.
    np.testing.assert_allclose(ours, theirs, atol=0.25)


def test_the_interval_of_the_probability_of_improvement_is_near_that_of_resampled_scores() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.5, 1, size=9), rng.normal(0, 1, size=7)
    resampled = [
        scipy.stats.mannwhitneyu(rng.choice(x, 9), rng.choice(y, 7), method="asymptotic").statistic / 63
        for _ in range(2000)
    ]
    ours = probability_of_improvement_interval({"a": x}, {"a": y}, resamples=20_000)
    np.testing.assert_allclose(ours, np.quantile(resampled, [0.05, 0.95]), atol=0.02)


# For all inputs


@settings(max_examples=200, deadline=None)
@given(RUNS)
def test_mean_and_interquartile_mean_lie_between_the_worst_and_the_best(scores: np.ndarray) -> None:
    slack = 1e-9 * (1 + np.abs(scores).max())
    for statistic in (mean, interquartile_mean):
        assert scores.min() - slack <= statistic(scores) <= scores.max() + slack


@settings(max_examples=200, deadline=None)
@given(RUNS, st.floats(-1e4, 1e4), st.floats(1e-3, 1e3))
def test_statistics_and_intervals_move_and_stretch_with_the_scores(
    scores: np.ndarray, shift: float, scale: float
) -> None:
    moved = scores * scale + shift
    exact = {"rtol": 1e-9, "atol": 1e-9 * (1 + np.abs(moved).max() + abs(shift))}
    np.testing.assert_allclose(mean(moved), mean(scores) * scale + shift, **exact)
    np.testing.assert_allclose(interquartile_mean(moved), interquartile_mean(scores) * scale + shift, **exact)
    np.testing.assert_allclose(standard_deviation(moved), standard_deviation(scores) * scale, **exact)
    before, after = (bootstrap_interval(each, interquartile_mean, resamples=50) for each in (scores, moved))
    if before is None or after is None:
        assert before is after
    else:
        np.testing.assert_allclose(after, np.array(before) * scale + shift, **exact)


@settings(max_examples=200, deadline=None)
@given(RUNS, st.randoms())
def test_the_order_of_runs_does_not_matter(scores: np.ndarray, random: Any) -> None:
    shuffled = scores.tolist()
    random.shuffle(shuffled)
    for statistic in STATISTICS:
        np.testing.assert_allclose(statistic(shuffled), statistic(scores), rtol=1e-9, atol=1e-7)


@settings(max_examples=100, deadline=None)
@given(RUNS)
def test_a_wider_confidence_gives_a_wider_interval_within_the_scores(scores: np.ndarray) -> None:
    if len(scores) == 1:
        return
    slack = 1e-9 * (1 + np.abs(scores).max())
    narrow, wide = (bootstrap_interval(scores, mean, confidence=c, resamples=50) for c in (0.5, 0.95))
    assert scores.min() - slack <= wide.low <= narrow.low <= narrow.high <= wide.high <= scores.max() + slack


@settings(max_examples=200, deadline=None)
@given(HALVES, HALVES)
def test_the_probabilities_of_either_being_better_add_up_to_one(x: list[float], y: list[float]) -> None:
    there = probability_of_improvement({"a": x, "b": y}, {"a": y, "b": y})
    back = probability_of_improvement({"a": y, "b": y}, {"a": x, "b": y})
    assert there + back == pytest.approx(1, abs=1e-12)
    assert probability_of_improvement({"a": x}, {"a": x}) == 0.5


# Coverage


@pytest.mark.parametrize("runs", [5, 10, 40])
def test_the_interval_of_the_mean_holds_the_true_one_as_often_as_theory_says(runs: int) -> None:
    """It is about mean ± 1.645 s/√n with the population's s, where Student's t is due."""
    rng = np.random.default_rng(0)
    held = []
    for seed in range(2000):
        interval = bootstrap_interval(rng.normal(size=runs), mean, resamples=400, seed=seed)
        held.append(interval.low <= 0 <= interval.high)
    student = scipy.stats.t(runs - 1)
    expected = 1 - 2 * student.sf(1.645 * math.sqrt((runs - 1) / runs))  # 0.785, 0.847 and 0.888
    assert np.mean(held) == pytest.approx(expected, abs=0.03)  # the share of 2000 has a standard error of 0.009
