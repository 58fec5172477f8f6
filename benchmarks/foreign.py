"""Tasks that nothing here knows, learned with no code of their own: thresholds were set before the first run.

    python -m benchmarks.foreign run --core 0
    python -m benchmarks.foreign gather

- dm_control's cartpole-swingup, through shimmy: observations in two arrays; 1000 is the most there can be. At length 4
  it was not reached (453 of 700); `m2ac trust` then advised length 20 and rate 0.8, which is the second attempt.
- Gymnasium's LunarLanderContinuous-v3: episodes that end by a crash or a landing; 200 counts as solved.
- A heated tank (`benchmarks.tank`): kelvin, pascal, metres and 1e-4 m³/s in one observation, a heater in watts; ends
  when it boils over or runs dry; a proportional controller tuned by hand gets 198, random actions 21.

`gather` writes every evaluation episode to `results/foreign.csv` and what `m2ac trust` says of the learned termination
and reward to `results/foreign.json`.
"""

import argparse
import json
import subprocess
import sys
from typing import NamedTuple

from benchmarks.learning import Run, evaluations, train_all, write
from benchmarks.team import ROOT


class Foreign(NamedTuple):
    """A task and what has to be reached there."""

    env: str
    steps: int
    horizon: int
    threshold: float
    more: tuple[str, ...] = ()


TASKS = (
    Foreign("benchmarks.tank:Tank-v0", 4_000, 4, 180.0, ("--random-steps", "500")),
    Foreign("shimmy:dm_control/cartpole-swingup-v0", 10_000, 4, 700.0, ("--random-steps", "1000")),
    Foreign(
        "shimmy:dm_control/cartpole-swingup-v0", 10_000, 20, 700.0, ("--random-steps", "1000", "--mask.rate", "0.8")
    ),
    Foreign("LunarLanderContinuous-v3", 30_000, 1, 150.0),
)


TOLD = ("step", "transitions", "error", "rank_correlation", "reward", "termination", "suggestion")
"""What of `m2ac trust` is kept."""


def runs(seeds: list[int]) -> list[Run]:
    """M2AC on every task."""
    return [Run(task.env, "m2ac", task.horizon, seed, task.steps, task.more) for seed in seeds for task in TASKS]


def gather(wanted: list[Run]) -> None:
    """Scores beside thresholds, and what the learned termination and reward are worth."""
    done = [run for run in wanted if (run.directory / "DONE").exists()]
    write(ROOT / "results" / "foreign.csv", [row for run in done for row in evaluations(run)])
    told = []
    for run in done:
        (task,) = (task for task in TASKS if (task.env, task.horizon) == (run.task, run.horizon))
        trust = run.directory / "trust.json"
        words = ["trust", str(run.directory), "--env", run.task, "--episodes", "10", "--json", str(trust)]
        subprocess.run([sys.executable, "-m", "m2ac", *words], check=True, cwd=ROOT)
        told_of = json.loads(trust.read_text())
        score = json.loads((run.directory / "DONE").read_text())["mean_return"]
        told.append(
            {
                "command": f"m2ac {' '.join(run.arguments)}",
                "return": score,
                "threshold": task.threshold,
                "reached": score >= task.threshold,
                "trust": {name: told_of[name] for name in TOLD},
            }
        )
        print(f"{run.task} length {run.horizon} seed {run.seed}: {score:.1f}, threshold {task.threshold}")
    (ROOT / "results" / "foreign.json").write_text(json.dumps(told, indent=2) + "\n")


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "gather"))
    parser.add_argument("--core", type=int, default=0, help="the core to run on")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", default="", help="what the name of a task must hold")
    chosen = parser.parse_args()
    wanted = [run for run in runs(chosen.seeds) if chosen.only in run.directory.name]
    if chosen.what == "gather":  # always all that is done: what is written replaces what was
        gather(runs([0, 1]))
        return 0
    return train_all(wanted, chosen.core)


if __name__ == "__main__":
    sys.exit(main())
