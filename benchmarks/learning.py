"""The paper's central claim as runs: M2AC and MBPO at rollout lengths 1 and 10, without noise and with much of it.

    python -m benchmarks.learning run --core 0 --part 1/2     # and in another shell: --core 1 --part 2/2
    python -m benchmarks.learning gather
    python -m benchmarks.learning tell                        # how each ended, as a table
    python -m benchmarks.learning draw
    python -m benchmarks.learning run --of readings --core 0  # shorter runs under other readings of the paper

Runs go one after the other, each confined to one core, on whose number the last digits of every number depend. A run
that was interrupted is continued, a finished one is left alone. `gather` writes every evaluation episode to
`results/learning.csv` and every cycle's figures of trust to `results/learning-trust.csv`; `draw` needs only these.
With `--of readings` they go to `results/learning-readings.csv` and `results/learning-readings-trust.csv`, with
`--of walker` to `results/learning-walker.csv` and `results/learning-walker-trust.csv`.
"""

import argparse
import csv
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from benchmarks.record import keep_commands, keep_rows, read_rows
from benchmarks.team import ROOT
from m2ac.report.curve import BLUE, GREEN, VERMILLION
from m2ac.report.figures import paper_figures
from m2ac.report.records import Record
from m2ac.report.rendering import image

RUNS = ROOT / "runs" / "learning"
IMAGES = ROOT / "docs" / "images"

TRUST = (
    "sac/value",
    "sac/temperature",
    "critic/value",
    "critic/return",
    "critic/bonus",
    "critic/bias",
    "model/batches",
    "model/holdout_nll",
    "fresh/error",
    "fresh/error_trusted",
    "fresh/error_distrusted",
    "fresh/optimism_trusted",
    "fresh/optimism_distrusted",
    "fresh/rank_ovr",
    "fresh/rank_ova",
    "fresh/rank_nll",
    "fresh/rank_ovr_absolute",
    "fresh/rank_ova_absolute",
    "fresh/rank_nll_absolute",
    "fresh/relative_error",
    "fresh/relative_error_trusted",
    "fresh/relative_error_distrusted",
    "fresh/inside_50_obs",
    "fresh/inside_90_obs",
    "fresh/inside_50_reward",
    "fresh/inside_90_reward",
    "fresh/open_loop_error",
    "trust/uncertainty_kept",
    "trust/uncertainty_dropped",
    "trust/nonfinite_share",
    "time/judge",
    "seconds",
)
"""What of `metrics.jsonl` is gathered; of a list, its first and last value."""


class Run(NamedTuple):
    """One training run."""

    task: str
    algo: str
    horizon: int | None
    seed: int
    steps: int = 25_000
    more: tuple[str, ...] = ()  # settings as they are typed
    then: int | None = None  # steps in all, to which it was taken on when it had ended

    @property
    def directory(self) -> Path:
        """Where it is."""
        horizon = "" if self.horizon is None else f"-h{self.horizon}"
        more = "".join(f"-{word.strip('-')}" for word in self.more)
        return RUNS / re.sub(r"[^A-Za-z0-9._-]", "_", f"{self.task}-{self.algo}{horizon}-s{self.seed}{more}")

    @property
    def arguments(self) -> list[str]:
        """What is typed after `m2ac`."""
        horizon = [] if self.horizon is None else ["--horizon", str(self.horizon)]
        return [
            *["train", "--env", self.task, "--algo", self.algo, *horizon],
            *["--seed", str(self.seed), "--steps", str(self.steps), *self.more],
        ]

    @property
    def command(self) -> str:
        """As it is typed, on one core."""
        taken_on = "" if self.then is None else f" && taskset -c 0 m2ac resume RUN --steps {self.then}"
        return f"taskset -c 0 m2ac {shlex.join(self.arguments)}{taken_on}"


def comparison(seeds: Sequence[int]) -> list[Run]:
    """Both algorithms, both lengths, both tasks; a seed is complete before the next one begins.

    From the third seed on length 10 alone, where the first two disagree. Theirs of length 10 began as readings of
    15 000 steps, before what they show became the default.
    """
    tasks = "HalfCheetah-v5", "HalfCheetah-Noisy2"
    return [
        Run(task, algo, horizon, seed, *((15_000, (), 25_000) if horizon == 10 and seed < 2 else ()))
        for seed in seeds
        for task in tasks
        for horizon in ((1, 10) if seed < 2 else (10,))
        for algo in ("m2ac", "mbpo")
    ]


def walker(seeds: Sequence[int]) -> list[Run]:
    """A task with terminations, with much noise and long rollouts, for twice as long."""
    return [Run("Walker2d-Noisy2", algo, 10, seed, 50_000) for seed in seeds for algo in ("m2ac", "mbpo")]


MBPOS_FLOOR = ("--model.min-log-variance", "-10")
"""Of every reading, since each is one change of MBPO's settings; it was the default when they were made."""

READINGS: dict[str, tuple[str, ...]] = {
    "early stopping on MSE": ("--model.stop-on", "mse"),
    "all members drawn": ("--mask.draw", "all"),
    "batches from the union": ("--replay.real-share", "union"),
    "five epochs a fit": ("--model.max-epochs", "5"),
    "fewer random steps": ("--random-steps", "1000"),
}
LITERAL = ("--rhythm", "epoch")
MBPOS_RULE = ("--model.improvement-of", "value")
LAST_PHASE = ("--retain", "1")
SCALED_TARGETS = ("--model.scale-targets", "True")


def readings(seeds: Sequence[int]) -> list[Run]:
    """Where the claim is widest: much noise and long rollouts, under other readings of what the paper leaves open.

    Algorithm 1 to the letter, for as long as the comparison, early stopping by MBPO's rule and rows of the last phase
    alone are tried without noise as well. MBPO's settings as they are have all runs of the comparison. Scaled targets
    are no reading of the paper, but what other tasks have.
    """
    tasks = "HalfCheetah-Noisy2", "HalfCheetah-v5"
    ways: list[tuple[str, tuple[str, ...], int, int | None]] = [
        *((task, LITERAL, 25_000, None) for task in tasks),
        *((task, MBPOS_RULE, 15_000, 25_000 if task == tasks[0] else None) for task in tasks),
        *((task, LAST_PHASE, 15_000, 25_000) for task in tasks),
        (tasks[0], SCALED_TARGETS, 25_000, None),
        *((tasks[0], more, 15_000, None) for more in READINGS.values()),
    ]
    return [
        *(
            Run(task, algo, 10, seed, steps, (*more, *MBPOS_FLOOR), then)
            for seed in seeds
            for task, more, steps, then in ways
            for algo in ("m2ac", "mbpo")
        ),
        *(Run(*run[:4], more=MBPOS_FLOOR) for run in comparison(seeds)),
    ]


def train_all(runs: Sequence[Run], core: int) -> int:
    """Start or continue the runs on one core, one after the other; the exit code of the first that fails."""
    for run in runs:
        print(f"m2ac {shlex.join(run.arguments)}", flush=True)
        if code := train(run, core):
            return code
    return 0


def train(run: Run, core: int) -> int:
    """Start or continue a run on one core; its exit code."""
    settings = run.directory / "config.json"
    taken_on = settings.exists() and json.loads(settings.read_text())["steps"] == run.then
    code = 0 if taken_on else _m2ac([*run.arguments, "--out", str(run.directory)], core)
    if code or run.then is None:
        return code
    return _m2ac(["resume", str(run.directory), "--steps", str(run.then)], core)


def _m2ac(arguments: Sequence[str], core: int) -> int:
    command = [sys.executable, "-m", "m2ac", *arguments]
    return subprocess.run(command, preexec_fn=lambda: os.sched_setaffinity(0, {core}), check=False).returncode


def evaluations(run: Run, directory: Path | None = None) -> Iterator[dict[str, Any]]:
    """Every evaluation episode, as a row of `results/learning.csv`."""
    with open((directory or run.directory) / "evals.csv", newline="") as file:
        for row in csv.DictReader(file):
            yield {
                **_of_run(run),
                "step": int(row["step"]),
                "episode": int(row["episode"]),
                "return": float(row["return"]),
            }


def trust(run: Run) -> Iterator[dict[str, Any]]:
    """Every cycle, as a row of `results/learning-trust.csv`."""
    for line in (run.directory / "metrics.jsonl").read_text().splitlines():
        metrics = json.loads(line)
        row = {**_of_run(run), "step": metrics["step"]}
        for name in TRUST:
            value = metrics.get(name)
            if isinstance(value, list):
                row |= {f"{name}_first": _short(value[0]), f"{name}_last": _short(value[-1])}
            else:
                row[name] = _short(value)
        yield row


def _of_run(run: Run) -> dict[str, Any]:
    about = {"task": run.task, "algo": run.algo, "horizon": run.horizon or "", "seed": run.seed}
    return {**about, "settings": " ".join(run.more)} if run.more else about


def _short(value: float | None) -> float | str:
    return "" if value is None else float(f"{value:.5g}")


def gather(runs: Sequence[Run], name: str) -> None:
    """Put the finished ones of the runs into `results/`."""
    done = [run for run in runs if (run.directory / "DONE").exists()]
    results = ROOT / "results"
    keep_rows(results / f"{name}.csv", [row for run in done for row in evaluations(run)])
    keep_rows(results / f"{name}-trust.csv", [row for run in done for row in trust(run)])
    keep_commands(results / f"{name}.json", {run.command: run.directory for run in done})


def tell() -> None:
    """Print, as a table, how each run on record ended: its last evaluation, and the mean of its last five."""
    rows = [
        row
        for name in ("learning.csv", "learning-walker.csv", "learning-readings.csv")
        for row in read_rows(ROOT / "results" / name)
    ]
    runs: dict[tuple[str, ...], dict[int, list[float]]] = {}
    for row in rows:
        run = *(row[name] for name in ("task", "algo", "horizon", "seed")), row.get("settings", "")
        runs.setdefault(run, {}).setdefault(int(row["step"]), []).append(float(row["return"]))
    print("| task | algorithm | length | seed | settings | steps | at the end | mean of the last five evaluations |")
    print("|---|---|---:|---:|---|---:|---:|---:|")
    for (task, algo, horizon, seed, settings), at in sorted(runs.items()):
        *_, last = at
        five = np.mean([np.mean(returns) for returns in list(at.values())[-5:]])
        end = f"{np.mean(at[last]):.0f} ± {np.std(at[last]):.0f}"
        print(f"| {task} | {algo} | {horizon} | {seed} | {settings} | {last} | {end} | {five:.0f} |")


STYLES = {"m2ac": ("M2AC", BLUE), "mbpo": ("MBPO", VERMILLION), "sac": ("SAC", GREEN)}
LINES = {1: "-", 10: (0, (4, 2)), None: ":"}

Key = tuple[str, str, int | None]
"""Task, algorithm, rollout length."""


def draw() -> None:
    """Learning curves, and the figures of trust behind them, as pictures in `docs/images`."""
    evals, cycles = (read_rows(ROOT / "results" / name) for name in ("learning.csv", "learning-trust.csv"))
    tasks = list(dict.fromkeys(row["task"] for row in evals))
    figure = _figure((10, 4.2))
    for panel, task in zip(figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0], tasks, strict=True):
        _curves(panel, evals, "return", task)
        panel.set(title=task, xlabel="real steps")
    figure.axes[0].set_ylabel("return of an evaluation episode")
    figure.axes[0].legend(frameon=False)
    figure.savefig(IMAGES / "learning.png")

    panels = {
        "fresh/rank_ovr": "rank correlation of One-vs-Rest\nwith the true error",
        "fresh/inside_90_obs": "share of real next states inside\nthe model's 90 % interval",
        "fresh/open_loop_error_last": "error after 10 steps on its own\n(spreads of the observation)",
        "critic/bias": "value − return − entropy bonus",
    }
    figure = _figure((12, 2.6 * len(tasks)))
    for row, task in zip(figure.subplots(len(tasks), len(panels), sharex=True, squeeze=False), tasks, strict=True):
        for panel, (name, title) in zip(row, panels.items(), strict=True):
            _curves(panel, cycles, name, task)
            panel.set_title(title, fontsize=9)
        row[0].set_ylabel(task)
    figure.axes[-1].legend(frameon=False, fontsize=8)
    figure.savefig(IMAGES / "learning-trust.png")

    for chart in paper_figures("motivating", recorded(evals)):
        (IMAGES / f"{chart.slug}.png").write_bytes(image(chart.figure, "png"))


def recorded(evals: Sequence[Mapping[str, str]]) -> list[Record]:
    """The runs of a table of evaluations, as a report knows them."""
    runs: dict[tuple[str, str, int, int], list[dict[str, float]]] = {}
    for row in evals:
        key = row["task"], row["algo"], int(row["horizon"]), int(row["seed"])
        runs.setdefault(key, []).append({"step": int(row["step"]), "return": float(row["return"])})
    return [
        Record(
            *(f"{env}-{algo}-h{horizon}-s{seed}", env, algo, horizon, seed, 25_000),
            *("", "finished", {}, {}, ""),
            evals=episodes,
        )
        for (env, algo, horizon, seed), episodes in runs.items()
    ]


def _figure(size: tuple[float, float]) -> Figure:
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _curves(panel: Axes, rows: list[dict[str, str]], name: str, task: str) -> None:
    """One line per algorithm and rollout length, the mean of its seeds, and each seed as a thin line."""
    points: dict[Key, dict[int, dict[int, list[float]]]] = {}
    for row in rows:
        if row["task"] == task and row[name]:
            key = task, row["algo"], int(row["horizon"]) if row["horizon"] else None
            at = points.setdefault(key, {}).setdefault(int(row["seed"]), {})
            at.setdefault(int(row["step"]), []).append(float(row[name]))
    for (_, algo, horizon), seeds in points.items():
        label, colour = STYLES[algo]
        means = {seed: {step: float(np.mean(values)) for step, values in at.items()} for seed, at in seeds.items()}
        for own in means.values():
            panel.plot(list(own), list(own.values()), color=colour, linestyle=LINES[horizon], alpha=0.3, linewidth=0.8)
        common = sorted(set.intersection(*(set(own) for own in means.values())))
        mean = [np.mean([own[step] for own in means.values()]) for step in common]
        length = "" if horizon is None else f", H = {horizon}"
        panel.plot(common, mean, color=colour, linestyle=LINES[horizon], label=f"{label}{length}")
    panel.spines[["top", "right"]].set_visible(False)
    panel.xaxis.set_major_locator(MultipleLocator(5000))


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "gather", "tell", "draw"))
    parser.add_argument("--core", type=int, default=0, help="the core to run on")
    parser.add_argument("--part", default="1/1", help="1/2: every second run, from the first on")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    sets = {"comparison": comparison, "walker": walker, "readings": readings}
    names = {"comparison": "learning", "walker": "learning-walker", "readings": "learning-readings"}
    parser.add_argument("--of", choices=sets, default="comparison")
    chosen = parser.parse_args()
    runs = sets[chosen.of](chosen.seeds)
    if chosen.what == "gather":
        gather(runs, names[chosen.of])
        return 0
    if chosen.what in ("tell", "draw"):
        {"tell": tell, "draw": draw}[chosen.what]()
        return 0
    part, parts = (int(number) for number in chosen.part.split("/"))
    return train_all(runs[part - 1 :: parts], chosen.core)


if __name__ == "__main__":
    sys.exit(main())
