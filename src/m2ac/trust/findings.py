"""Everything that is said of a model's trust, from what was measured."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from m2ac.algorithms.diagnostics import rank_correlation
from m2ac.trust import places
from m2ac.trust.calibration import (
    Calibration,
    RewardQuality,
    TerminationQuality,
    calibration,
    reward_quality,
    termination_quality,
)
from m2ac.trust.measure import Measured
from m2ac.trust.ranking import Reliability, reliability
from m2ac.trust.suggest import Rule, Suggestion, suggest


class Played(NamedTuple):
    """A fresh episode."""

    seed: int
    total: float  # sum of rewards
    length: int


class About(NamedTuple):
    """What was examined, and how."""

    run: str
    env: str
    algo: str
    step: int  # of the training, where the checkpoint was written
    horizon: int  # the run's own
    mask: str  # the run's own, in words
    ranks: bool  # whether that keeps the best by rank
    score: str  # by which its mask ranks, or would rank
    sampled: bool  # whether actions were drawn, as in training
    played: tuple[Played, ...]


class Ranks(NamedTuple):
    """Spearman's correlation of a score with the error."""

    relative: float
    absolute: float


class Worth(NamedTuple):
    """A score as a mask, by either error."""

    relative: Reliability
    absolute: Reliability


class Quantiles(NamedTuple):
    """The error by step; no number where there was none."""

    rows: Int[ndarray, "H"]
    median: Float[ndarray, "H"]
    high: Float[ndarray, "H"]  # the 90 % quantile


class Findings(NamedTuple):
    """All of it."""

    about: About
    measured: Measured
    ranks: dict[str, Ranks]  # by score
    worth: dict[str, Worth]
    calibration: Calibration
    reward: RewardQuality
    termination: TerminationQuality | None  # None: known, not learned
    alone: Quantiles  # the model on its own, from every state
    kept: Quantiles  # the same, in rollouts that are masked at every step
    dropped: Quantiles
    worst: list[places.Place]
    shares: dict[str, float]  # of the squared error, by dimension
    relations: list[places.Relation]
    suggestion: Suggestion


def find(measured: Measured, about: About, rule: Rule) -> Findings:
    """Sum up what was measured."""
    episode, masked = measured.fresh.episode, measured.masked
    return Findings(
        about=about,
        measured=measured,
        ranks={
            name: Ranks(rank_correlation(score, measured.relative), rank_correlation(score, measured.error))
            for name, score in measured.scores.items()
        },
        worth={
            name: Worth(reliability(score, measured.relative, episode), reliability(score, measured.error, episode))
            for name, score in measured.scores.items()
        },
        calibration=calibration(measured.deviations, episode),
        reward=reward_quality(measured.reward_error, measured.reward_spread, episode),
        termination=None
        if measured.ending is None
        else termination_quality(measured.ending, np.asarray(measured.fresh.rows.terminated)),
        alone=quantiles(measured.open_loop, ~np.isnan(measured.open_loop)),
        kept=quantiles(masked.error, masked.keep),
        dropped=quantiles(masked.error, masked.alive & ~masked.keep),
        worst=places.worst(measured, about.score),
        shares=places.shares_of_error(measured),
        relations=places.relations(measured),
        suggestion=suggest(measured, about.score, rule),
    )


def quantiles(error: Float[ndarray, "H B"], chosen: Bool[ndarray, "H B"]) -> Quantiles:
    """Of the chosen rows of every step."""
    steps = [each[rows] for each, rows in zip(error, chosen, strict=True)]
    return Quantiles(
        rows=np.array([len(each) for each in steps]),
        median=np.array([np.median(each) if len(each) else np.nan for each in steps]),
        high=np.array([np.quantile(each, 0.9, method="higher") if len(each) else np.nan for each in steps]),
    )
