"""Every algorithm on Pendulum, and a short run of each on a task of the paper, to stand beside published numbers.

    python -m benchmarks.baselines run --core 0
    python -m benchmarks.baselines gather

Runs go one after the other on one core; one that was interrupted is continued, a finished one is left alone. `gather`
writes every evaluation episode of the finished ones to `results/baselines.csv`, and prints their scores.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks.learning import Run, evaluations, train_all
from benchmarks.record import keep_commands, keep_rows
from benchmarks.team import ROOT

SMALL = ("--world.hidden", "64", "--world.layers", "2", "--world.reward-hidden", "64", "--world.reward-layers", "2")
"""For three observations and one action."""

ONE = ("--updates-per-step", "1")


def runs(seeds: Sequence[int]) -> list[Run]:
    """The quick ones first."""
    pendulum = [
        Run("Pendulum-v1", "ppo", None, 0, 100_000, ("--ppo.rollout", "4096", "--ppo.batch-size", "128")),
        Run("Pendulum-v1", "sac", None, 0, 10_000),
        Run("Pendulum-v1", "m2ac", None, 0, 2_500),
        Run("Pendulum-v1", "mbpo", None, 0, 2_500),
        Run("Pendulum-v1", "m2ac", 3, 0, 2_500, ("--mask.rule", "threshold")),
        Run("Pendulum-v1", "ddpg", None, 0, 10_000),
        Run("Pendulum-v1", "mve", None, 0, 10_000, SMALL),
        Run("Pendulum-v1", "steve", None, 0, 5_000, SMALL),
    ]
    tasks = [
        Run("HalfCheetah-v5", "ppo", None, 0, 215_000),
        Run("HalfCheetah-v5", "sac", None, 0, 50_000),
        Run("Swimmer", "mve", None, 0, 10_000, ONE),
        Run("Swimmer", "ddpg", None, 0, 50_000, ONE),
        Run("Swimmer", "steve", None, 0, 10_000, ONE),
    ]
    return [run._replace(seed=seed) for seed in seeds for run in (*pendulum, *tasks)]


def gather(chosen: Sequence[Run]) -> None:
    """Write the finished ones to `results/` and print their scores."""
    done = [run for run in chosen if (run.directory / "DONE").exists()]
    if not done:
        print("no run is finished yet")
        return
    rows = [row for run in done for row in evaluations(run)]
    keep_rows(ROOT / "results" / "baselines.csv", rows)
    keep_commands(ROOT / "results" / "baselines.json", {run.command: run.directory for run in done})
    for run in done:
        returns = [row["return"] for row in evaluations(run) if row["step"] == run.steps]
        name = f"{run.task} {run.algo} {' '.join(run.more)}".strip()
        print(f"{np.mean(returns):9.1f} ± {np.std(returns):7.1f}  {run.steps:7d} steps, seed {run.seed}  {name}")


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "gather"))
    parser.add_argument("--core", type=int, default=0, help="the core to run on")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", default="", help="a part of the names of the tasks or algorithms to run")
    chosen = parser.parse_args()
    if chosen.what == "gather":
        gather(runs(chosen.seeds))
        return 0
    return train_all([run for run in runs(chosen.seeds) if chosen.only in f"{run.task} {run.algo}"], chosen.core)


if __name__ == "__main__":
    sys.exit(main())
