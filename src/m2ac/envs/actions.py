"""The map between the learner's actions in [-1, 1] and the environment's units."""

from dataclasses import dataclass
from typing import Any, cast

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from m2ac.settings import ConfigError

TOLERANCE = 1e-4
"""How far beyond its bound, in shares of the range, a reported action counts as on it: it may have been rounded."""


@dataclass(frozen=True, eq=False)
class ActionScale:
    """An affine map per component: -1 is `low`, 0 the midpoint and 1 `high`, each exactly."""

    low: NDArray[np.floating[Any]]
    high: NDArray[np.floating[Any]]

    def __post_init__(self) -> None:
        low, high = self.low, self.high
        if not (np.issubdtype(low.dtype, np.floating) and low.dtype == high.dtype and low.shape == high.shape):
            raise ConfigError(
                f"low and high must be floating-point arrays of one shape and dtype, "
                f"got {low.dtype}{low.shape} and {high.dtype}{high.shape}; convert them first"
            )
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise ConfigError(f"low must be below high and both finite, got {low} and {high}; declare other bounds")

    @classmethod
    def of(cls, space: gym.spaces.Box) -> "ActionScale":
        """The scale of a bounded action space."""
        # Copies: an environment may go on writing to the arrays of its space.
        return cls(low=cast(Any, space.low.copy()), high=cast(Any, space.high.copy()))

    @property
    def _middle(self) -> NDArray[np.float64]:
        return self.low.astype(np.float64) / 2 + self.high.astype(np.float64) / 2

    @property
    def _half(self) -> NDArray[np.float64]:
        return self.high.astype(np.float64) / 2 - self.low.astype(np.float64) / 2

    def to_env(self, action: ArrayLike) -> NDArray[np.floating[Any]]:
        """The action in the environment's units and dtype, never outside its bounds."""
        unit = np.asarray(action, dtype=np.float64)
        scaled = (self._middle + self._half * unit).astype(self.low.dtype)
        # middle + half can miss the bound by one rounding.
        scaled = np.where(unit >= 1, self.high, np.where(unit <= -1, self.low, scaled))
        return np.clip(scaled, self.low, self.high)

    def outside(self, action: NDArray[Any]) -> NDArray[np.bool_]:
        """Where an action is clearly beyond a bound: it was reported in other units, or before it was clipped."""
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        return np.maximum(low - action, action - high) > TOLERANCE * (high - low)

    def from_env(self, action: ArrayLike) -> NDArray[np.float32]:
        """The inverse of `to_env`, as float32 in [-1, 1]; what lies outside the bounds counts as on them."""
        given = np.asarray(action, dtype=np.float64)
        unit = np.clip((given - self._middle) / self._half, -1, 1)
        # The midpoint rounded to the environment's dtype is what to_env(0) gives.
        return np.where(given == self._middle.astype(self.low.dtype), 0, unit).astype(np.float32)
