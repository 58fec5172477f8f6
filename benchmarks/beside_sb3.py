"""PPO and SAC, learned by m2ac and by stable-baselines3 with the same settings, in turn on one core.

    make bench-sb3                     # or: python -m benchmarks.beside_sb3 --core 0 --tasks Pendulum-v1

Every run learns in equal parts; after each part five episodes are played with the mean action, outside of the time.
The figures go to `results/beside-sb3.json`.
"""

import argparse
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np

from benchmarks.team import PEERS_PYTHON, ROOT


class Course(NamedTuple):
    """How long is learned."""

    part: int  # steps
    parts: int


COURSES = {
    "Pendulum-v1": {"ppo": Course(8_192, 6), "sac": Course(1_000, 5)},
    "HalfCheetah-v5": {"ppo": Course(10_240, 6), "sac": Course(2_500, 4)},
}
LIBRARIES = {"m2ac": (sys.executable, "benchmarks.our_course"), "sb3": (str(PEERS_PYTHON), "benchmarks.sb3_course")}


def learned(library: str, task: str, algo: str, seed: int, core: int) -> dict[str, Any]:
    """One run in a process of its own: the seconds of every part, and the returns behind it."""
    python, module = LIBRARIES[library]
    course = COURSES[task][algo]
    done = subprocess.run(
        [python, "-m", module, task, algo, str(seed), str(course.part), str(course.parts)],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def summary(task: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Final scores and times of every algorithm and library, and what they are beside each other."""
    told: dict[str, Any] = {}
    for algo, course in COURSES[task].items():
        for library in LIBRARIES:
            own = [run for run in runs if (run["algo"], run["library"]) == (algo, library)]
            finals = [float(np.mean(run["returns"][-1])) for run in own]
            told[f"{algo} {library}"] = {
                "final_returns": finals,
                "mean": float(np.mean(finals)),
                "std": float(np.std(finals)),
                "steps_per_second": course.part * course.parts / float(np.mean([sum(r["seconds"]) for r in own])),
                "steps_per_second_after_the_first_part": course.part
                / float(np.median([s for r in own for s in r["seconds"][1:]])),
            }
        ours, theirs = told[f"{algo} m2ac"], told[f"{algo} sb3"]
        told[f"{algo} speed, m2ac over sb3"] = {
            name: ours[name] / theirs[name] for name in ("steps_per_second", "steps_per_second_after_the_first_part")
        }
    return told


def compared(task: str, seeds: list[int], core: int) -> dict[str, Any]:
    """All runs on a task."""
    runs = []
    for seed in seeds:
        for algo in COURSES[task]:
            for library in LIBRARIES:
                run = {"library": library, "algo": algo, "seed": seed, **learned(library, task, algo, seed, core)}
                runs.append(run)
                score, seconds = np.mean(run["returns"][-1]), sum(run["seconds"])
                print(f"{algo} {library:4s} seed {seed}: {score:8.1f} in {seconds:6.1f} s", flush=True)
    courses = {algo: course._asdict() for algo, course in COURSES[task].items()}
    return {"courses": courses, "summary": summary(task, runs), "runs": runs}


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", choices=list(COURSES), default=list(COURSES))
    chosen = parser.parse_args()
    file = ROOT / "results" / "beside-sb3.json"
    told = json.loads(file.read_text()) if file.exists() else {}
    for task in chosen.tasks:
        told[task] = compared(task, chosen.seeds, chosen.core)
        file.write_text(json.dumps(told, indent=1) + "\n")
        print(json.dumps({task: told[task]["summary"]}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
