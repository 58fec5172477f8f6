"""What a score is worth as a mask: the error of what it keeps, between that of an oracle and that of chance."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from m2ac.trust.resampling import Interval, interval_of

RATES = np.arange(1, 21) / 20
"""Shares kept, 0.05 to 1."""


class Reliability(NamedTuple):
    """The mean error of the rows kept at every rate of `RATES`."""

    kept: Float[ndarray, "R"]  # the rows with the lowest scores
    oracle: Float[ndarray, "R"]  # the rows with the lowest errors: no ranking does better
    everyone: float  # all rows, which is what a random ranking keeps at any rate
    share: float  # of the gain that the oracle has over chance, how much the score has: 1 the oracle, 0 chance
    interval: Interval | None  # of the share


def reliability(score: Float[ndarray, "N"], error: Float[ndarray, "N"], episode: Int[ndarray, "N"]) -> Reliability:
    """How well the score masks; rows whose error is no number are left out."""
    known = np.isfinite(error)
    score, error, episode = score[known], error[known], episode[known]
    by_score, by_error = places(score), places(error)
    kept, oracle = kept_error(by_score, error), kept_error(by_error, error)
    return Reliability(
        kept,
        oracle,
        everyone=float(kept[-1]),
        share=share_of_oracle(kept, oracle),
        interval=interval_of(
            lambda w: share_of_oracle(kept_error(by_score, error, w), kept_error(by_error, error, w)), episode
        ),
    )


def places(score: Float[ndarray, "N"]) -> Int[ndarray, "N"]:
    """The place of every row in the order of the scores; equals share one, and what is no number is last."""
    return np.unique(np.where(np.isnan(score), np.inf, score), return_inverse=True)[1]


def kept_error(
    place: Int[ndarray, "N"], error: Float[ndarray, "N"], weights: Float[ndarray, "N"] | None = None
) -> Float[ndarray, "R"]:
    """The mean error of that share of the rows which comes first, for every rate.

    Of rows in one place any may be kept: the mean over all choices counts.
    """
    if len(place) == 0:
        return np.full(len(RATES), np.nan)
    weights = np.ones(len(place)) if weights is None else weights
    rows = np.concatenate([[0.0], np.cumsum(np.bincount(place, weights))])
    sums = np.concatenate([[0.0], np.cumsum(np.bincount(place, weights * error))])
    wanted = RATES * rows[-1]
    return np.interp(wanted, rows, sums) / wanted


def share_of_oracle(kept: Float[ndarray, "R"], oracle: Float[ndarray, "R"]) -> float:
    """The area between chance and the score over that between chance and the oracle."""
    gain, most = np.mean(kept[-1] - kept), np.mean(oracle[-1] - oracle)
    return float(gain / most) if most > 1e-12 * abs(oracle[-1]) else float("nan")
