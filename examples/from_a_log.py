"""Start from a log: write one, learn from it alone, and score the policy in the real environment.

python examples/from_a_log.py                          # some minutes
M2AC_EXAMPLE_STEPS=60 python examples/from_a_log.py    # whether it works: seconds, small networks, learns nothing

The log is of random actions here, each held for a while; yours may be of any controller. docs/data.md has the columns.
"""

import csv
import os
import shlex
import tempfile
from pathlib import Path

import gymnasium as gym

from m2ac.cli import main

ROWS = int(os.environ.get("M2AC_EXAMPLE_STEPS", "5000"))
SMALL = shlex.split(
    "--offline-updates 20 --final-episodes 1 --model-every 20 --model.hidden 8 --model.layers 1 "
    "--model.weight-decay 0 0 --model.max-epochs 2 --sac.hidden 8 --sac.batch-size 16 --updates-per-step 1"
)


def write_log(path: Path, rows: int) -> None:
    """A step per line: what was seen, what was done, what came of it."""
    env = gym.make("Pendulum-v1")
    env.action_space.seed(0)
    names = ["obs_0", "obs_1", "obs_2", "action_0", "reward", "next_obs_0", "next_obs_1", "next_obs_2"]
    with path.open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow([*names, "terminated", "truncated"])
        obs, _ = env.reset(seed=0)
        for row in range(rows):
            action = env.action_space.sample() if row % 10 == 0 else action
            next_obs, reward, terminated, truncated, _ = env.step(action)
            log.writerow([*obs, *action, reward, *next_obs, int(terminated), int(truncated)])
            obs = env.reset()[0] if terminated or truncated else next_obs


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    write_log(folder / "log.csv", ROWS)
    run = str(folder / "run")
    learn = ["--offline-updates", "10000"] if ROWS >= 500 else SMALL
    code = main(
        ["train", "--env", "Pendulum-v1", "--data", str(folder / "log.csv"), "--steps", "0", "--out", run, *learn]
    )
    code = code or main(["eval", run, "--episodes", "3"])
    raise SystemExit(code)
