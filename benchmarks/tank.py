"""A heated tank in units that engineers use: nothing about it suits a network, and it can boil over, freeze or run dry.

Imported by `--env benchmarks.tank:Tank-v0`.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

TARGET = 340.0  # K
LEVEL = 1.0  # m
Observation = NDArray[np.float64]


class Tank(gym.Env[Observation, NDArray[np.float64]]):
    """Hold temperature and level of a tank whose inflow of cold water changes, by a heater and an outlet valve.

    Observed are temperature (K), pressure (Pa), level (m) and inflow (m³/s); actions are the heater's power (W) and the
    valve's opening. The episode ends when it boils over, gets cold or runs dry or over.
    """

    observation_space = gym.spaces.Box(0.0, np.inf, (4,), np.float64)
    action_space = gym.spaces.Box(np.array([0.0, 0.05]), np.array([1.5e5, 0.7]), dtype=np.float64)

    def _observe(self) -> Observation:
        pressure = 101_325.0 + 9_810.0 * self.level + 120.0 * (self.temperature - 300.0)
        return np.array([self.temperature, pressure, self.level, self.inflow])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A tank that is too cold and not at its level."""
        super().reset(seed=seed)
        self.temperature = float(self.np_random.uniform(315.0, 332.0))
        self.level = float(self.np_random.uniform(0.7, 1.3))
        self.inflow = 2e-4
        return self._observe(), {}

    def step(self, action: NDArray[np.float64]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Ten seconds."""
        power, valve = (float(each) for each in action)
        seconds, area = 10.0, 0.1  # m²
        outflow = valve * 8e-4 * np.sqrt(max(self.level, 0.0))
        volume = max(self.level * area, 1e-3)
        heating = power / (4.19e6 * volume) + self.inflow / volume * (288.0 - self.temperature)
        self.temperature += seconds * (heating - 2e-5 * (self.temperature - 293.0))
        self.level += seconds * (self.inflow - outflow) / area
        self.inflow = float(np.clip(self.inflow + 2e-5 * self.np_random.standard_normal(), 1e-4, 3e-4))
        over = not (305.0 < self.temperature < 350.0 and 0.5 < self.level < 1.5)
        reward = 1.0 - abs(self.temperature - TARGET) / 40.0 - abs(self.level - LEVEL) / 2
        return self._observe(), reward, over, False, {}


gym.register("Tank-v0", Tank, max_episode_steps=200)
