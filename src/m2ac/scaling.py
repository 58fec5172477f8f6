"""Shifts and scales observations whose mean or spread is far from 1: networks learn badly from them as they are.

Only those are touched: a temperature of 300 K, a pressure of 1e5 Pa, a displacement of 1e-5 m. What is usual keeps
every bit. The numbers are taken once, from the random steps that a training begins with, and are a part of its state.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

SMALLEST, LARGEST = 0.05, 20.0
"""The range of spreads that are left alone, and the largest mean."""

CONSTANT = 1e-6
"""A spread below this share of the mean is a rounding error of float32."""

SMALLEST_UNIT = 1e-8
"""A spread below this is a sensor at rest, whose noise must not become the unit of what it measures later."""


class Scaling(NamedTuple):
    """What networks see is (observation − shift) · scale."""

    shift: Float[ndarray, "D"]
    scale: Float[ndarray, "D"]
    settled: np.bool_  # once it is, it stays

    @property
    def idle(self) -> bool:
        """Whether nothing is changed."""
        return not self.shift.any() and bool(np.all(self.scale == 1.0))

    def apply(self, obs: Float[ndarray, "*B D"]) -> Float[ndarray, "*B D"]:
        """Observations as networks see them; in float64 on the way, since a large shift may leave little."""
        if self.idle:
            return obs
        return ((obs.astype(np.float64) - self.shift) * self.scale).astype(np.float32)

    def undo(self, seen: Float[ndarray, "*B D"]) -> Float[ndarray, "*B D"]:
        """The inverse of `apply`; of NumPy's arrays or JAX's."""
        return seen / self.scale.astype(np.float32) + self.shift.astype(np.float32)


def no_scaling(obs_dim: int, *, settled: bool = False) -> Scaling:
    """Observations as they are."""
    return Scaling(np.zeros(obs_dim), np.ones(obs_dim), np.bool_(settled))


def scaling_of(observations: Float[ndarray, "N D"]) -> Scaling:
    """What each number of these observations is shifted and scaled by."""
    numbers = observations.astype(np.float64)
    mean, spread = numbers.mean(axis=0), numbers.std(axis=0)
    varies = spread > np.maximum(CONSTANT * np.abs(mean), SMALLEST_UNIT)
    centred = np.abs(mean) <= LARGEST
    usual = centred & ((spread >= SMALLEST) & (spread <= LARGEST) | ~varies)
    shift = np.where(usual, 0.0, mean)
    scale = np.where(usual | ~varies, 1.0, 1.0 / np.where(varies, spread, 1.0))
    return Scaling(shift, scale, np.bool_(True))


def usual_size(rewards: Float[ndarray, "N"]) -> float | None:
    """How large rewards are, where that is more than networks learn well from; they are never scaled."""
    numbers = rewards.astype(np.float64)
    size = max(abs(float(numbers.mean())), float(numbers.std()))
    return size if size > LARGEST else None
