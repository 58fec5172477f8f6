"""Whether the model knows how sure it may be: of the next state, of the reward, of the end."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from m2ac.trust.resampling import Interval, interval, resampled

LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
"""Shares of what happens that a predictive interval claims to hold."""

BOUNDS = np.array([NormalDist().inv_cdf(0.5 + level / 2) for level in LEVELS])
"""Standard deviations to either side within which that share of a Gaussian lies."""


class Calibration(NamedTuple):
    """The share of what happened that lies inside of the drawn member's intervals."""

    inside: Float[ndarray, "L D1"]  # reward first
    obs: Float[ndarray, "L"]  # mean over the observation
    between: list[Interval] | None  # of `obs`, by level
    bias: Float[ndarray, "D1"]  # mean of inside − level: below 0 too sure, above 0 too careful


def calibration(deviations: Float[ndarray, "N D1"], episode: Int[ndarray, "N"]) -> Calibration:
    """From the deviations of what happened, in predicted standard deviations; no number is outside of all intervals."""
    hits = [np.abs(deviations) <= bound for bound in BOUNDS]
    inside = np.stack([hit.mean(axis=0) for hit in hits])
    of_row = np.stack([hit[:, 1:].mean(axis=1) for hit in hits])
    drawn = np.array([of_row @ weights / weights.sum() for weights in resampled(episode)])
    known = [interval(list(each)) for each in drawn.T] if len(drawn) else []
    return Calibration(
        inside=inside,
        obs=inside[:, 1:].mean(axis=1),
        between=[each for each in known if each is not None] or None,
        bias=np.mean(inside - LEVELS[:, None], axis=0),
    )


class RewardQuality(NamedTuple):
    """The learned reward beside the real one."""

    absolute: float  # mean of |predicted − real|
    in_spreads: float  # the same over the standard deviation of the real rewards
    bias: float  # mean of predicted − real: above 0 the model promises too much
    bias_between: Interval | None


def reward_quality(error: Float[ndarray, "N"], spread: float, episode: Int[ndarray, "N"]) -> RewardQuality:
    """From predicted minus real."""
    absolute = float(np.mean(np.abs(error)))
    drawn = [float(error @ weights / weights.sum()) for weights in resampled(episode)]
    return RewardQuality(absolute, absolute / spread, float(np.mean(error)), interval(drawn))


class TerminationQuality(NamedTuple):
    """The learned end of episodes beside the real one; a probability above ½ is a prediction of the end."""

    real: int  # ends that happened
    expected: float  # sum of the probabilities: so many ends a rollout draws
    predicted: int
    hits: int  # both
    precision: float  # of the predicted ends, the share that happened
    recall: float  # of those that happened, the share that was predicted
    brier: float  # mean squared error of the probability
    brier_of_share: float  # the same of one who always says how often the end comes


def termination_quality(probability: Float[ndarray, "N"], real: Bool[ndarray, "N"]) -> TerminationQuality:
    """Ratios without anything to divide are no number."""
    predicted = probability > 0.5
    hits = int(np.sum(predicted & real))
    return TerminationQuality(
        real=int(real.sum()),
        expected=float(probability.sum()),
        predicted=int(predicted.sum()),
        hits=hits,
        precision=hits / int(predicted.sum()) if predicted.any() else float("nan"),
        recall=hits / int(real.sum()) if real.any() else float("nan"),
        brier=float(np.mean(np.square(probability - real))),
        brier_of_share=float(np.mean(real) * (1 - np.mean(real))),
    )
