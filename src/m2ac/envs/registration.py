"""The ids this package adds to Gymnasium."""

import gymnasium as gym

from m2ac.envs.noise import NoisyAction
from m2ac.envs.tasks import TASKS, Task


def register() -> None:
    """Make every task that differs from Gymnasium's environment known to `gymnasium.make`; again does nothing."""
    for task in TASKS.values():
        if task.env_id not in gym.registry:
            _register(task)


def _register(task: Task) -> None:
    base = gym.registry[task.id]
    noise = (NoisyAction.wrapper_spec(sigma=task.noise),) if task.noise else ()
    gym.register(
        id=task.env_id,
        entry_point=base.entry_point,
        max_episode_steps=base.max_episode_steps,
        additional_wrappers=noise,
        kwargs=dict(task.kwargs),
    )
