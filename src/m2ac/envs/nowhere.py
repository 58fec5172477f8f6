"""An environment in name only."""

from typing import Any

import gymnasium as gym
import numpy as np


class Nowhere(gym.Env[Any, Any]):
    """The spaces of an environment that somebody else steps."""

    def __init__(self, obs_dim: int, low: list[float], high: list[float]) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (obs_dim,), np.float32)
        self.action_space = gym.spaces.Box(np.array(low), np.array(high), dtype=np.float64)
