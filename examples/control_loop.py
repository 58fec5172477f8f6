"""A control loop of your own at a fixed rate, with learning beside it: a heated room that is to be held at 21 °C.

python examples/control_loop.py                        # some minutes
M2AC_EXAMPLE_STEPS=60 python examples/control_loop.py  # whether it works: seconds, small networks, learns nothing
"""

import os
import time
from typing import Any

import numpy as np

from m2ac import Live

STEPS = int(os.environ.get("M2AC_EXAMPLE_STEPS", "1500"))
SMALL: dict[str, Any] = {
    "model": {"members": 2, "elites": 2, "hidden": 8, "layers": 1, "weight_decay": (0.0, 0.0), "max_epochs": 2},
    "sac": {"hidden": 8, "batch_size": 16},
}
EPISODE, PERIOD = 100, 0.05 if STEPS >= 500 else 0.01  # steps, s


class Room:
    """Stands for your machine: read what it measures, apply an action, be told what came of it."""

    def __init__(self) -> None:
        self.inside, self.outside, self.minute = 15.0, 5.0, 0  # °C, °C

    def read(self) -> np.ndarray:
        """What is measured."""
        return np.array([self.inside, self.outside])

    def apply(self, power: float) -> tuple[np.ndarray, float]:
        """A minute with the heater at that power (W); the reward is how close to 21 °C that leads."""
        self.inside += 60 * (power + 150.0 * (self.outside - self.inside)) / 2e5
        self.minute += 1
        self.outside = 5.0 + 5.0 * np.sin(self.minute / 30)
        return self.read(), -abs(self.inside - 21.0)


if __name__ == "__main__":
    rhythm = {"random_steps": min(300, STEPS // 3), "updates_per_step": 4, "model_every": min(250, STEPS // 3)}
    sizes = SMALL if STEPS < 500 else {"model": {"hidden": 64}, "sac": {"hidden": 64}}
    with Live(obs_dim=2, low=[0.0], high=[10_000.0], **rhythm, **sizes) as live:
        room, rewards, due = Room(), [], time.monotonic()
        for step in range(1, STEPS + 1):
            action = live.act(obs := room.read())
            next_obs, reward = room.apply(float(action[0]))
            rewards.append(reward)
            cut = step % EPISODE == 0
            live.observe(obs, action, reward, next_obs, truncated=cut)
            due += PERIOD
            time.sleep(max(0.0, due - time.monotonic()))
            if cut:  # between episodes there is time to wait for the learner
                live.wait(timeout=60)
                room, due = Room(), time.monotonic()
        live.wait(timeout=60)
        print(f"{live.status['steps']} steps seen and {live.status['updates']} updates made by the learner")
    first, last = np.mean(rewards[:EPISODE]), np.mean(rewards[-EPISODE:])
    print(f"mean reward {first:.2f} in the first {EPISODE} steps, {last:.2f} in the last")
