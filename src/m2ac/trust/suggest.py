"""A rollout length and a mask rate that the task would bear: a rule of thumb, not a theorem.

The rate is the largest at which dropping still pays. The length is the longest at which the rows that a mask with this
rate keeps are still close to what really happened. Both come with what other episodes would have said.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from m2ac.trust.measure import Masked, Measured, kept_at, starts_of
from m2ac.trust.ranking import RATES, kept_error, places
from m2ac.trust.resampling import Interval, interval, resampled

FEW_EPISODES, FEW_ROWS = 5, 500
"""Below either, the suggestion says that it rests on too little."""

LEAST_KEPT = 20
"""Rows that a median of a rollout step needs."""

MODEST = 0.7
"""A model whose mean error is below so much of what it expects is better than it says."""

SURE = 0.95
"""The share of resamples in which a mask must gain anything at all, or it is not said to."""


class Rule(NamedTuple):
    """What is asked for."""

    threshold: float = 0.5  # spreads of the observation that the median row may be off
    gain: float = 0.1  # the share of the mean error that dropping must take away


class Estimate(NamedTuple):
    """A number, and where 90 % of the resamples of the episodes lie."""

    value: float
    interval: Interval | None


class Suggestion(NamedTuple):
    """What the rule says, and what speaks against relying on it."""

    rule: Rule
    horizon: Estimate  # steps; of the rows that a mask with the suggested rate keeps
    horizon_of_paper: Estimate  # of those that the paper's rates keep: ever fewer
    horizon_of_all: Estimate  # of all rows, as without a mask
    looked: int  # steps looked at: a length that equals it may be longer still
    rate: Estimate  # by the error in units of what the model expects; 1: nothing is gained by dropping
    rate_absolute: Estimate  # by the error in spreads
    doubts: tuple[str, ...]


def suggest(measured: Measured, score: str, rule: Rule) -> Suggestion:
    """The rule on what was measured; `score` is that of the mask."""
    masked, episode = measured.masked, measured.fresh.episode
    rate = _rate(measured.scores[score], measured.relative, episode, rule)
    found = Suggestion(
        rule,
        horizon=_horizon(masked, kept_at(masked, rate.value), rule),
        horizon_of_paper=_horizon(masked, masked.keep, rule),
        horizon_of_all=_horizon(masked, masked.alive, rule),
        looked=len(masked.error),
        rate=rate,
        rate_absolute=_rate(measured.scores[score], measured.error, episode, rule),
        doubts=(),
    )
    return found._replace(doubts=tuple(_doubts(measured, found)))


def medians(masked: Masked, chosen: ndarray, weights: Float[ndarray, "B"] | None = None) -> Float[ndarray, "H"]:
    """The median error of the chosen rows of every step; no number where they are too few."""
    times = np.ones(len(masked.episode), dtype=np.int64) if weights is None else weights.astype(np.int64)
    found = np.full(len(masked.error), np.nan)
    for h, (error, rows) in enumerate(zip(masked.error, chosen, strict=True)):
        if times[rows].sum() >= LEAST_KEPT:
            found[h] = np.median(np.repeat(error[rows], times[rows]))
    return found


def longest_within(curve: Float[ndarray, "H"], threshold: float) -> int:
    """How many steps from the first on stay at or below the threshold."""
    beyond = ~(curve <= threshold)  # no number is beyond
    return int(np.argmax(beyond)) if beyond.any() else len(curve)


def _horizon(masked: Masked, chosen: ndarray, rule: Rule) -> Estimate:
    others = [
        float(longest_within(medians(masked, chosen, weights), rule.threshold)) for weights in resampled(masked.episode)
    ]
    return Estimate(float(longest_within(medians(masked, chosen), rule.threshold)), interval(others))


def largest_that_pays(kept: Float[ndarray, "R"], gain: float) -> float:
    """The largest rate whose kept rows have an error that much below that of all; 1 where there is none."""
    pays = kept <= (1 - gain) * kept[-1]
    return float(RATES[pays].max()) if pays.any() else 1.0


def _rate(score: Float[ndarray, "N"], error: Float[ndarray, "N"], episode: Int[ndarray, "N"], rule: Rule) -> Estimate:
    known = np.isfinite(error)
    place, error = places(score[known]), error[known]
    value = largest_that_pays(kept_error(place, error), rule.gain)
    curves = [kept_error(place, error, weights) for weights in resampled(episode[known])]
    between = interval([largest_that_pays(curve, rule.gain) for curve in curves])
    at = int(np.argmin(np.abs(RATES - value)))
    sure = not curves or np.mean([curve[at] < curve[-1] for curve in curves]) >= SURE
    return Estimate(value if sure else 1.0, between)


def _doubts(measured: Measured, found: Suggestion) -> list[str]:
    """What one should know before relying on it."""
    episodes, rows = len(np.unique(measured.fresh.episode)), len(measured.error)
    said = []
    if episodes < FEW_EPISODES or rows < FEW_ROWS:
        said.append(
            f"too few data: {episodes} episodes with {rows} transitions; give --episodes more, at least {FEW_EPISODES} "
            f"with {FEW_ROWS} transitions in all"
        )
    broken = int(np.sum(~np.isfinite(measured.error)))
    if broken:
        said.append(f"{broken} predictions are not finite numbers; they are left out, which flatters the model")
    followed = len(starts_of(measured.fresh.episode, found.looked, most=rows)) / rows
    if followed < 0.5:
        said.append(
            f"only {100 * followed:.0f} % of the states are followed by {found.looked} real steps, which the rollouts "
            "need; the length knows nothing of those near an end; a shorter --horizon would"
        )
    if found.horizon.value == found.looked:
        said.append(f"the length is all that was looked at; a longer --horizon than {found.looked} may show more")
    elif np.isnan(medians(measured.masked, kept_at(measured.masked, found.rate.value))[int(found.horizon.value)]):
        said.append(
            f"fewer than {LEAST_KEPT} rows are kept at step {found.horizon.value + 1:.0f}; nothing is known beyond"
        )
    elif found.horizon.value == 0:
        said.append("not even one step of the model is within the threshold: this model needs more or better data")
    if found.rate.value == 1 and found.rate.interval is not None and found.rate.interval.low < 1:
        said.append(
            f"whether dropping by this score takes away {100 * found.rule.gain:g} % of the relative error is not sure "
            f"({found.rate.interval.low:g} to {found.rate.interval.high:g}); more --episodes would tell"
        )
    elif found.rate.value == 1:
        said.append(
            f"at no rate does dropping by this score take away {100 * found.rule.gain:g} % of the relative error: it "
            "does not tell where the model is wrong, or the model is as good as it says"
        )
    elif np.mean(measured.relative[np.isfinite(measured.error)]) < MODEST:
        said.append(
            "the model is better than it says of itself, in the mean; there is little that a mask need keep out"
        )
    if abs(found.rate.value - found.rate_absolute.value) > 0.2:
        said.append(
            f"by the absolute error the rate would be {found.rate_absolute.value:g}: chance that the model knows of is "
            f"an error there, and none in the rate above"
        )
    between = found.horizon.interval
    if between is not None and between.high > 2 * max(between.low, 1):
        said.append(f"episodes differ much in the length that they bear, {between.low:.0f} to {between.high:.0f} steps")
    return said
