"""How much the numbers would differ with other episodes: the bootstrap over whole episodes.

Not over transitions: those of one episode depend on each other.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

RESAMPLES = 400
CONFIDENCE = 0.9


class Interval(NamedTuple):
    """Where the middle 90 % of the resamples lie."""

    low: float
    high: float


def resampled(episode: Int[ndarray, "N"], *, seed: int = 0) -> Iterator[Float[ndarray, "N"]]:
    """How often each row counts where as many episodes as there are were drawn with replacement; of one, nothing."""
    names, of = np.unique(episode, return_inverse=True)
    rng = np.random.default_rng(seed)
    for _ in range(RESAMPLES if len(names) > 1 else 0):
        yield rng.multinomial(len(names), np.full(len(names), 1 / len(names)))[of].astype(np.float64)


def interval(values: list[float]) -> Interval | None:
    """Of what a statistic was in the resamples; None where there were none."""
    known = [value for value in values if not np.isnan(value)]
    if not known:
        return None
    # An order statistic, not a mean of two of them: of lengths and rates, only those that can be set are told.
    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(known, tails, method="closest_observation")
    return Interval(float(low), float(high))


def interval_of(statistic: Callable[[Float[ndarray, "N"]], float], episode: Int[ndarray, "N"]) -> Interval | None:
    """Of a statistic of the rows and how often each counts."""
    return interval([statistic(weights) for weights in resampled(episode)])
