"""Noise on the actions of an environment: the paper's Noisy tasks."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from m2ac.settings import ConfigError

STREAM = 0x6E6F6973
"""Sets the noise apart from every other generator that is seeded with the same number."""


class NoisyAction(gym.ActionWrapper[Any, NDArray[Any], NDArray[Any]], gym.utils.RecordConstructorArgs):
    """a' = a + N(0, sigma²) in the environment's action units; whoever acts sees only a.

    The sum is not clipped here, whatever clipping the environment does itself applies. `reset(seed=...)` starts the
    noise afresh, a reset without a seed lets it go on.
    """

    def __init__(self, env: gym.Env[Any, NDArray[Any]], sigma: float) -> None:
        if not (math.isfinite(sigma) and sigma >= 0):
            raise ConfigError(f"sigma must be a finite number, at least 0, got {sigma!r}; use 0 for no noise")
        gym.utils.RecordConstructorArgs.__init__(self, sigma=float(sigma))
        super().__init__(env)
        self.sigma = float(sigma)
        self._rng = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and, where a seed is given, the noise."""
        result = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._rng = np.random.default_rng([seed, STREAM])
        return result

    def action(self, action: NDArray[Any]) -> NDArray[Any]:
        """What the environment receives in place of `action`."""
        noise = self._rng.normal(0.0, self.sigma, size=np.shape(action))
        noisy: NDArray[Any] = (np.asarray(action) + noise).astype(self.action_space.dtype)
        return noisy
