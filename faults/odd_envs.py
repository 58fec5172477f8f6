"""An environment that answers as it is told to, and some ids of it for the command line."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

AT = 3
"""The step, or the call of reset, at which something goes wrong."""

ENTRIES = ("obs", "reward", "terminated", "truncated", "info")

Change = Callable[["Odd", tuple[Any, ...]], Any]
"""From the environment and its usual answer to the one it gives instead."""


class Odd(gym.Env[Any, Any]):
    """A point pushed by one motor for eight steps; `on_reset` and `on_step` change one answer of it, or every one."""

    def __init__(
        self,
        *,
        on_reset: Change | None = None,
        on_step: Change | None = None,
        on_close: Callable[[], None] | None = None,
        always: bool = False,
        limit: int | None = 8,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
    ) -> None:
        self.observation_space = observation_space or spaces.Box(-10, 10, (2,), np.float32)
        self.action_space = action_space or spaces.Box(-1, 1, (1,), np.float32)
        self.on_reset, self.on_step, self.on_close = on_reset, on_step, on_close
        self.always, self.limit = always, limit
        self.steps = self.resets = self.changed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """The point starts near the middle."""
        super().reset(seed=seed)
        self.steps, self.resets = 0, self.resets + 1
        self.position = self.np_random.normal(size=2).astype(np.float32) / 10
        return self._changed(self.on_reset, True, (self.position, {}))

    def step(self, action: Any) -> Any:
        """The point is pushed."""
        self.steps += 1
        self.position = np.clip(self.position * 0.9 + np.mean(action) / 10, -10, 10).astype(np.float32)
        over = self.limit is not None and self.steps >= self.limit
        usual = (self.position, float(self.position.sum()), False, over, {})
        return self._changed(self.on_step, self.steps == AT, usual)

    def close(self) -> None:
        """Whatever it was told to do at the end."""
        if self.on_close is not None:
            self.on_close()

    def _changed(self, change: Change | None, due: bool, usual: tuple[Any, ...]) -> Any:
        """The changed answer: once where it is due, or always."""
        if change is None or not (self.always or (due and not self.changed)):
            return usual
        self.changed += 1
        return change(self, usual)


def but(**entries: Any) -> Change:
    """The usual answer with some of its entries replaced."""

    def change(env: Odd, usual: tuple[Any, ...]) -> Any:
        names = ENTRIES if len(usual) == len(ENTRIES) else ("obs", "info")
        return tuple(entries.get(name, value) for name, value in zip(names, usual, strict=True))

    return change


def instead(answer: Any) -> Change:
    """Something else in place of the whole answer."""
    return lambda env, usual: answer


def raising(error: BaseException) -> Change:
    """An exception in place of an answer."""

    def change(env: Odd, usual: tuple[Any, ...]) -> Any:
        raise error

    return change


def hanging(env: Odd, usual: tuple[Any, ...]) -> Any:
    """No answer, and whatever interrupts the waiting is caught."""
    while True:
        with suppress(Exception):
            time.sleep(60)


class Unprintable:
    """Nothing can be done with it, not even shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no")


class NoSpaces(gym.Env[Any, Any]):
    """Its author forgot to declare what it observes and does."""


def _failing(**kwargs: Any) -> Any:
    raise FileNotFoundError("no model file\n  at robot.xml\x1b[31m")


def _leaving(**kwargs: Any) -> Any:
    sys.exit("licence expired")


gym.register("FailingMake-v0", entry_point=_failing)
gym.register("LeavingMake-v0", entry_point=_leaving)
gym.register("NotAnEnv-v0", entry_point=lambda **kwargs: {"reset": 1})
gym.register("Forgotten-v0", entry_point=NoSpaces)
gym.register("Sound-v0", entry_point=lambda **kwargs: Odd())
gym.register("Leaving-v0", entry_point=lambda **kwargs: Odd(on_step=raising(SystemExit(0))))
gym.register("Raising-v0", entry_point=lambda **kwargs: Odd(on_step=raising(OSError("serial port\nlost"))))
gym.register("Hanging-v0", entry_point=lambda **kwargs: Odd(on_step=hanging))
gym.register("Closing-v0", entry_point=lambda **kwargs: Odd(on_close=lambda: _failing()))
gym.register("Endless-v0", entry_point=lambda **kwargs: Odd(limit=None))
gym.register("Outside-v0", entry_point=lambda **kwargs: Odd(on_step=but(obs=np.float32([0, 12.5])), always=True))
