"""Tasks that nothing here knows, learned with no code of their own: thresholds were set before the first run.

    python -m benchmarks.foreign run --core 0
    python -m benchmarks.foreign gather

- dm_control's cartpole-swingup, through shimmy: observations in two arrays; 1000 is the most there can be. At length 4
  it was not reached (453 of 700); `m2ac trust` then advised length 20 and rate 0.8.
- Gymnasium's LunarLanderContinuous-v3: episodes that end by a crash or a landing; 200 counts as solved. With the usual
  settings the lander hovers and the critics are too high all along, so the second attempt has more real rows in a
  batch, fewer updates and more steps; the third has what lets SAC land (`results/foreign-sac.csv`). Both hover. The
  fourth begins with a log of the controller that Gymnasium ships (`benchmarks.lander_log`). The last
  attempts have scaled targets, which predict the lander better and became the default; what reached the threshold with
  both seeds also has a mask by threshold and twice the steps. Six more that were stopped, without a log, are in
  `results/foreign-lander-stopped.csv`.
- A heated tank (`benchmarks.tank`): kelvin, pascal, metres and 1e-4 m³/s in one observation, a heater in watts; ends
  when it boils over or runs dry; a proportional controller tuned by hand gets 198, random actions 21.

What missed its threshold and was still getting better is taken on to more steps, beside its first end. `gather` writes
every evaluation episode to `results/foreign.csv`, under the steps that a run was to have, and what `m2ac trust` says of
the learned termination and reward of the finished ones to `results/foreign.json`.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.learning import Run, evaluations, train
from benchmarks.record import environment_of, keep_rows
from benchmarks.team import ROOT


class Foreign(NamedTuple):
    """A task and what has to be reached there."""

    env: str
    steps: int
    horizon: int
    threshold: float
    more: tuple[str, ...] = ()
    longer: int | None = None  # steps in all of a second attempt, which goes on where the first ended


UNSCALED = ("--model.scale-targets", "False")
"""How models were fitted when the first attempts were made."""
LANDER = ("--replay.real-share", "0.5", "--updates-per-step", "4", "--model-every", "1000")
SACS = ("--sac.learning-rate", "0.0007", "--sac.target-rate", "0.01", "--sac.temperature", "0.2")
LANDER_AS_SAC = (
    *("--random-steps", "1000", "--replay.real-share", "0.5", "--updates-per-step", "2"),
    *("--model-every", "2500", "--model.max-epochs", "10", *SACS),
)
"""With what lets SAC land (`results/foreign-sac.csv`)."""
LANDER_LONGER = (
    *("--mask.rule", "threshold", "--rollouts-per-update", "4", "--updates-per-step", "4"),
    *("--model-every", "500", "--replay.real-share", "0.2"),
)
LANDER_THRESHOLD = (
    *("--mask.rule", "threshold", "--rollouts-per-update", "10", "--updates-per-step", "4", "--model-every", "1000"),
    *("--model.max-epochs", "20", "--replay.real-share", "0.5", "--random-steps", "1000", *SACS),
)
LANDER_FROM_LOG = ("--data", "runs/lander.npz", *LANDER, "--model.max-epochs", "10")
"""The file is made by `python -m benchmarks.lander_log runs/lander.npz`."""
TANK = "benchmarks.tank:Tank-v0"
SWING_UP = "shimmy:dm_control/cartpole-swingup-v0"
MOON = "LunarLanderContinuous-v3"
AS_ADVISED = ("--random-steps", "1000", "--mask.rate", "0.8")
TASKS = (
    Foreign(TANK, 4_000, 4, 180.0, ("--random-steps", "500", *UNSCALED), longer=8_000),
    Foreign(SWING_UP, 10_000, 4, 700.0, ("--random-steps", "1000", *UNSCALED)),
    Foreign(SWING_UP, 10_000, 20, 700.0, (*AS_ADVISED, *UNSCALED), longer=20_000),
    Foreign(MOON, 30_000, 1, 150.0, UNSCALED),
    Foreign(MOON, 60_000, 1, 150.0, (*LANDER, *UNSCALED)),
    Foreign(MOON, 120_000, 1, 150.0, (*LANDER_AS_SAC, *UNSCALED)),
    Foreign(MOON, 20_000, 1, 150.0, (*LANDER_FROM_LOG, *UNSCALED)),
    Foreign(TANK, 4_000, 4, 180.0, ("--random-steps", "500")),
    Foreign(SWING_UP, 10_000, 20, 700.0, AS_ADVISED, longer=20_000),
    Foreign(MOON, 40_000, 5, 150.0, LANDER_LONGER),
    Foreign(MOON, 60_000, 2, 150.0, LANDER_THRESHOLD),
    Foreign(MOON, 20_000, 1, 150.0, LANDER_FROM_LOG),
    Foreign(MOON, 20_000, 1, 150.0, (*LANDER_FROM_LOG, "--mask.rule", "threshold"), longer=40_000),
)


TOLD = ("step", "transitions", "error", "rank_correlation", "reward", "termination", "suggestion")
"""What of `m2ac trust` is kept."""


class Attempt(NamedTuple):
    """One training that has a threshold to reach."""

    task: Foreign
    seed: int
    goes_on: bool  # from where the first attempt of this task and seed ended

    @property
    def run(self) -> Run:
        """As it was begun."""
        return Run(self.task.env, "m2ac", self.task.horizon, self.seed, self.task.steps, self.task.more)

    @property
    def directory(self) -> Path:
        """Where it is."""
        first = self.run.directory
        return first.with_name(first.name + "-longer") if self.goes_on else first

    @property
    def steps(self) -> int:
        """How many it is to have in all."""
        return (self.task.longer if self.goes_on else None) or self.task.steps

    @property
    def commands(self) -> list[str]:
        """What makes it, as it is typed."""
        begun = f"m2ac {shlex.join(self.run.arguments)}"
        return [begun, f"m2ac resume RUN {shlex.join(self._more_steps)}"] if self.goes_on else [begun]

    @property
    def _more_steps(self) -> list[str]:
        return ["--env", self.task.env, "--steps", str(self.task.longer)]

    def make(self, core: int) -> int:
        """Start or continue it on one core; its exit code."""
        print("; ".join(self.commands), flush=True)
        if not self.goes_on:
            return train(self.run, core)
        if not self.directory.exists():
            shutil.copytree(self.run.directory, self.directory)
        command = [sys.executable, "-m", "m2ac", "resume", str(self.directory), *self._more_steps]
        return subprocess.run(command, preexec_fn=lambda: os.sched_setaffinity(0, {core}), check=False).returncode

    @property
    def done(self) -> dict[str, Any] | None:
        """How it ended, if it has."""
        file = self.directory / "DONE"
        return json.loads(file.read_text()) if file.exists() else None

    @property
    def cpu(self) -> str:
        """On what it ran: another processor rounds otherwise, and a run is then another one."""
        return str(environment_of(self.directory)["cpu"])

    def told(self, score: float) -> dict[str, Any]:
        """Score beside threshold, and what the learned termination and reward are worth."""
        trust = self.directory / "trust.json"
        words = ["trust", str(self.directory), "--env", self.task.env, "--episodes", "10", "--json", str(trust)]
        subprocess.run([sys.executable, "-m", "m2ac", *words], check=True, cwd=ROOT)
        told_of = json.loads(trust.read_text())
        return {
            "commands": self.commands,
            "cpu": self.cpu,
            "return": score,
            "threshold": self.task.threshold,
            "reached": score >= self.task.threshold,
            "trust": {name: told_of[name] for name in TOLD},
        }


def attempts(seeds: list[int]) -> Iterator[Attempt]:
    """Each task as it was first tried, and where it has a second attempt that goes on, that one after it."""
    for seed in seeds:
        for task in TASKS:
            yield Attempt(task, seed, goes_on=False)
            if task.longer is not None:
                yield Attempt(task, seed, goes_on=True)


def gather() -> None:
    """Put all that is done here into `results/`."""
    rows: list[dict[str, Any]] = []
    told = []
    for attempt in attempts([0, 1]):
        if (attempt.directory / "evals.csv").exists():  # of one that was stopped too: what it missed is a result
            about = {"steps": attempt.steps, "cpu": attempt.cpu}
            rows += [row | about for row in evaluations(attempt.run, attempt.directory)]
        if (done := attempt.done) is not None:
            score = done["mean_return"]
            told.append(attempt.told(score))
            print(f"{attempt.directory.name}: {score:.1f} after {done['step']}, threshold {attempt.task.threshold}")
    keep_rows(ROOT / "results" / "foreign.csv", rows)
    path = ROOT / "results" / "foreign.json"
    made = [(one["commands"], one["cpu"]) for one in told]
    before = [one for one in json.loads(path.read_text()) if (one["commands"], one["cpu"]) not in made]
    path.write_text(json.dumps(before + told, indent=2) + "\n")


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "gather"))
    parser.add_argument("--core", type=int, default=0, help="the core to run on")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", default="", help="what the name of a run must hold")
    chosen = parser.parse_args()
    if chosen.what == "gather":
        gather()
        return 0
    codes = (each.make(chosen.core) for each in attempts(chosen.seeds) if chosen.only in each.directory.name)
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
