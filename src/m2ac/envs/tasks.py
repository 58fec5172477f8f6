"""The tasks by name: how each is made, when it terminates, and the settings it is known to work with."""

import difflib
import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym

from m2ac.envs import terminations
from m2ac.envs.noise import NoisyAction
from m2ac.envs.notices import cause, shortened
from m2ac.settings import ConfigError, perhaps
from m2ac.types import TerminationFn

NAMESPACE = "m2ac"
"""Of the ids this package registers with Gymnasium."""

DEFAULT_STEPS = 25_000
"""Steps of a run where neither the user nor the task says how many."""

NOISE_LEVELS = (0.05, 0.1, 0.2)
"""The standard deviations of Noisy0, Noisy1 and Noisy2."""

_HARMLESS_KWARGS = frozenset(
    {
        "camera_id",
        "camera_name",
        "ctrl_cost_weight",
        "default_camera_config",
        "forward_reward_weight",
        "healthy_reward",
        "height",
        "max_geom",
        "render_mode",
        "reset_noise_scale",
        "visual_options",
        "width",
    }
)
"""Constructor arguments that change neither the observation nor the end of an episode."""

_HARMLESS_WRAPPERS = (
    gym.ActionWrapper,
    gym.RewardWrapper,
    gym.wrappers.HumanRendering,
    gym.wrappers.NormalizeReward,
    gym.wrappers.OrderEnforcing,
    gym.wrappers.PassiveEnvChecker,
    gym.wrappers.RecordEpisodeStatistics,
    gym.wrappers.RecordVideo,
    gym.wrappers.RenderCollection,
    gym.wrappers.TimeLimit,
)
"""Wrappers that change neither the observation nor `terminated`."""


@dataclass(frozen=True)
class Task:
    """An environment and what is known about it."""

    name: str
    """What the user types."""
    id: str
    """The Gymnasium environment it is built on."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Constructor arguments that set it apart from that environment."""
    noise: float = 0.0
    """Standard deviation of the action noise."""
    terminated: TerminationFn | None = None
    """Whether a transition ends the episode; None: to be learned."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings by dotted name, such as "sac.target_entropy", for what the user leaves open."""
    summary: str = ""
    """One line for the list of tasks."""

    def steps(self, algo: str) -> int:
        """Steps of a run with that algorithm where nobody says how many."""
        steps: int = self.defaults.get(f"steps.{algo}", self.defaults.get("steps", DEFAULT_STEPS))
        return steps

    @property
    def env_id(self) -> str:
        """The id by which `gymnasium.make` gives the task: one of ours where Gymnasium has no such environment."""
        return f"{NAMESPACE}/{self.name}-v0" if self.kwargs or self.noise else self.id


def _mujoco(steps: int, entropy: float, *, random_steps: int = 5_000, **others: Any) -> dict[str, Any]:
    return {
        "steps": steps,
        "random_steps": random_steps,
        "scale_observations": False,
        "model.scale_targets": False,
        "sac.target_entropy": entropy,
        **others,
    }


_CHEETAH = Task(
    name="HalfCheetah",
    id="HalfCheetah-v5",
    terminated=terminations.never,
    # Measured on this task and its noisy ones alone: docs/learning.md.
    defaults={**_mujoco(200_000, -3.0), "model.min_log_variance": -5.0},
    summary="a two-legged runner in the plane that cannot fall out of the task",
)
_WALKER = Task(
    name="Walker2d",
    id="Walker2d-v5",
    kwargs={"xml_file": "walker2d.xml"},
    terminated=terminations.walker2d,
    defaults=_mujoco(200_000, -3.0),
    summary="a two-legged walker in the plane that must not fall; the foot friction of the paper's time",
)


def _noisy(task: Task, level: int, steps: int) -> Task:
    sigma = NOISE_LEVELS[level]
    return replace(
        task,
        name=f"{task.name}-Noisy{level}",
        noise=sigma,
        defaults={**task.defaults, "steps": steps},
        summary=f"{task.name} whose actions are disturbed by N(0, {sigma}²)",
    )


_ALL = (
    _CHEETAH,
    *(_noisy(_CHEETAH, level, 25_000) for level in range(len(NOISE_LEVELS))),
    _WALKER,
    *(_noisy(_WALKER, level, 50_000) for level in range(len(NOISE_LEVELS))),
    Task(
        name="Swimmer",
        id="Swimmer-v5",
        terminated=terminations.never,
        defaults=_mujoco(200_000, -1.0),
        summary="three links in a viscous fluid",
    ),
    Task(
        name="Humanoid",
        id="Humanoid-v5",
        kwargs={
            "include_cinert_in_observation": False,
            "include_cvel_in_observation": False,
            "include_qfrc_actuator_in_observation": False,
            "include_cfrc_ext_in_observation": False,
        },
        terminated=terminations.humanoid,
        defaults=_mujoco(300_000, -2.0, **{"model.hidden": 400}),
        summary="a person with 17 motors, observed by 45 positions and velocities as in MBPO",
    ),
    Task(
        name="Hopper",
        id="Hopper-v5",
        kwargs={"xml_file": "hopper.xml"},
        terminated=terminations.hopper,
        defaults=_mujoco(125_000, -1.0),
        summary="one leg in the plane that must not fall",
    ),
    Task(
        name="Ant",
        id="Ant-v5",
        kwargs={"include_cfrc_ext_in_observation": False},
        terminated=terminations.ant,
        defaults=_mujoco(300_000, -4.0),
        summary="four legs, observed by 27 positions and velocities as in MBPO",
    ),
    Task(
        name="InvertedPendulum",
        id="InvertedPendulum-v5",
        terminated=terminations.inverted_pendulum,
        defaults=_mujoco(5_000, -0.05, random_steps=500),
        summary="a pole on a cart, kept upright",
    ),
    Task(
        name="InvertedDoublePendulum",
        id="InvertedDoublePendulum-v5",
        defaults=_mujoco(10_000, -0.5, random_steps=500),
        summary="two poles on a cart, kept upright; the termination is learned",
    ),
    Task(
        name="Pendulum",
        id="Pendulum-v1",
        terminated=terminations.never,
        # Three observations and one action need no wide model, and a first run should not take long.
        defaults={
            "steps": 2_500,
            "steps.ppo": 100_000,
            "random_steps": 500,
            "scale_observations": False,
            "model.scale_targets": False,
            "ppo.discount": 0.95,
            "ppo.learning_rate": 1e-3,
            "sac.target_entropy": -1.0,
            "eval_every": 250,
            "model.hidden": 100,
        },
        summary="a pole swung up by a weak motor; learned in minutes on a laptop",
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in _ALL}
"""Every named task."""


def _plain_ids(task: Task) -> tuple[str, ...]:
    """Gymnasium's own ids whose observation starts, and whose episodes end, as the task's do."""
    family, _, _ = task.id.rpartition("-v")
    return (task.id,) if family == "Pendulum" else (f"{family}-v4", f"{family}-v5")


_FAMILIES: dict[str, Task] = {plain: task for task in _ALL if not task.noise for plain in _plain_ids(task)}


def find_task(env_id: str) -> Task:
    """The task of a name, of a Gymnasium id, or of `package.module:Id-v0`, whose module is imported first."""
    if env_id in TASKS:
        return TASKS[env_id]
    module, colon, plain_id = env_id.rpartition(":")
    if colon:
        _import_for(env_id, module)
    for task in TASKS.values():
        if plain_id == task.env_id != task.id:
            return task
    if plain_id not in gym.registry:
        known = _makeable_ids()
        hint = perhaps(plain_id, known)
        if colon:
            hint = hint.replace('"', f'"{module}:', 1)
        elif not difflib.get_close_matches(plain_id, known, n=1, cutoff=0.8):  # hardly a slip of the finger
            hint += f' If a module of yours registers it, write "my_module:{shortened(env_id)}".'
        if env_id.startswith("dm_control/"):
            hint = f' pip install "shimmy[dm-control]" and write "shimmy:{shortened(env_id)}".'
        raise ConfigError(f'no environment "{shortened(env_id)}".{hint} See m2ac envs.')
    plain = Task(name=env_id, id=env_id, summary="a Gymnasium environment")
    family = _FAMILIES.get(plain_id)
    if family is None or not _is_gymnasiums_own(gym.registry[plain_id]):
        return plain
    summary = f"Gymnasium's own {family.name}"
    return replace(plain, terminated=family.terminated, defaults=family.defaults, summary=summary)


def task_of(env: gym.Env[Any, Any]) -> Task:
    """The task of an environment made by the user.

    Its termination function is left out where a constructor argument or a wrapper may have made it wrong.
    """
    spec = env.spec
    if spec is None or spec.id not in gym.registry:
        return Task(name=spec.id if spec else type(env.unwrapped).__name__, id=spec.id if spec else "")
    kwargs = _relevant(spec.kwargs)
    wrappers = _wrappers(env)
    noise = sum(wrapper.sigma for wrapper in wrappers if isinstance(wrapper, NoisyAction))
    known = [t for t in TASKS.values() if (t.id, t.kwargs, t.noise) == (spec.id, kwargs, noise)]
    task = known[0] if known else find_task(spec.id)
    same = known or task.terminated is terminations.never or kwargs == _relevant(gym.registry[spec.id].kwargs)
    if same and all(isinstance(wrapper, _HARMLESS_WRAPPERS) for wrapper in wrappers):
        return task
    return replace(task, terminated=None)


def _import_for(env_id: str, module: str) -> None:
    """Import what the user named; as with `python -m`, the current directory is looked in as well, but last."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f'cannot import the module "{shortened(module)}" of environment "{shortened(env_id)}" ({cause(error)}); '
            f"install it, call from its directory, or add that to PYTHONPATH"
        ) from error


def _makeable_ids() -> list[str]:
    """Names to suggest, without Gymnasium's stubs for environments that it no longer has."""
    stubs = "gymnasium.envs"
    return [*TASKS, *(i for i, s in gym.registry.items() if getattr(s.entry_point, "__module__", "") != stubs)]


def _is_gymnasiums_own(spec: gym.envs.registration.EnvSpec) -> bool:
    """Whether nobody has registered something else under the same id."""
    return (
        isinstance(spec.entry_point, str)
        and spec.entry_point.startswith("gymnasium.envs.")
        and not spec.kwargs
        and not spec.additional_wrappers
    )


def _relevant(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in _HARMLESS_KWARGS}


def _wrappers(env: gym.Env[Any, Any]) -> list[gym.Wrapper[Any, Any, Any, Any]]:
    chain = []
    while isinstance(env, gym.Wrapper):
        chain.append(env)
        env = env.env
    return chain
