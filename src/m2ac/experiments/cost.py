"""How long a run takes on one core: from runs like it that are finished, else from phases timed once and this core."""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from m2ac.experiments.trial import Trial

REFERENCE_GFLOPS = 120.0
"""Of `core_speed` where the phases below were timed, with every core busy as in a sweep."""

# Seconds on one core, medians over the cycles of the runs in results/learning-trust.csv and results/baselines.csv.
START = 15.0  # imports, and programs compiled or read from the cache
COLLECT = 2e-3  # per environment step
EVALUATE = 0.25e-3  # per step of an evaluation episode
UPDATE = {"m2ac": 8e-3, "mbpo": 8e-3, "sac": 11e-3, "ddpg": 12e-3, "mve": 39e-3, "steve": 260e-3}
PPO = 0.4e-3  # per environment step
BATCH = 27e-3  # of all members, 200 wide
EPOCHS, MORE_BATCHES = 6, 160  # of a fit: patience alone takes six epochs, and few rows more of them
SCORED, UNSCORED = 28e-6, 8e-6  # per imagined row

WIDE = {"Humanoid": 400}
"""Models that are not 200 wide."""
EPISODE = {"Pendulum-v1": 200}
"""Longest episodes that are not 1000 steps."""


class Measured(NamedTuple):
    """Runs of one kind that are finished."""

    seconds: float
    steps: int


Kind = tuple[str, str, int | None, tuple[tuple[str, str], ...]]


def kind(trial: Trial) -> Kind:
    """What decides how long a run takes, beside its steps."""
    return trial.env, trial.algo, trial.horizon, (*trial.scale, *trial.settings)


def seconds(trial: Trial, *, speed: float = 1.0, measured: Mapping[Kind, Measured] | None = None) -> float:
    """Estimated run time on one core that is `speed` times as fast as the reference."""
    known = (measured or {}).get(kind(trial))
    if known is not None:
        return known.seconds * trial.steps / known.steps
    return START + _work(trial) / speed


def _work(trial: Trial) -> float:
    chosen = dict(trial.scale) | dict(trial.settings)

    def number(name: str, default: int) -> int:
        return int(chosen.get(name, default))

    episode = EPISODE.get(trial.env, 1000)
    evaluations = trial.steps / number("eval_every", 1000) * number("eval_episodes", 5) + number("final_episodes", 10)
    evaluating = evaluations * episode * EVALUATE
    if trial.algo == "ppo":
        return trial.steps * PPO + evaluating / 10
    random_steps = number("random_steps", min(5000, trial.steps // 5))
    learning = max(0, trial.steps - random_steps)
    updates = number("updates_per_step", {"m2ac": 10, "mbpo": 10, "sac": 1}.get(trial.algo, 4))
    total = trial.steps * COLLECT + evaluating + learning * updates * UPDATE[trial.algo]
    if trial.algo in ("m2ac", "mbpo"):
        cycles = learning / number("model_every", 250)
        epoch = 0.8 * (trial.steps + random_steps) / 2 / 256
        batches = min(EPOCHS * epoch + MORE_BATCHES, number("model.max_epochs", 1000) * epoch)
        wide = (number("model.hidden", WIDE.get(trial.env.split("-")[0], 200)) / 200) ** 2
        row = SCORED if trial.algo == "m2ac" else UNSCORED
        rows = learning * updates * number("rollouts_per_update", 10) * (trial.horizon or 1)
        total += (cycles * batches * BATCH + rows * row) * wide
    return total


def wall_time(costs: Iterable[float], workers: int) -> float:
    """How long that many workers take when each takes the next run as soon as it is free."""
    busy = [0.0] * workers
    for cost in costs:
        first = busy.index(min(busy))
        busy[first] += cost
    return max(busy)


_MULTIPLY = """
import os, time
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import numpy as np
a, b = (np.random.default_rng(i).standard_normal((512, 512)).astype(np.float32) for i in (0, 1))
times = []
for _ in range(40):
    start = time.perf_counter()
    a @ b
    times.append(time.perf_counter() - start)
print(2 * 512**3 / min(times) / 1e9)
"""


def core_speed() -> float:
    """What one core of this machine does in a product of matrices, in GFLOP/s; half a second."""
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-c", _MULTIPLY], env=os.environ | one_thread, capture_output=True, text=True, check=True
    )
    return float(done.stdout)
