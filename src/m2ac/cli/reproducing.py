"""The paper's figures: m2ac reproduce."""

import json
import math
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from m2ac.cli.parsing import parse
from m2ac.escaping import visible
from m2ac.experiments import cost
from m2ac.experiments.figures import EXPERIMENTS, Experiment, find_experiment
from m2ac.experiments.trial import SCALES, Trial
from m2ac.runs import disk
from m2ac.runs.board import make_board
from m2ac.runs.book import Ended
from m2ac.runs.directory import LARGEST_CONFIG
from m2ac.runs.display import duration
from m2ac.runs.jobs import Job
from m2ac.runs.pool import run_all, usable_cores
from m2ac.runs.store import is_url
from m2ac.settings import ConfigError, check


@dataclass(frozen=True)
class Reproduction:
    """Make the runs of a figure of the paper, as many at once as there are cores, and a page that shows it.

    Rerunning the same command leaves finished runs alone and continues the others; figures that have runs in common
    share them.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Which: motivating, benchmarks, noisy, ablation-rate, ablation-penalty, ablation-mode, ablation-uncertainty."""
    scale: Literal["smoke", "desk", "paper"] = "desk"
    """smoke: seconds per run; desk: one machine overnight; paper: the whole."""
    workers: int | None = None
    """Runs at once. None: one per core."""
    ray: str | None = None
    """Run on a Ray cluster: auto for the one that this machine is part of, or its address."""
    cpus: float = 1.0
    """Cores that Ray sets aside for a run, which uses one."""
    gpus: float = 0.0
    """GPUs that Ray sets aside for a run."""
    out: str | None = None
    """Where the runs go: a directory, which all nodes of a cluster must see, or with --ray a URL for fsspec such as
    s3://bucket/runs. None: runs/SCALE."""
    seeds: int | None = None
    """Of each run. None: as many as the scale has."""
    only: str | None = None
    """These runs alone, counted from 1 as --dry-run does: 3, 3-8 or 1,4,7-9. For a cluster's array jobs."""
    retries: int = 2
    """How often a run that fails is tried again, from its last checkpoint, without having come any further."""
    dry_run: bool = False
    """Print the runs, what each costs and how long it takes, and do nothing."""
    commands: bool = False
    """Print the command of each run, and do nothing."""
    report: bool = True
    """Make the page at the end."""

    def __post_init__(self) -> None:
        for name in ("workers", "seeds"):
            value = getattr(self, name)
            check(value is None or 1 <= value <= 10_000, f"{name} must be in [1, 10000], got {value}; leave it out")
        for name in ("cpus", "gpus"):
            value = getattr(self, name)
            check(0 <= value <= 10_000, f"{name} must be in [0, 10000], got {value}; leave it out")
        check(
            self.out is None or not is_url(self.out) or self.ray is not None,
            f"out must be a directory without --ray, got {self.out!r}; give one, or --ray ADDRESS",
        )
        check(0 <= self.retries <= 1000, f"retries must be in [0, 1000], got {self.retries}; 2 is the usual one")


def reproduce(args: list[str]) -> int:
    """`m2ac reproduce`."""
    if not args:
        print(_overview())
        return 0
    wanted: Reproduction = parse(Reproduction, args, "m2ac reproduce")
    experiment = find_experiment(wanted.name)
    scale = SCALES[wanted.scale]
    if wanted.seeds is not None:
        scale = scale._replace(seeds=wanted.seeds)
    trials = experiment.trials(scale)
    elsewhere = wanted.out is not None and is_url(wanted.out)
    out = Path(f"runs/{wanted.scale}" if wanted.out is None or elsewhere else wanted.out)
    chosen = trials if wanted.only is None else [trials[i - 1] for i in numbers(wanted.only, len(trials))]
    jobs = [Job(trial.name, tuple(trial.arguments), out / trial.name, trial.steps) for trial in chosen]
    if wanted.commands:
        for job in jobs:
            print(f"m2ac {shlex.join(job.command)}")
        return 0
    workers = wanted.workers or len(usable_cores())
    if wanted.dry_run:
        _tell(experiment, chosen, jobs, workers)
        return 0
    from m2ac.cli.reporting import make_page
    from m2ac.experiments.sweep import Sweep, leave_note

    names = [trial.name for trial in trials]
    leave_note(out, experiment, names)
    code = _exit_code(_run(jobs, workers, wanted, store=wanted.out if elsewhere else None))
    begun = [out / name for name in names if (out / name / "config.json").exists()]
    if wanted.report and begun:
        sweep = Sweep(experiment, out.resolve(), frozenset(names))
        page = make_page(begun, out / f"{experiment.name}.html", experiment.title, sweep.charts)
        print(f"report: {visible(str(page))}")
    return code


def _run(jobs: Sequence[Job], workers: int, wanted: Reproduction, *, store: str | None) -> Ended:
    board = make_board(sys.stderr)
    try:
        if wanted.ray is not None:
            from m2ac.runs.cluster import Needs, run_on_ray

            needs = Needs(wanted.cpus, wanted.gpus)
            return run_on_ray(jobs, address=wanted.ray, needs=needs, retries=wanted.retries, board=board, store=store)
        return run_all(jobs, workers=workers, retries=wanted.retries, board=board)
    finally:
        board.close()


def _exit_code(ended: Ended) -> int:
    failed = [outcome for outcome in ended.outcomes if outcome.state == "failed"]
    for outcome in failed:
        log = outcome.job.log
        more = f" (see {visible(str(log))})" if log.exists() else ""  # of a run on another machine it is there
        print(f"failed: {outcome.job.name}: {visible(outcome.said)}{more}")
    if any(outcome.state == "stopped" for outcome in ended.outcomes):
        print("stopped and saved; the same command continues", file=sys.stderr)
        return 128 + (ended.signal or 0)
    return 1 if failed else 0


def numbers(text: str, count: int) -> list[int]:
    """ "1,4,7-9" as numbers from 1 to `count`."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= count:
            raise ConfigError(
                f"only must be numbers in [1, {count}] such as 3, 3-8 or 1,4,7-9, got {text!r}; see --dry-run"
            )
        found += range(first, last + 1)
    return list(dict.fromkeys(found))


def _overview() -> str:
    lines = [f"  {name:22}{experiment.title}: {experiment.claim}" for name, experiment in EXPERIMENTS.items()]
    scales = [f"  --scale {name:8}{scale.summary}" for name, scale in SCALES.items()]
    return "\n".join(
        ["m2ac reproduce NAME makes the runs of a figure of the paper, and a page:", "", *lines, "", *scales]
    )


def _tell(experiment: Experiment, trials: Sequence[Trial], jobs: Sequence[Job], workers: int) -> None:
    """The runs in the order in which they are made, a line for those that differ in the seed alone; and the sums."""
    speed = cost.core_speed() / cost.REFERENCE_GFLOPS
    measured = _measured(trials, jobs)
    each = {trial: cost.seconds(trial, speed=speed, measured=measured) for trial in trials}
    groups: dict[cost.Kind, list[int]] = {}
    for number, trial in enumerate(trials, 1):
        groups.setdefault(cost.kind(trial), []).append(number)
    print(f"{experiment.title}: {experiment.claim}\n")
    print(f"{'task':20}{'algorithm':30}{'steps':>8}{'runs':>6}{'each':>9}{'together':>10}  numbers")
    for of_group in groups.values():
        trial = trials[of_group[0] - 1]
        horizon = "" if trial.horizon is None else f", H={trial.horizon}"
        what = " ".join([f"{trial.algo.upper()}{horizon}", *(f"{name}={value}" for name, value in trial.settings)])
        together = sum(each[trials[number - 1]] for number in of_group)
        told = f"{trial.steps:>8}{len(of_group):>6}{duration(each[trial]):>9}{duration(together):>10}"
        print(f"{trial.env:20}{what:30}{told}  {','.join(map(str, of_group))}")
    left = [each[trial] for trial, job in zip(trials, jobs, strict=True) if not job.done]
    print(f"\n{len(trials)} runs, {len(trials) - len(left)} of them finished")
    print(f"cost: {sum(each.values()) / 3600:.1f} core hours, {sum(left) / 3600:.1f} of them to come")
    print(f"wall time with {workers} workers: {duration(cost.wall_time(left, workers))}")
    print(
        f"estimated from {'finished runs of their kind and ' if measured else ''}phases timed elsewhere, "
        f"for a core that is {speed:.2f} times as fast as there"
    )


def _measured(trials: Sequence[Trial], jobs: Sequence[Job]) -> dict[cost.Kind, cost.Measured]:
    """What finished runs took; of several of a kind, the last."""
    found = {}
    for trial, job in zip(trials, jobs, strict=True):
        try:
            took = float(json.loads(disk.read(job.directory / "DONE", at_most=LARGEST_CONFIG))["seconds"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
        if math.isfinite(took) and took > 0:
            found[cost.kind(trial)] = cost.Measured(took, trial.steps)
    return found
