"""A control loop at a fixed rate, with learning beside it: how many of its deadlines are missed.

    python -m benchmarks.deadlines --seconds 60 --rate 100

The machine is HalfCheetah in a thread of its own that goes on with the last action whether a new one has come or not,
as a real one would. A deadline is missed where the loop has not answered before the next tick.
"""

import argparse
import json
import threading
import time

import gymnasium as gym
import numpy as np

from m2ac import Live


class Machine(threading.Thread):
    """A simulated machine in real time."""

    def __init__(self, rate: float) -> None:
        super().__init__(daemon=True)
        self.env = gym.make("HalfCheetah-v5")
        self.period = 1 / rate
        self.action = np.zeros(6)
        self.obs, _ = self.env.reset(seed=0)
        self.seen = self.obs  # where the last step led; `obs` is already the next episode's after an end
        self.ticked = threading.Event()
        self.reward, self.ended, self.tick, self.over = 0.0, False, 0, False

    def run(self) -> None:
        """Tick for as long as it is on."""
        due = time.perf_counter()
        while not self.over:
            due += self.period
            time.sleep(max(0.0, due - time.perf_counter()))
            self.seen, reward, terminated, truncated, _ = self.env.step(self.action)
            self.reward, self.ended = float(reward), terminated or truncated
            self.obs = self.env.reset()[0] if self.ended else self.seen
            self.tick += 1
            self.ticked.set()


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--warm-up", type=float, default=0.0, help="seconds before counting begins")
    chosen = parser.parse_args()
    machine = Machine(chosen.rate)
    missed, latencies = 0, []
    space = machine.env.action_space
    with Live(17, space.low, space.high, random_steps=1000, updates_per_step=1) as live:
        machine.start()
        obs, last, began, first = machine.obs, machine.tick, time.perf_counter(), None
        while time.perf_counter() - began < chosen.seconds + chosen.warm_up:
            machine.ticked.wait()
            machine.ticked.clear()
            seen = time.perf_counter()
            tick, next_obs, led_to = machine.tick, machine.obs, machine.seen
            live.observe(obs, machine.action, machine.reward, led_to, truncated=machine.ended)
            machine.action = live.act(next_obs)
            obs = next_obs
            if seen - began >= chosen.warm_up and tick > last:
                first = tick if first is None else first
                latencies.append(time.perf_counter() - seen)
                # Ticks that went by before the loop woke up had no answer, and one that comes after the next is late.
                missed += (tick - last - 1 if tick > first else 0) + (machine.tick != tick)
            last = tick
        machine.over = True
        status = live.status
        learned = live.learned
    assert first is not None
    ticks = last - first + 1
    told = {
        "seconds": chosen.seconds,
        "rate": chosen.rate,
        "ticks": ticks,
        "missed": missed,
        "share_missed": missed / ticks,
        "answer_us": {str(q): float(np.percentile(latencies, q)) * 1e6 for q in (50, 99, 99.9, 100)},
        "learned": learned,
        "updates": status["updates"],
        "steps": status["steps"],
    }
    print(json.dumps(told, indent=2))
    return 0 if told["share_missed"] < 0.001 else 1


if __name__ == "__main__":
    raise SystemExit(main())
