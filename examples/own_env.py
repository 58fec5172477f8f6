"""An environment of your own with a termination function: a cart that is to be held at 0 and must not leave the track.

python examples/own_env.py                             # some minutes
M2AC_EXAMPLE_STEPS=60 python examples/own_env.py       # whether it works: seconds, small networks, learns nothing
"""

import os
from typing import Any

import gymnasium as gym
import numpy as np

from m2ac import M2AC

STEPS = int(os.environ.get("M2AC_EXAMPLE_STEPS", "3000"))
SMALL: dict[str, Any] = {
    "updates_per_step": 1,
    "model_every": 20,
    "model": {"hidden": 8, "layers": 1, "weight_decay": (0.0, 0.0), "max_epochs": 2},
    "sac": {"hidden": 8, "batch_size": 16},
}
TRACK = 2.0  # m


class Cart(gym.Env):
    """Observed are position (m) and speed (m/s); the action is a force (N)."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-5.0, 5.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Somewhere on the track, at rest."""
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(-1.0, 1.0), 0.0])
        return self.state.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """A twentieth of a second."""
        position, speed = self.state
        speed += 0.05 * float(action[0])
        self.state = np.array([position + 0.05 * speed, speed])
        left_the_track = bool(abs(self.state[0]) > TRACK)
        return self.state.copy(), 1.0 - float(self.state[0] / TRACK) ** 2, left_the_track, False, {}


def left_the_track(obs, action, next_obs):
    """The same end for imagined steps; without it the ensemble would have to learn it."""
    return abs(next_obs[0]) > TRACK


gym.register("Cart-v0", Cart, max_episode_steps=100)

if __name__ == "__main__":
    settings = SMALL if STEPS < 500 else {"random_steps": 500}
    agent = M2AC(gym.make("Cart-v0"), seed=0, horizon=3, termination_fn=left_the_track, **settings)
    agent.learn(STEPS)
    print(f"mean return {np.mean(agent.evaluate(episodes=5)):.1f} after {agent.num_timesteps} steps; 100 is the most")
