"""Numbers of runs as lines over steps: what was measured, left out where it is not a number, averaged over seeds."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from m2ac.report.records import Record

LARGEST = 1e100
"""What is larger was never measured, and its square is no number any more."""

Point = tuple[float, float]
Line = list[Point]


class Evaluation(NamedTuple):
    """What a policy was found to reach."""

    step: int
    score: float  # mean over episodes; not a number where one of them is not


class Average(NamedTuple):
    """Over the seeds that got as far."""

    steps: NDArray[np.float64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]  # of the population


def number(value: Any) -> float:
    """The value as a finite number, NaN where it is none."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
    return float(value) if fits else math.nan


def evaluations(record: Record) -> list[Evaluation]:
    """The mean return of every evaluation, in the order of steps."""
    by_step: defaultdict[int, list[float]] = defaultdict(list)
    for row in record.evals:
        if math.isfinite(number(row.get("step"))):
            by_step[int(row["step"])].append(number(row.get("return")))
    return [Evaluation(step, float(np.mean(values))) for step, values in sorted(by_step.items())]


def seconds(record: Record) -> float:
    """How long the run has taken, NaN where that is not known."""
    return max(filter(math.isfinite, (number(row.get("seconds")) for row in record.metrics)), default=math.nan)


def returns(record: Record) -> Line:
    """The evaluations as a line."""
    return [(float(step), score) for step, score in evaluations(record) if math.isfinite(score)]


def measured(record: Record, name: str) -> Line:
    """A metric over steps."""
    found = ((number(row.get("step")), number(row.get(name))) for row in record.metrics)
    return sorted(point for point in found if all(map(math.isfinite, point)))


def last_list(record: Record, name: str) -> Line:
    """The newest of a metric that is a list, as a line over its places from 1."""
    lists: Iterable[Any] = (row[name] for row in reversed(record.metrics) if isinstance(row.get(name), list | tuple))
    values = [(float(place), number(value)) for place, value in enumerate(next(iter(lists), ()), 1)]
    return [point for point in values if math.isfinite(point[1])]


def average(lines: Sequence[Line]) -> Average:
    """The mean of lines where they have points in common; one that has ended is no longer counted."""
    at: list[Mapping[float, float]] = [dict(line) for line in lines if line]
    ends = [max(line) for line in at]
    rows = []
    for step in sorted({step for line in at for step in line}):
        there = [line.get(step) for line, end in zip(at, ends, strict=True) if end >= step]
        values = [value for value in there if value is not None]
        if len(values) == len(there):
            rows.append((step, float(np.mean(values)), float(np.std(values))))
    return Average(*(np.array(column) for column in zip(*rows, strict=True))) if rows else Average(*np.zeros((3, 0)))
