"""Kill a run with `kill -9`, resume it, and compare its end with the uninterrupted run's: m2ac and stable-baselines3.

Both train SAC on Pendulum-v1. Every resumed run is a line; the figures go to `results/resume-peers.json`.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from benchmarks.team import PEERS_PYTHON, ROOT
from m2ac.runs import checkpoint

EVERY = "--checkpoint-every 250"
"""How often m2ac saves: after every 250 steps in this run; stable-baselines3 is told to do the same."""
TRAIN = f"train --algo sac --env Pendulum-v1 --steps 1500 --random-steps 250 --sac.hidden 64 --no-tensorboard {EVERY}"
WRITE = 0.02
"""Seconds that a checkpoint takes to be written, roughly; a kill inside comes at a random moment of them."""
RANDOM, INSIDE = "at random", "inside a write"
"""The moments of a kill. After the second kind only the first way of resuming is tried."""

Command = Callable[[Path], list[str]]


class System(NamedTuple):
    """How a library's run is started, resumed and read."""

    start: Command
    ways: dict[str, Command]  # of resuming
    saved: str  # pattern of a checkpoint's files
    writing: str  # pattern of what appears as a checkpoint begins to be written
    last: str  # the checkpoint of the end
    result: Callable[[Path, str], dict[str, Any]]  # from the run directory and what the process printed


def m2ac_command(run: Path) -> list[str]:
    """The same for a start and a resume."""
    return [sys.executable, "-m", "m2ac", *TRAIN.split(), "--out", str(run)]


def sb3_command(how: str) -> Command:
    """See `benchmarks/sb3_resume.py`."""
    return lambda run: [str(PEERS_PYTHON), "-m", "benchmarks.sb3_resume", str(run), how]


def m2ac_result(run: Path, said: str) -> dict[str, Any]:
    """The state of the last checkpoint and the score of the end."""
    found = checkpoint.load_newest(run / "checkpoints", warn=print)
    assert found is not None
    state = found.state
    arrays = {name: hashlib.sha256(array.tobytes()) for name, array in checkpoint.named_arrays(state).items()}
    return {
        "resumed": {"steps": int(said.partition("continuing at step ")[2].partition(" ")[0] or 0)},
        "refused": [line for line in said.splitlines() if " instead" in line],
        "final": {"steps": state.counters.steps, "updates": state.counters.updates, "rows": int(state.real.size)},
        "parts": {"whole state": checkpoint.fingerprint(state)} | {name: d.hexdigest() for name, d in arrays.items()},
        "return": json.loads((run / "DONE").read_text())["mean_return"],
        "versions": {name: version(name) for name in ("m2ac", "jax", "numpy", "gymnasium")},
    }


SYSTEMS = {
    "m2ac": System(
        m2ac_command,
        {"same command": m2ac_command},
        "checkpoints/step-*",
        "checkpoints/.step-*.tmp",
        "checkpoints/step-0000001500",
        m2ac_result,
    ),
    "stable-baselines3": System(
        sb3_command("start"),
        {how: sb3_command(how) for how in ("documented", "reseeded", "own code")},
        "whole-*",  # the later of the two kinds
        "rl_model_*_steps.zip",
        "rl_model_1500_steps.zip",
        lambda _run, said: json.loads(said.splitlines()[-1]),
    ),
}


def launched(command: Command, run: Path) -> subprocess.Popen[bytes]:
    """The process, writing what it says beside the run directory."""
    run.mkdir(parents=True, exist_ok=True)
    with run.with_suffix(".txt").open("wb") as out:
        env = {**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        return subprocess.Popen(command(run), cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT)


def wait_for(process: subprocess.Popen[bytes], run: Path, pattern: str, every: float = 0.02) -> None:
    """Until another path matches, or the process ends."""
    known = set(run.glob(pattern))
    while process.poll() is None and not set(run.glob(pattern)) - known:
        time.sleep(every)


def to_the_end(system: System, command: Command, run: Path) -> dict[str, Any]:
    """Let it finish, and read what it came to; `span` are the seconds after the first checkpoint."""
    process = launched(command, run)
    wait_for(process, run, system.saved)
    began, code, said = time.monotonic(), process.wait(), run.with_suffix(".txt").read_text()
    if code != 0:
        sys.exit(f"{' '.join(command(run))} failed:\n{said[-2000:]}")
    return {**system.result(run, said), "span": time.monotonic() - began}


def killed(system: System, run: Path, draw: random.Random, *, span: float, inside: bool) -> float:
    """Kill a run at a random moment, `inside` the writing of a checkpoint; the seconds since the first checkpoint."""
    while True:
        process = launched(system.start, run)
        wait_for(process, run, system.saved)
        began = time.monotonic()
        time.sleep(draw.uniform(0, (0.6 if inside else 0.9) * span))
        if inside:
            wait_for(process, run, system.writing, every=0.0005)
            time.sleep(draw.uniform(0, WRITE))
        seconds = time.monotonic() - began
        process.kill()
        process.wait()
        if not (run / system.last).exists():
            return seconds
        shutil.rmtree(run)  # it was at its end before the kill, which leaves nothing to resume: draw again


def compared(result: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    """What is worth keeping of a resumed run."""
    differs = [name for name, digest in reference["parts"].items() if result["parts"].get(name) != digest]
    kept = {name: result[name] for name in ("resumed", "refused", "final", "return")}
    return {"equal": not differs, "differs": differs, **kept, "return_minus": result["return"] - reference["return"]}


def told(row: dict[str, Any]) -> str:
    """One resumed run in one line."""
    outcome = "equal" if row["equal"] else f"differs: {', '.join(row['differs'])}"
    return (
        f"{row['kill']:14} {row['way']:12} resumed at {row['resumed']['steps']:4}  {row['final']}  "
        f"return {row['return_minus']:+.1f}  {outcome}" + "".join(f"  refused {line}" for line in row["refused"])
    )


def resumed(name: str, run: Path, kill: str, reference: dict[str, Any], draw: random.Random) -> list[dict[str, Any]]:
    """One kill, and every way of resuming from what it left."""
    system = SYSTEMS[name]
    seconds = killed(system, run, draw, span=reference["span"], inside=kill == INSIDE)
    unfinished = [path.name for path in run.glob("checkpoints/.step-*")]  # of m2ac; the other has no name for it
    kept, rows = shutil.copytree(run, f"{run}-killed"), []
    for way, command in [*system.ways.items()][: 1 if kill == INSIDE else None]:
        shutil.rmtree(run)
        row = compared(to_the_end(system, command, shutil.copytree(kept, run)), reference)
        rows.append({"kill": kill, "seconds": seconds, "unfinished": unfinished, "way": way, **row})
        print(f"{run.name:20} {told(rows[-1])}", flush=True)
    return rows


def trials(name: str, counts: dict[str, int], scratch: Path, seed: int, pool: Executor) -> Iterator[dict[str, Any]]:
    """The uninterrupted run twice, then the kills of both kinds in turn; after each, all that is known so far."""
    system = SYSTEMS[name]
    whole = [scratch / f"{name}-whole-{i}" for i in range(2)]
    first, second = pool.map(lambda run: to_the_end(system, system.start, run), whole)
    same, reference = first["parts"] == second["parts"], {key: first[key] for key in ("final", "return", "versions")}
    print(f"{name}, uninterrupted, twice: {'equal' if same else 'NOT EQUAL'}  {first['final']}", flush=True)
    plan = sorted(((i + 0.5) / count, kill) for kill, count in counts.items() for i in range(count))

    def one(trial: int) -> list[dict[str, Any]]:
        draw = random.Random(f"{seed} {name} {trial}")
        return [{"trial": trial} | r for r in resumed(name, scratch / f"{name}-{trial}", plan[trial][1], first, draw)]

    rows: list[dict[str, Any]] = []
    for done in pool.map(one, range(len(plan))):
        rows += done
        equal = {
            f"{way}, {kill}": [r["equal"] for r in rows if (r["way"], r["kill"]) == (way, kill)]
            for way in system.ways
            for kill in counts
        }
        totals = {what: {"trials": len(values), "equal": sum(values)} for what, values in equal.items() if values}
        yield {"uninterrupted_twice_equal": same, "reference": reference, "totals": totals, "trials": rows}


def main() -> None:
    """Run both and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resume_peers", description=__doc__)
    parser.add_argument("--trials", type=int, default=10, help="kills at random moments, for each library")
    parser.add_argument("--inside", type=int, default=4, help="kills while a checkpoint is written")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, of each library")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "resume-peers.json", help="the figures")
    options = parser.parse_args()
    if not PEERS_PYTHON.exists():
        sys.exit("the other libraries are not installed; run `make bench-peers`, which sets them up")
    scratch = Path(tempfile.mkdtemp(prefix="resume-peers-"))
    print(f"the runs go to {scratch}", flush=True)
    counts = {RANDOM: options.trials, INSIDE: options.inside}
    command = " ".join(["python -m benchmarks.resume_peers", *sys.argv[1:]])
    report: dict[str, Any] = {"command": command, "seed": options.seed, "m2ac_command": f"m2ac {TRAIN} --out RUN"}
    writing = Lock()

    def follow(name: str) -> None:
        with ThreadPoolExecutor(options.jobs) as pool:
            for so_far in trials(name, counts, scratch, options.seed, pool):
                with writing:
                    report[name] = so_far
                    options.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")

    with ThreadPoolExecutor() as both:
        list(both.map(follow, SYSTEMS))


if __name__ == "__main__":
    main()
