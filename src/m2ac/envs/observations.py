"""Where observations are said to be, and where they are."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

SLACK = 1e-5
"""How far beyond its bounds an observation may be, relative to them, before it counts as outside: rounding is none."""

LOOKED_AT = 200
"""Observations after which it is told which of their numbers float32 can hardly tell apart."""

TOLD_APART = 20
"""Values that a number must be able to take between its smallest and largest, or it is one of those."""


class Bounds(NamedTuple):
    """What an observation space declares, as it was when the environment came."""

    low: NDArray[Any]
    high: NDArray[Any]
    lowest: NDArray[np.float32]  # with some slack
    highest: NDArray[np.float32]

    @classmethod
    def of(cls, space: gym.spaces.Box) -> "Bounds | None":
        """The bounds of a space that has any."""
        low, high = np.array(space.low), np.array(space.high)
        if not (np.isfinite(low).any() or np.isfinite(high).any()):
            return None
        wide_low, wide_high = low.astype(np.float64), high.astype(np.float64)
        lowest = wide_low - SLACK * np.maximum(1, np.abs(wide_low))
        highest = wide_high + SLACK * np.maximum(1, np.abs(wide_high))
        with np.errstate(over="ignore"):
            return cls(low, high, lowest.astype(np.float32), highest.astype(np.float32))

    def outside(self, obs: NDArray[Any]) -> NDArray[np.intp] | None:
        """The index of the first number that is out of bounds, in an observation or in rows of them."""
        out = (obs < self.lowest) | (obs > self.highest)
        return np.argwhere(out)[0] if out.any() else None

    def notice(self, index: int, obs: NDArray[np.float32], where: str) -> str:
        """That a number is out of bounds, in words."""
        return (
            f"observation[{index}] is {obs[index]:g} in {where}, outside of its declared bounds "
            f"[{self.low[index]:g}, {self.high[index]:g}]; learning goes on with it, "
            f"but declare bounds that hold in the observation space, inf where there are none"
        )


class Extent:
    """The smallest and the largest that each number of an observation was, before it was rounded to float32."""

    def __init__(self, size: int) -> None:
        self.low, self.high, self.seen = np.full(size, np.inf), np.full(size, -np.inf), 0

    def widened(self, obs: Any) -> int:
        """One observation more; how many there were."""
        np.minimum(self.low, obs, out=self.low)
        np.maximum(self.high, obs, out=self.high)
        self.seen += 1
        return self.seen

    def notice(self) -> str | None:
        """What to say if float32 can hardly resolve how some number moves; None if it can."""
        moved, largest = self.high - self.low, np.maximum(np.abs(self.low), np.abs(self.high))
        step = np.spacing(largest.astype(np.float32)).astype(np.float64)
        coarse = (moved < TOLD_APART * step) & (moved > TOLD_APART * np.spacing(largest))  # less is rounding of its own
        if not coarse.any():
            return None
        i = int(coarse.argmax())
        return (
            f"observation[{i}] is about {largest[i]:.3g} and moved by {moved[i]:.2g} in {self.seen} observations, but "
            f"float32, in which it is learned from, tells apart no less than {step[i]:.2g} there; subtract an offset "
            f"in the environment, or change its unit"
        )
