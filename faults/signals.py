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
    longest = whole.seconds
    while True:
        process = interrupted(out, whole.settings, number, rng.uniform(0.3, 1.0) * longest)
        asked = time.monotonic()
        if process is not None:
            _, said = process.communicate(timeout=LONGEST)
            # Before training begins there is nothing to save, and at the very end nothing to stop.
            if (out / "config.json").exists() and process.returncode and "exploring" in said:
                break
            longest *= 1.2
        else:  # it was over before: the machine is less busy than it was
            longest *= 0.8
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
