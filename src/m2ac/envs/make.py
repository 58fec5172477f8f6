"""Environments made, copied, and checked for what the algorithms need."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from m2ac.envs.noise import NoisyAction
from m2ac.envs.notices import brief, cause
from m2ac.envs.tasks import Task, find_task
from m2ac.settings import ConfigError

Env = gym.Env[Any, Any]


def make_env(env: str | Task, **kwargs: Any) -> Env:
    """The environment of a task, a name or an id (see `find_task`); `kwargs` go to `gymnasium.make`."""
    task = find_task(env) if isinstance(env, str) else env
    with _explained(
        f'cannot make the environment "{task.name}"', "mend it there, install what it needs or see m2ac envs"
    ):
        # Gymnasium's own checks look at the first step alone and say less; World looks at every one.
        made = gym.make(task.id, **{"disable_env_checker": True, **task.kwargs, **kwargs})
        if task.noise:
            made = NoisyAction(made, task.noise)
        if _can_be_flattened(getattr(made, "observation_space", None)):
            made = gym.wrappers.FlattenObservation(made)
    try:
        check_spaces(made)
    except ConfigError:
        with suppress(Exception):  # the spaces are what is to be told
            made.close()
        raise
    return made


def _can_be_flattened(space: Any) -> bool:
    """Whether observations are numbers in several arrays, such as dm_control's; pictures are none."""
    if isinstance(space, spaces.Dict):
        return bool(space.spaces) and all(_is_of_numbers(part) for part in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return bool(space.spaces) and all(_is_of_numbers(part) for part in space.spaces)
    return isinstance(space, spaces.Box) and len(space.shape) > 1 and _is_of_numbers(space)


def _is_of_numbers(space: Any) -> bool:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _can_be_flattened(space)
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)


def check_env(env: object) -> Env:
    """The environment itself, where it is one."""
    if isinstance(env, gym.vector.VectorEnv):
        raise ConfigError(
            f"env must be a single environment, got the vector environment {brief(env)}; "
            f"pass one made by gymnasium.make"
        )
    if not isinstance(env, gym.Env):
        raise ConfigError(f"env must be a Gymnasium environment or its id, got {brief(env)}; pass an instance")
    return env


def copy_env(env: Env, *, why: str = "for evaluation", remedy: str = "pass eval_env=") -> Env:
    """A second, independent environment like `env`, made from its spec; why it is needed, and what else would do."""
    spec = env.spec
    if spec is None:
        raise ConfigError(f"{env} has no spec, so no second one can be made {why}; {remedy}")
    if any(wrapper.name == "NormalizeObservation" for wrapper in spec.additional_wrappers):
        raise ConfigError(f"a copy of {env} would normalise observations by statistics of its own; {remedy}")
    # A second window would show nothing but the evaluation.
    quiet = {"render_mode": None} if spec.kwargs.get("render_mode") == "human" else {}
    with _explained(f"cannot make a second {env} {why}", remedy):
        return gym.make(spec, **quiet)


def check_spaces(env: Env) -> None:
    """Refuse an environment whose observations or actions no algorithm here can handle."""
    _check_observation(_space(env, "observation_space"))
    _check_action(_space(env, "action_space"))


def _space(env: Env, name: str) -> Any:
    """One of the environment's spaces, which Gymnasium leaves to the environment to set."""
    try:
        return getattr(env, name)
    except AttributeError:
        raise ConfigError(f"the environment {env} has no {name}; set self.{name} in its constructor") from None


def _check_observation(space: spaces.Space[Any]) -> None:
    needed = "the observation space must be a Box of rank 1"
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ConfigError(f"{needed}, got {space}; wrap the environment in gymnasium.wrappers.FlattenObservation")
    if space.shape[0] == 0:
        raise ConfigError(f"{needed} with at least one entry, got {space}; observe at least one number")


def _check_action(space: spaces.Space[Any]) -> None:
    needed = "the action space must be a bounded Box of rank 1"
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise ConfigError(
            f"{needed}, got {space}; these algorithms need continuous actions, "
            f"for discrete ones use another library, such as stable-baselines3"
        )
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ConfigError(f"{needed}, got {space}; flatten the actions with gymnasium.wrappers.TransformAction")
    if space.shape[0] == 0:
        raise ConfigError(f"{needed} with at least one entry, got {space}; there is nothing to learn without actions")
    if not np.issubdtype(space.dtype, np.floating):
        raise ConfigError(
            f"{needed} with a floating-point dtype, got {space}; "
            f"declare it as float32 and round in the environment, or in gymnasium.wrappers.TransformAction"
        )
    if not space.is_bounded("both"):
        raise ConfigError(
            f"{needed}, got {space}; declare finite bounds in the environment, "
            f"which gymnasium.wrappers.RescaleAction can then map to others"
        )
    if not (space.low < space.high).all():
        raise ConfigError(f"{needed} with low below high, got {space}; leave out the entries that cannot vary")


@contextmanager
def _explained(what: str, remedy: str) -> Iterator[None]:
    """Turn whatever goes wrong inside into one line that names the cause and the remedy."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{what} ({cause(error)}); {remedy}") from error
