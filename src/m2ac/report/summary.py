"""What the runs of a variant came to, and how likely one variant is to beat another."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from m2ac.report.charts import Variant, by_variant
from m2ac.report.records import Record
from m2ac.report.series import Evaluation, evaluations, seconds
from m2ac.report.statistics import (
    Interval,
    bootstrap_interval,
    finite,
    interquartile_mean,
    probability_of_improvement,
    probability_of_improvement_interval,
    standard_deviation,
)


class Scores(NamedTuple):
    """The last evaluation of each run that counts: of the finished ones, or of all where none is finished."""

    values: list[float]
    steps: tuple[int, int] | None  # the lowest and the highest at which they were found
    unfinished: bool


class Summary(NamedTuple):
    """A row of the overview. What is not known is None."""

    variant: Variant
    runs: int
    seeds: int
    """How many different ones the runs have; one that is repeated is no further evidence."""
    unfinished: int
    diverged: int
    """Runs whose last return is not a number; they are left out of what follows."""
    scores: Scores
    reached: tuple[int, int]
    """Steps of the last evaluation or cycle: of the run that has come least far, and of the one that came furthest."""
    mean: float | None
    deviation: float | None
    iqm: float | None
    interval: Interval | None
    best: Evaluation | None
    seconds: float | None
    """Of a run, in the mean over the finished ones where there are any."""


class Improvement(NamedTuple):
    """How likely a run of one variant is to be better than one of another of the same task."""

    better: Variant
    worse: Variant
    probability: float
    interval: Interval | None


def summarise(records: Sequence[Record]) -> list[Summary]:
    """A row for every variant."""
    return [_summary(variant, runs) for variant, runs in by_variant(records).items()]


def _summary(variant: Variant, runs: Sequence[Record]) -> Summary:
    scores = scores_of(runs)
    known, diverged = finite(scores.values)
    some, several = known.size > 0, known.size > 1
    done = [run for run in runs if run.state == "finished"]
    times = [time for time in map(seconds, done or runs) if math.isfinite(time)]
    of_all = [each for run in runs for each in evaluations(run) if math.isfinite(each.score)]
    reached = [_reached(run) for run in runs]
    return Summary(
        variant=variant,
        runs=len(runs),
        seeds=len({run.seed for run in runs}),
        unfinished=sum(run.state != "finished" for run in runs),
        diverged=diverged,
        scores=scores,
        reached=(min(reached), max(reached)),
        mean=float(known.mean()) if some else None,
        deviation=float(standard_deviation(known)) if several else None,
        iqm=float(interquartile_mean(known)) if some else None,
        interval=bootstrap_interval(known, interquartile_mean) if several else None,
        best=max(of_all, key=lambda each: each.score, default=None),
        seconds=float(np.mean(times)) if times else None,
    )


def scores_of(runs: Sequence[Record]) -> Scores:
    """The scores by which a variant is judged: a run that is still learning is no measure of those that are done."""
    done = [run for run in runs if run.state == "finished"]
    last = [found[-1] for run in done or runs if (found := evaluations(run))]
    steps = [each.step for each in last]
    return Scores([each.score for each in last], (min(steps), max(steps)) if steps else None, unfinished=not done)


def _reached(run: Record) -> int:
    steps = [row.get("step") for rows in (run.metrics, run.evals) for row in rows[-1:]]
    return max((step for step in steps if isinstance(step, int)), default=0)


def improvements(records: Sequence[Record]) -> list[Improvement]:
    """Every pair of variants of a task with at least two finished runs each, the one that wins more often first."""
    finished = [record for record in records if record.state == "finished"]
    groups = {variant: scores_of(runs).values for variant, runs in by_variant(finished).items()}
    found = []
    for one, other in itertools.combinations(groups, 2):
        x, y = ([-math.inf if math.isnan(score) else score for score in groups[each]] for each in (one, other))
        if one.task != other.task or min(len(x), len(y)) < 2:
            continue
        if probability_of_improvement({"": x}, {"": y}) < 0.5:
            one, other, x, y = other, one, y, x
        probability = probability_of_improvement({"": x}, {"": y})
        found.append(Improvement(one, other, probability, probability_of_improvement_interval({"": x}, {"": y})))
    return found


def best_of_tasks(records: Sequence[Record]) -> list[Record]:
    """The finished run of each task whose last evaluation was the best; a task without one has none."""
    best: dict[str, tuple[float, Record]] = {}
    for record in records:
        found = evaluations(record)
        if record.state == "finished" and found and math.isfinite(found[-1].score):
            before = best.get(record.env)
            if before is None or found[-1].score > before[0]:
                best[record.env] = found[-1].score, record
    return [record for _, record in best.values()]
