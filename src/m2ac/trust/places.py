"""Where the model is wrong: the worst transitions, and what its error goes with."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from m2ac.algorithms.diagnostics import ranks
from m2ac.trust.measure import Measured

BINS = 10


class Place(NamedTuple):
    """A transition."""

    episode: int
    step: int
    error: float  # in spreads
    relative: float  # in predicted standard deviations
    score: float
    rank: float  # share of all rows whose score is lower: near 1 the score saw it coming
    dimension: str
    dominates: float  # the share of the squared error that is this dimension's


class Relation(NamedTuple):
    """The error over some quantity, in bins of equally many rows."""

    of: str
    explains: float  # the share of the variance of the error's ranks that lies between the bins
    centre: Float[ndarray, "bins"]  # median of the quantity
    median: Float[ndarray, "bins"]  # of the error
    high: Float[ndarray, "bins"]  # its 90 % quantile


def name_of(dimension: int) -> str:
    """Of an entry of the model's answer: the reward, or a number of the observation."""
    return "reward" if dimension == 0 else f"obs[{dimension - 1}]"


def worst(measured: Measured, score: str, count: int = 10) -> list[Place]:
    """The transitions with the largest errors; what is not finite comes first."""
    error = np.where(np.isfinite(measured.error), measured.error, np.inf)
    scores = measured.scores[score]
    squares = np.square(measured.off)
    found = []
    for row in np.argsort(-error, kind="stable")[:count]:
        dimension = int(np.argmax(np.where(np.isfinite(squares[row]), squares[row], np.inf)))
        found.append(
            Place(
                episode=int(measured.fresh.episode[row]),
                step=int(measured.fresh.step[row]),
                error=float(measured.error[row]),
                relative=float(measured.relative[row]),
                score=float(scores[row]),
                rank=float(np.mean(scores < scores[row])),
                dimension=name_of(dimension),
                dominates=float(squares[row, dimension] / np.sum(squares[row])),
            )
        )
    return found


def shares_of_error(measured: Measured) -> dict[str, float]:
    """How much of the squared error of all rows is each dimension's, the largest first."""
    finite = measured.off[np.isfinite(measured.off).all(axis=1)]
    total = np.square(finite).sum(axis=0)
    shares = total / total.sum() if total.sum() > 0 else np.zeros_like(total)
    return {name_of(int(d)): float(shares[d]) for d in np.argsort(-shares, kind="stable")}


def relations(measured: Measured, count: int = 3) -> list[Relation]:
    """The error over those of the observation's numbers, or the time in the episode, that it goes with most."""
    finite = np.isfinite(measured.error)
    error = measured.error[finite]
    quantities = {f"obs[{d}]": x for d, x in enumerate(measured.fresh.observed[finite].T.astype(np.float64))}
    quantities["step of the episode"] = measured.fresh.step[finite].astype(np.float64)
    found = [relation(name, x, error) for name, x in quantities.items() if np.ptp(x) > 0] if len(error) else []
    return sorted(found, key=lambda each: -each.explains)[:count]


def relation(name: str, x: Float[ndarray, "N"], error: Float[ndarray, "N"]) -> Relation:
    """The error over x."""
    inner = np.unique(np.quantile(x, np.arange(1, BINS) / BINS))
    bins = [np.flatnonzero(bin_of == b) for bin_of in (np.searchsorted(inner, x),) for b in np.unique(bin_of)]
    place = ranks(error)
    between = sum(len(b) * (place[b].mean() - place.mean()) ** 2 for b in bins)
    total = float(np.sum((place - place.mean()) ** 2))
    return Relation(
        name,
        float(between / total) if total else 0.0,
        np.array([np.median(x[b]) for b in bins]),
        np.array([np.median(error[b]) for b in bins]),
        np.array([np.quantile(error[b], 0.9) for b in bins]),
    )
