"""Environments that are odd or wrong, each in one way."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

BOX = spaces.Box(-10, 10, (2,), np.float32)


class Plain(gym.Env[Any, Any]):
    """Nothing is wrong with it: a point pushed by one motor, whose actions reach from 0 to 10."""

    observation_space: spaces.Space[Any] = BOX
    action_space: spaces.Space[Any] = spaces.Box(0, 10, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self.position = self.np_random.normal(size=2).astype(np.float32)
        return self.position, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.position = np.clip(self.position * 0.9 + (action - 5) / 10, -10, 10).astype(np.float32)
        return self.position, float(self.position.sum()), bool(self.position[0] > 1), self.steps >= 30, {}


class NoMotor(Plain):
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class DictView(Plain):
    observation_space = spaces.Dict({"a": BOX, "b": spaces.Discrete(3)})


class NaNAtFirst(Plain):
    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**kwargs)
        return np.array([0.0, np.nan], np.float32), {}


class WrongShape(Plain):
    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**kwargs)
        return np.zeros(3, np.float32), {}


class Ragged(Plain):
    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**kwargs)
        return [0.0, [1.0]], {}


class OldReset(Plain):
    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0]


class OldStep(Plain):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class NaNRewardLater(Plain):
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, np.nan if self.steps == 7 else reward, terminated and self.steps > 7, truncated, info


class HugeReward(Plain):
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, 1e39, terminated, truncated, info


class TextReward(Plain):
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, "much", terminated, truncated, info


class Unrepeatable(Plain):
    """A real robot: the same seed and actions lead elsewhere each time."""

    episodes = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**kwargs)
        Unrepeatable.episodes += 1
        self.position = np.full(2, Unrepeatable.episodes / 100, np.float32)
        return self.position, {}


for kind in Plain.__subclasses__():
    gym.register(f"{kind.__name__}-v0", entry_point=kind, disable_env_checker=True)
gym.register("Plain-v0", entry_point=Plain)
gym.register("NaNAtFirstChecked-v0", entry_point=NaNAtFirst)
