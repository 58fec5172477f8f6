"""What every library is given: the same sizes, the same transitions, and an environment that costs nothing."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

OBS, ACTIONS = 17, 6
"""HalfCheetah's."""
ROWS = 25_000
"""Real transitions stored."""

BATCH, WIDTH = 256, 256
"""Soft Actor-Critic: rows per update, and the width of the two hidden layers of policy and critics."""
UPDATES = 200
"""Updates asked for in one call."""

MEMBERS, ELITES, LAYERS, MODEL_WIDTH, MODEL_BATCH = 7, 5, 4, 200, 256
"""The ensemble; the batch is each member's own."""
HOLDOUT = 0.2
"""Share of the rows that the ensemble is judged by, not trained on."""
ROLLOUTS = 25_000
"""Start states of a rollout phase, each one step long."""

CYCLE_ROWS, EPOCHS, STEPS, UPDATES_PER_STEP = 10_000, 10, 250, 10
"""One MBPO cycle: the fit's rows and epochs, then environment steps with updates after each."""
RETAINED = 4
"""Rollout phases whose rows are kept."""

ACTS = 1000
"""Actions asked for one after the other."""


class Transitions(NamedTuple):
    """Invented transitions of a smooth world, the rows of `m2ac.bench.filled_state`."""

    obs: NDArray[np.float32]
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    next_obs: NDArray[np.float32]


def transitions(rows: int) -> Transitions:
    """The same for every library."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(rows, OBS)).astype(np.float32)
    action = rng.uniform(-1, 1, (rows, ACTIONS)).astype(np.float32)
    push = np.tanh(obs @ rng.normal(size=(OBS, OBS)) + action @ rng.normal(size=(ACTIONS, OBS)))
    return Transitions(obs, action, push[:, 0].astype(np.float32), (obs + 0.1 * push).astype(np.float32))


class Still(gym.Env[Any, Any]):
    """Nothing ever happens here."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Zeros."""
        return np.zeros(OBS, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Zeros."""
        return np.zeros(OBS, np.float32), 0.0, False, False, {}
