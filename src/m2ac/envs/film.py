"""A policy's episodes as pictures.

MuJoCo loads a graphics library when it is imported, MUJOCO_GL says which, and one that fails can end the process: what
is here runs in a process of its own, `m2ac.runs.camera`.
"""

import importlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from m2ac.envs.make import Env, make_env
from m2ac.envs.notices import EnvError, brief, cause
from m2ac.envs.tasks import find_task
from m2ac.envs.world import World
from m2ac.settings import ConfigError, UserError

MODE = "rgb_array"
MUJOCO = "gymnasium.envs.mujoco.mujoco_env"
"""Has the class of every environment of Gymnasium that MuJoCo draws."""

WIDTH, HEIGHT = 320, 240
"""Of what MuJoCo draws; other environments choose their own size."""

WIDER = 10
"""Times as wide and as deep as the model says are its floors drawn."""

FASTEST = 30.0
"""Pictures per second at most."""

LARGEST_SIDE = 4096
"""Pixels."""


class RenderError(UserError):
    """This graphics library draws nothing here; another may."""


class Pace(NamedTuple):
    """How many steps there are from one picture to the next, and how many pictures a second of the task has."""

    every: int
    fps: float


class Shot(NamedTuple):
    """A picture, and what had been played when it was taken."""

    picture: NDArray[np.uint8]  # (height, width, 3)
    episode: int
    seed: int
    step: int
    total: float  # sum of rewards so far


def drawable(env: str) -> Env:
    """The environment of that name, made such that it can be drawn."""
    task = find_task(env)
    spec = gym.spec(task.id.rpartition(":")[2])
    creator = _creator(spec)
    if isinstance(creator, type) and MODE not in _modes(creator):
        known = ", ".join(map(repr, _modes(creator))) or "none"
        raise ConfigError(
            f'the environment "{task.name}" cannot be filmed, its render modes are: {known}; '
            f'implement "{MODE}" and declare it in metadata["render_modes"]'
        )
    made = make_env(task, render_mode=MODE, **_view(creator, {**spec.kwargs, **task.kwargs}))
    if _is_mujocos(type(made.unwrapped)):
        _wide_floor(made)
    return made


def _is_mujocos(creator: Any) -> bool:
    return isinstance(creator, type) and any(kind.__module__ == MUJOCO for kind in creator.__mro__)


def _wide_floor(env: Env) -> None:
    """Draw floors `WIDER`: a fast runner comes to where 40 m of it end, though it never falls.

    That is of drawing alone; a contact takes every plane for endless.
    """
    mujoco = importlib.import_module("mujoco")
    model: Any = cast(Any, env.unwrapped).model
    floors = (model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) & (model.geom_size[:, 0] >= 10)  # and no table
    model.geom_size[floors, :2] *= WIDER
    materials = [number for number in set(model.geom_matid[floors]) if number >= 0 and not model.mat_texuniform[number]]
    model.mat_texrepeat[materials] *= WIDER  # so that its tiles keep their size


def _creator(spec: EnvSpec) -> Any:
    """What makes the environment, mostly its class; None where it cannot be had, which `make_env` tells."""
    entry = spec.entry_point
    try:
        return load_env_creator(entry) if isinstance(entry, str) else entry
    except Exception:
        _check_graphics()
        return None


def _modes(creator: Any) -> list[str]:
    return list(getattr(creator, "metadata", {}).get("render_modes") or [])


def _view(creator: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Size and camera of an environment that MuJoCo draws, as far as it can be told and has none of its own."""
    if not _is_mujocos(creator):
        return {}
    wanted: dict[str, Any] = {"width": WIDTH, "height": HEIGHT}
    if not any("camera" in name for name in given):
        wanted["camera_name"] = "track"  # Gymnasium 1.4 lets a runner leave the picture; without such a camera it is so
    taken = inspect.signature(creator).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    return {name: value for name, value in wanted.items() if open_ended or name in taken}


def _check_graphics() -> None:
    try:
        importlib.import_module("mujoco")
    except Exception as error:
        raise RenderError(cause(error)) from error


def pace_of(env: Env) -> Pace:
    """Every so many steps that a film in real time has at most `FASTEST` pictures per second.

    `render_fps` of an environment's metadata is how many steps a second of it has.
    """
    said: Any = env.metadata.get("render_fps")
    number = isinstance(said, int | float) and not isinstance(said, bool)
    steps = float(said) if number and math.isfinite(said) and said > 0 else FASTEST
    every = math.ceil(steps / FASTEST)
    return Pace(every, steps / every)


def shots(
    world: World,
    policy: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    *,
    episodes: int,
    pictures: int,
    every: int,
) -> Iterator[Shot]:
    """So many pictures of each episode at most: the first of its start, and of its end where it ends before that."""
    for episode in range(episodes):
        obs, seed = world.reset(episode), world.seed_of(episode)
        step, total, taken, over = 0, 0.0, 0, False
        while True:
            if step % every == 0 or over:
                yield Shot(_drawn(world.env, f"step {step} of episode {episode}"), episode, seed, step, total)
                taken += 1
            if over or taken == pictures:
                break
            outcome = world.step(policy(obs))
            obs, step, total = outcome.next_obs, step + 1, total + outcome.reward
            over = outcome.terminated or outcome.truncated


def _drawn(env: Env, where: str) -> NDArray[np.uint8]:
    try:
        picture: Any = env.render()
    except DependencyNotInstalled as error:
        remedy = "pip install pygame-ce" if "pygame" in str(error) else "install that"
        raise EnvError(f"the environment cannot be drawn ({cause(error)}); {remedy}") from error
    except Exception as error:
        # Of the environment itself, or of the graphics library beneath it: only the latter is worth another try.
        if _is_mujocos(type(env.unwrapped)):
            raise RenderError(cause(error)) from error
        raise EnvError(f"the environment raised {cause(error)} when drawn at {where}; mend it there") from error
    fits = isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.ndim == 3
    if not fits or picture.shape[2] != 3 or not all(1 <= side <= LARGEST_SIDE for side in picture.shape[:2]):
        what = f"an array {picture.dtype}{picture.shape}" if isinstance(picture, np.ndarray) else brief(picture)
        raise EnvError(f"render returned {what} at {where}; return an array of uint8 of shape (height, width, 3)")
    return np.ascontiguousarray(picture)
