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
PROPERTY = "SIGTERM / SIGINT at random moments: saved within 10 s and resumed exactly"


def run(n: int, scratch: Path) -> Row:
    """Stop n runs."""
    return trials(PROPERTY, n, scratch, _one)


def _one(out: Path, whole: Reference, rng: random.Random) -> str | None:
    number = rng.choice((signal.SIGTERM, signal.SIGINT))
    while True:
        # After the start: before it there is nothing to save, and the system ends the process.
        process = interrupted(out, whole.settings, number, rng.uniform(0.5, 1.0) * whole.seconds)
        if process is not None:
            break
        shutil.rmtree(out)
    asked = time.monotonic()
    _, said = process.communicate(timeout=LONGEST)
    took = time.monotonic() - asked
    saved = "stopped and saved" in said
    if not saved and "evaluating" in said.splitlines()[-1:]:
        saved = True  # of the end, when everything is saved already
    if took > PATIENCE:
        return f"took {took:.1f} s"
    if process.returncode not in (128 + number, -number) or (process.returncode == 128 + number and not saved):
        return f"exit code {process.returncode} after {number.name}: {said.strip().splitlines()[-1:]}"
    finish(out, whole.settings)
    odd = differences(out, whole)
    return f"{' and '.join(odd)} differ" if odd else None


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
