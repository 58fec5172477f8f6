"""SIGTERM and SIGINT at random moments of a real run: it saves, says so by its exit code, and is continued."""

import random
import shutil
import signal
import time
from pathlib import Path

from faults.row import Row
from faults.training import LONGEST, Reference, differences, finish, interrupted, trials

DEFAULT = 20
PATIENCE = 10.0
BEGUN = ("exploring", "collecting")
"""What a display says once there is something to save; PPO does not explore first."""
PROPERTY = "SIGTERM / SIGINT at random moments: saved within 10 s and resumed exactly"


def run(n: int, scratch: Path) -> Row:
    """Stop n runs."""
    return trials(PROPERTY, n, scratch, _one)


def _one(out: Path, whole: Reference, rng: random.Random) -> str | None:
    number = rng.choice((signal.SIGTERM, signal.SIGINT))
    early, late = 0.3 * whole.seconds, whole.seconds
    while True:
        moment = rng.uniform(early, late)
        process = interrupted(out, whole.settings, number, moment)
        asked = time.monotonic()
        said = ""
        if process is not None:
            _, said = process.communicate(timeout=LONGEST)
            began, was_over = any(phase in said for phase in BEGUN), " finished " in said
            if began and not was_over and process.returncode:
                break
        # How long a run takes changes with the load of the machine.
        if process is None or " finished " in said:  # nothing was left to stop
            early, late = min(early, 0.8 * moment), moment
        else:  # training had not begun, so there was nothing to save
            early, late = moment, max(late, 1.2 * moment)
        shutil.rmtree(out, ignore_errors=True)
    took = time.monotonic() - asked
    if took > PATIENCE:
        return f"took {took:.1f} s"
    if process.returncode != 128 + number or "stopped and saved" not in said:
        return f"exit code {process.returncode} after {number.name}: {said.strip().splitlines()[-1:]}"
    finish(out, whole.settings)
    odd = differences(out, whole)
    return f"{' and '.join(odd)} differ" if odd else None


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
