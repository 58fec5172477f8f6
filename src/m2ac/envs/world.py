"""The real world as the algorithms meet it: float32 observations, actions in [-1, 1], every reset seeded by us."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from m2ac.envs.actions import ActionScale
from m2ac.envs.make import check_spaces
from m2ac.envs.seeds import Stream, episode_seed
from m2ac.settings import UserError

LONGEST_EVALUATION = 10_000
"""Steps after which an evaluation episode of an environment without a time limit is cut."""


LARGEST = float(np.finfo(np.float32).max)
"""Observations and rewards are stored as float32."""


class EnvError(UserError):
    """The environment did something no learner can use; the message says what, where and what to do."""


class Outcome(NamedTuple):
    """What one action led to."""

    next_obs: NDArray[np.float32]
    reward: float
    terminated: bool
    truncated: bool


class Played(NamedTuple):
    """A finished episode."""

    seed: int
    total: float  # sum of rewards
    length: int


class World:
    """An environment whose episodes are numbered and can be played again from their number."""

    def __init__(self, env: gym.Env[Any, Any], *, seed: int, stream: Stream) -> None:
        check_spaces(env)
        assert isinstance(env.action_space, gym.spaces.Box)
        assert isinstance(env.observation_space, gym.spaces.Box)
        self.env = env
        self.seed = seed
        self.stream: Stream = stream
        self.scale = ActionScale.of(env.action_space)
        self.obs_dim = env.observation_space.shape[0]
        self.action_dim = env.action_space.shape[0]
        self._where = "before the first reset"

    def seed_of(self, episode: int) -> int:
        """The seed of the given episode's reset."""
        return episode_seed(self.seed, self.stream, episode)

    def reset(self, episode: int) -> NDArray[np.float32]:
        """Start the given episode."""
        seed = self.seed_of(episode)
        self._where = f"{self.stream} episode {episode} (seed {seed}), reset"
        answer = self._asked(self.env.reset, seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise EnvError(f"reset returned {_brief(answer)} in {self._where}; it must return (observation, info)")
        self._steps = 0
        return self._checked(answer[0])

    def step(self, action: NDArray[np.float32]) -> Outcome:
        """Take an action given in [-1, 1]."""
        self._steps += 1
        self._where = f"{self._where.rsplit(',', 1)[0]}, step {self._steps}"
        if not np.isfinite(action).all():
            raise EnvError(
                f"action {_brief(np.asarray(action).tolist())} is not finite in {self._where}, after an observation of "
                f"up to {np.abs(self._seen).max():.2g}; scale the observations to about 1, or go on from an earlier "
                f"checkpoint"
            )
        answer = self._asked(self.env.step, self.scale.to_env(action))
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise EnvError(
                f"step returned {_brief(answer)} in {self._where}; "
                f"it must return (observation, reward, terminated, truncated, info)"
            )
        obs, reward, terminated, truncated, _ = answer
        return Outcome(self._checked(obs), self._checked_reward(reward), bool(terminated), bool(truncated))

    def play(self, policy: Callable[[NDArray[np.float32]], NDArray[np.float32]], episode: int) -> Played:
        """One whole episode with the given policy."""
        obs, total, length = self.reset(episode), 0.0, 0
        while True:
            outcome = self.step(policy(obs))
            total, length, obs = total + outcome.reward, length + 1, outcome.next_obs
            if outcome.terminated or outcome.truncated or length == LONGEST_EVALUATION:
                return Played(self.seed_of(episode), total, length)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _asked(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The environment's answer; what it raises is told with the place where it happened."""
        try:
            return call(*args, **kwargs)
        except Exception as error:
            raise EnvError(
                f"the environment raised {type(error).__name__} ({_brief(str(error))}) in {self._where}; mend it there"
            ) from error

    def _checked_reward(self, reward: Any) -> float:
        remedy = "the environment must return finite numbers as rewards"
        try:
            value = float(np.asarray(reward).item())
        except (TypeError, ValueError):
            raise EnvError(f"reward is {_brief(reward)} in {self._where}; {remedy}") from None
        if not abs(value) <= LARGEST:
            raise EnvError(f"reward is {value} in {self._where}; {remedy}, at most {LARGEST:.1e}")
        return value

    def _checked(self, obs: Any) -> NDArray[np.float32]:
        try:
            given = np.asarray(obs)
            # A copy: some environments hand out the array they go on writing to.
            with np.errstate(over="ignore"):
                checked = np.array(given, dtype=np.float32)
        except (TypeError, ValueError):
            raise EnvError(
                f"observation is {_brief(obs)} in {self._where}; return an array of {self.obs_dim} numbers"
            ) from None
        if given.shape != (self.obs_dim,):
            raise EnvError(
                f"observation has shape {given.shape} in {self._where}, but the observation space says "
                f"({self.obs_dim},); return observations of the declared shape"
            )
        if not np.isfinite(checked).all():
            index = int(np.flatnonzero(~np.isfinite(checked))[0])
            raise EnvError(
                f"observation[{index}] is {given[index]} in {self._where}; "
                f"the environment must return finite observations, at most {LARGEST:.1e}"
            )
        self._seen = checked
        return checked


def _brief(value: Any) -> str:
    """The start of a value's text, on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
