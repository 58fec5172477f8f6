"""Environments that draw themselves with NumPy, each in one way of its own."""

import os
import signal
from typing import Any

import gymnasium as gym
import numpy as np
from strange_envs import Plain


class Drawn(Plain):
    """50 steps are a second; the white column of the picture is the number of steps, its corner the start state."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012
    lasts = 30

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        answer = super().reset(**kwargs)
        self.start = self.np_random.integers(256, size=3)
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, self.steps == self.lasts, False, info

    def render(self) -> Any:
        picture = np.zeros((24, 32, 3), np.uint8)
        picture[:12, :16] = self.start
        picture[:, self.steps] = 255
        return picture


class Short(Drawn):
    """An episode of 7 steps."""

    lasts = 7


class Talking(Short):
    """It prints in between."""

    def render(self) -> Any:
        print("a word from the environment", flush=True)
        os.write(1, b"and one past Python\n")
        return super().render()


class Dying(Drawn):
    """As a graphics library that crashes."""

    def render(self) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)


class Growing(Drawn):
    """Its second picture is larger."""

    def render(self) -> Any:
        return np.zeros((24 + self.steps, 32, 3), np.uint8)


class Blank(Drawn):
    """It forgot to return its picture."""

    def render(self) -> Any:
        return None


class Grey(Drawn):
    """Its picture has no colours."""

    def render(self) -> Any:
        return np.zeros((24, 32), np.uint8)


class FailingToDraw(Drawn):
    """It has a mistake where it draws."""

    def render(self) -> Any:
        raise ZeroDivisionError("no width")


class WithoutPygame(Drawn):
    """It needs what is not installed."""

    def render(self) -> Any:
        raise gym.error.DependencyNotInstalled("pygame is not installed")


for kind in (Drawn, *Drawn.__subclasses__(), *Short.__subclasses__()):
    gym.register(f"{kind.__name__}-v0", entry_point=kind, disable_env_checker=True)
