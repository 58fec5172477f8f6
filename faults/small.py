"""A small state to save and load, and its configuration."""

from functools import cache

import jax
import numpy as np

from m2ac.algorithms.state import State, init_state
from m2ac.config import AgentConfig
from m2ac.resolving import resolve
from m2ac.settings import override

OBS, ACTIONS = 3, 1

CONFIG = resolve(
    override(
        AgentConfig(),
        {
            "horizon": 1,
            "updates_per_step": 1,
            "rollouts_per_update": 2,
            "model_every": 10,
            "random_steps": 20,
            "model": {"members": 2, "elites": 1, "hidden": 4, "layers": 1, "weight_decay": (0.0, 0.0)},
            "sac": {"hidden": 4, "batch_size": 4},
        },
    ),
    {},
    action_dim=ACTIONS,
    steps=50,
)


@cache
def small_state() -> State:
    """Fresh networks and empty buffers, on the host."""
    state = init_state(CONFIG, OBS, ACTIONS, learns_termination=True)
    return jax.tree.map(lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, state)


def at_step(step: int) -> State:
    """The same, so many steps on, and different from any other step's in its arrays too."""
    state = small_state()
    learner = state.learner._replace(log_temperature=np.float32(step))
    return state._replace(counters=state.counters._replace(steps=step), learner=learner)
