"""A control loop at a fixed rate, with learning beside it: how many of its deadlines are missed.

    python -m benchmarks.deadlines --seconds 60 --warm-up 75
    python -m benchmarks.deadlines --seconds 60 --warm-up 5 --control

The machine is HalfCheetah in a thread of its own that goes on with the last action whether a new one has come or not,
as a real one would. A deadline is missed where the loop has not answered before the next tick. The machine's thread has
to be woken too, so what it says of its own ticks and what the system says of processor time that others took (virtual
machines alone have any) tell a slow answer from a machine that stood still. `--control` is the same loop without m2ac,
beside processes that do nothing but keep every core as busy as learning does, at the same low priority: what it misses
is the computer's.
"""

import argparse
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

from m2ac import Live
from m2ac.live.learner import NICE


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
        self.late: list[float] = []  # seconds by which each tick came after it was due

    def run(self) -> None:
        """Tick for as long as it is on."""
        due = time.perf_counter()
        while not self.over:
            due += self.period
            time.sleep(max(0.0, due - time.perf_counter()))
            self.late.append(time.perf_counter() - due)
            self.seen, reward, terminated, truncated, _ = self.env.step(self.action)
            self.reward, self.ended = float(reward), terminated or truncated
            self.obs = self.env.reset()[0] if self.ended else self.seen
            self.tick += 1
            self.ticked.set()


class NoLearner:
    """Answers at once and learns nothing."""

    learned, status = False, {"updates": 0, "steps": 0}

    def observe(self, *_: Any, **__: Any) -> None:
        """Forget it."""

    def act(self, _: Any) -> Any:
        """Stand still."""
        return np.zeros(6)


@contextmanager
def busy_cores() -> Iterator[NoLearner]:
    """Every core at work for nobody, as politely as a learner."""
    processes = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in processes:
        process.start()
    try:
        yield NoLearner()
    finally:
        for process in processes:
            process.kill()


def _spin() -> None:
    os.nice(NICE)
    while True:
        pass


def stolen() -> float | None:
    """Seconds, summed over cores, for which others had the processor; Linux alone tells."""
    try:
        with open("/proc/stat") as file:
            return float(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--warm-up", type=float, default=0.0, help="seconds before counting begins")
    parser.add_argument("--control", action="store_true", help="the same loop without m2ac, every core kept busy")
    chosen = parser.parse_args()
    machine = Machine(chosen.rate)
    missed, latencies = 0, []
    space = machine.env.action_space
    taken_before: float | None = None
    settings = {"random_steps": 1000, "updates_per_step": 1}
    with busy_cores() if chosen.control else Live(17, space.low, space.high, **settings) as live:
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
                if first is None:
                    first, taken_before = tick, stolen()
                latencies.append(time.perf_counter() - seen)
                # Ticks that went by before the loop woke up had no answer, and one that comes after the next is late.
                missed += (tick - last - 1 if tick > first else 0) + (machine.tick != tick)
            last = tick
        taken_after = stolen()
        machine.over = True
        status = live.status
        learned = live.learned
    assert first is not None
    ticks = last - first + 1
    own = np.array(machine.late[first - 1 : last])
    told = {
        "seconds": chosen.seconds,
        "rate": chosen.rate,
        "control": chosen.control,
        "ticks": ticks,
        "missed": missed,
        "share_missed": missed / ticks,
        "answer_us": {str(q): float(np.percentile(latencies, q)) * 1e6 for q in (50, 99, 99.9, 100)},
        "machine_late_us": {str(q): float(np.percentile(own, q)) * 1e6 for q in (50, 99, 99.9, 100)},
        "machine_late_by_a_period": int(np.sum(own > machine.period)),
        "processor_seconds_taken_by_others": (
            None if taken_before is None or taken_after is None else round(taken_after - taken_before, 2)
        ),
        "learned": learned,
        "updates": status["updates"],
        "steps": status["steps"],
    }
    print(json.dumps(told, indent=2))
    return 0 if told["share_missed"] < 0.001 else 1


if __name__ == "__main__":
    raise SystemExit(main())
