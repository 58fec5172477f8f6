"""PPO and SAC on HalfCheetah, learned by m2ac and by stable-baselines3 with the same settings, in turn on one core.

    make bench-sb3                     # or: python -m benchmarks.beside_sb3 --core 0

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

TASK = "HalfCheetah-v5"


class Course(NamedTuple):
    """How long is learned."""

    part: int  # steps
    parts: int


COURSES = {"ppo": Course(10_240, 6), "sac": Course(2_500, 4)}
LIBRARIES = {"m2ac": (sys.executable, "benchmarks.our_course"), "sb3": (str(PEERS_PYTHON), "benchmarks.sb3_course")}


def learned(library: str, algo: str, seed: int, core: int) -> dict[str, Any]:
    """One run in a process of its own: the seconds of every part, and the returns behind it."""
    python, module = LIBRARIES[library]
    course = COURSES[algo]
    done = subprocess.run(
        [python, "-m", module, algo, str(seed), str(course.part), str(course.parts)],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Final scores and times of every algorithm and library, and what they are beside each other."""
    told: dict[str, Any] = {}
    for algo, course in COURSES.items():
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


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    chosen = parser.parse_args()
    runs = []
    for seed in chosen.seeds:
        for algo in COURSES:
            for library in LIBRARIES:
                run = {"library": library, "algo": algo, "seed": seed, **learned(library, algo, seed, chosen.core)}
                runs.append(run)
                score, seconds = np.mean(run["returns"][-1]), sum(run["seconds"])
                print(f"{algo} {library:4s} seed {seed}: {score:8.1f} in {seconds:6.1f} s", flush=True)
    about = {"task": TASK, "courses": {algo: course._asdict() for algo, course in COURSES.items()}}
    told = {"about": about, "summary": summary(runs), "runs": runs}
    (ROOT / "results" / "beside-sb3.json").write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told["summary"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
