"""The real world: tasks by name, action noise, termination functions, checks.

Importing this package registers its ids with Gymnasium, so `gym.make("m2ac.envs:m2ac/HalfCheetah-Noisy2-v0")` works.
"""

from m2ac.envs.actions import ActionScale
from m2ac.envs.make import Env, check_env, check_spaces, copy_env, make_env
from m2ac.envs.noise import NoisyAction
from m2ac.envs.registration import register
from m2ac.envs.seeds import episode_seed
from m2ac.envs.tasks import TASKS, Task, find_task, task_of

__all__ = [
    "TASKS",
    "ActionScale",
    "Env",
    "NoisyAction",
    "Task",
    "check_env",
    "check_spaces",
    "copy_env",
    "episode_seed",
    "find_task",
    "make_env",
    "register",
    "task_of",
]

register()
