"""The real world as the algorithms meet it: float32 observations, actions in [-1, 1], every reset seeded by us."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from m2ac.envs.actions import ActionScale
from m2ac.envs.answers import flag_of, observation_of, reward_of
from m2ac.envs.make import check_spaces
from m2ac.envs.notices import EnvError, Notices, brief, cause
from m2ac.envs.observations import LOOKED_AT, Bounds, Extent
from m2ac.envs.patience import TimedOut, check_thread, within
from m2ac.envs.seeds import Stream, episode_seed
from m2ac.settings import UserError

__all__ = ["LONGEST_EVALUATION", "EnvError", "Outcome", "Played", "World"]

LONGEST_EVALUATION = 10_000
"""Steps after which an evaluation episode of an environment without a time limit is cut."""


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
    """An environment whose episodes are numbered and can be played again from their number.

    What the environment answers is checked at every step; what no learner can use ends in an `EnvError`, what is odd
    but harmless is told through `notices`, which worlds can share. With a `step_timeout` no reset, step or close may
    take longer than that many seconds; this needs the main thread, and code that never returns to Python (a loop in C)
    is not interrupted. The info that comes with an observation is not used.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        seed: int,
        stream: Stream,
        step_timeout: float | None = None,
        notices: Notices | None = None,
    ) -> None:
        check_spaces(env)
        assert isinstance(env.action_space, gym.spaces.Box)
        assert isinstance(env.observation_space, gym.spaces.Box)
        self.env = env
        self.seed = seed
        self.stream: Stream = stream
        self.step_timeout = step_timeout
        self.notices = Notices() if notices is None else notices
        self.scale = ActionScale.of(env.action_space)
        self.obs_dim = env.observation_space.shape[0]
        self.action_dim = env.action_space.shape[0]
        self.bounds = Bounds.of(env.observation_space)  # None also after they were found not to hold
        self._extent = Extent(self.obs_dim) if np.dtype(env.observation_space.dtype).itemsize > 4 else None
        self._place = "no episode"
        self._steps = 0
        self.lent = False  # to somebody who plays an episode of his own
        self._limit = _time_limit(env)
        self._left_at: int | None = None  # the steps of its episode that the limit had counted

    @property
    def used_elsewhere(self) -> bool:
        """Whether somebody else has reset or stepped the environment since, as far as a time limit's count shows."""
        return self.lent or (self._limit is not None and self._limit._elapsed_steps != self._left_at)

    def seed_of(self, episode: int) -> int:
        """The seed of the given episode's reset."""
        return episode_seed(self.seed, self.stream, episode)

    def reset(self, episode: int) -> NDArray[np.float32]:
        """Start the given episode."""
        seed = self.seed_of(episode)
        self._place, self._steps, self.lent = f"{self.stream} episode {episode} (seed {seed})", 0, False
        try:
            answer = self._asked(self.env.reset, seed=seed)
        except EnvError as error:
            if isinstance(error.__cause__, TypeError) and "'seed'" in str(error.__cause__):
                raise EnvError(
                    "reset takes no seed; write reset(self, *, seed=None, options=None)"
                ) from error.__cause__
            raise
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise EnvError(f"reset returned {brief(answer)} in {self._where}; it must return (observation, info)")
        self._check_actions()
        obs, info = answer
        return self._observed(obs, info)

    def step(self, action: NDArray[np.float32]) -> Outcome:
        """Take an action given in [-1, 1]."""
        self._steps += 1
        if not np.isfinite(action).all():
            raise EnvError(
                f"action {brief(np.asarray(action).tolist())} is not finite in {self._where}, after an observation of "
                f"up to {np.abs(self._seen).max():.2g}; scale the observations to about 1, or go on from an earlier "
                f"checkpoint"
            )
        answer = self._asked(self.env.step, self.scale.to_env(action))
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise EnvError(
                f"step returned {brief(answer)} in {self._where}; "
                f"it must return (observation, reward, terminated, truncated, info)"
            )
        obs, reward, terminated, truncated, info = answer
        where = self._where
        outcome = Outcome(
            self._observed(obs, info),
            reward_of(reward, where),
            flag_of("terminated", terminated, where),
            flag_of("truncated", truncated, where),
        )
        if self._steps == LONGEST_EVALUATION and not (outcome.terminated or outcome.truncated):
            self.notices.tell(
                "endless",
                f"the episode has not ended at {self._where}; training goes on in it, and evaluation episodes are cut "
                f"there, so give the environment a time limit: max_episode_steps of gymnasium.register or make",
            )
        return outcome

    def play(self, policy: Callable[[NDArray[np.float32]], NDArray[np.float32]], episode: int) -> Played:
        """One whole episode with the given policy."""
        obs, total, length = self.reset(episode), 0.0, 0
        while True:
            outcome = self.step(policy(obs))
            total, length, obs = total + outcome.reward, length + 1, outcome.next_obs
            if outcome.terminated or outcome.truncated or length == LONGEST_EVALUATION:
                return Played(self.seed_of(episode), total, length)

    def close(self) -> None:
        """Close the environment; where that fails it is told, since nothing is lost by it."""
        try:
            self._asked(self.env.close)
        except UserError as error:
            self.notices.tell("close", f"while closing: {error}; nothing is lost by it")

    @property
    def _where(self) -> str:
        """The place in the run, for messages."""
        return f"{self._place}, step {self._steps}" if self._steps else f"{self._place}, reset"

    def _asked(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The environment's answer; what it raises is told with the place where it happened."""
        if self.step_timeout is not None:
            check_thread()
        try:
            if self.step_timeout is None:
                return call(*args, **kwargs)
            return within(self.step_timeout, call, *args, **kwargs)
        except TimedOut:
            raise EnvError(
                f"the environment has not answered for {self.step_timeout:g} s in {self._where}; "
                f"mend what hangs there, or raise step_timeout (--step-timeout)"
            ) from None
        except (Exception, SystemExit) as error:
            raise EnvError(f"the environment raised {cause(error)} in {self._where}; mend it there") from error

    def _observed(self, obs: Any, info: Any) -> NDArray[np.float32]:
        """The observation; what is odd about it or about the info is told."""
        checked = observation_of(obs, self.obs_dim, self._where)
        if not isinstance(info, dict):
            self.notices.tell(
                "info",
                f"info is {brief(info)} in {self._where}; it is not used here, but wrappers need a dict: return {{}}",
            )
        self._seen = checked
        self._left_at = None if self._limit is None else self._limit._elapsed_steps
        if self._extent is not None and self._extent.widened(np.asarray(obs)) == LOOKED_AT:
            text = self._extent.notice()
            if text is not None:
                self.notices.tell("fine", text)
            self._extent = None
        if self.bounds is not None:
            index = self.bounds.outside(checked)
            if index is not None:
                self.notices.tell("outside", self.bounds.notice(index[0], checked, self._where))
                self.bounds = None  # once is enough
        return checked

    def _check_actions(self) -> None:
        """Refuse an action space that is no longer what the actions are scaled to."""
        space = self._asked(getattr, self.env, "action_space")
        low, high = (getattr(space, name, ()) for name in ("low", "high"))
        if not (np.array_equal(low, self.scale.low) and np.array_equal(high, self.scale.high)):
            was = gym.spaces.Box(self.scale.low, self.scale.high, dtype=self.scale.low.dtype)
            raise EnvError(
                f"the action space became {brief(space)} in {self._where}, it was {brief(was)}; "
                f"keep the action space that the environment was made with"
            )


def _time_limit(env: gym.Env[Any, Any]) -> gym.wrappers.TimeLimit[Any, Any] | None:
    """The wrapper that counts the steps of an episode, which every registered environment with a limit has."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return env
        env = env.env
    return None
