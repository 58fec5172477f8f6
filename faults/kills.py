"""`kill -9` at random moments of a real run, which is then continued to its end."""

import random
import shutil
import signal
from pathlib import Path

from faults.row import Row
from faults.training import LONGEST, Reference, differences, finish, interrupted, trials

DEFAULT = 40
PROPERTY = "kill -9 at random moments of a real run, resumed to the end: final state equal to the uninterrupted run's"


def run(n: int, scratch: Path) -> Row:
    """Kill n runs, some of them more than once."""
    return trials(PROPERTY, n, scratch, _one)


def _one(out: Path, whole: Reference, rng: random.Random) -> str | None:
    kills, wanted, longest = 0, rng.choice((1, 1, 2)), whole.seconds
    while kills < wanted:
        moment = rng.uniform(0.3, 1.0) * longest
        process = interrupted(out, whole.settings, signal.SIGKILL, moment)
        if process is None:  # it was over before, as the machine is less busy than it was: begin again
            longest = moment
            shutil.rmtree(out)
            continue
        process.communicate(timeout=LONGEST)
        kills += 1
    if (out / "config.json").exists() and rng.random() < 0.5:
        if rng.random() < 0.5:  # to another place, as a copy from another machine would be
            out = out.rename(out.with_name(f"{out.name}-moved"))
        finish(out, whole.settings, command="resume")
    else:
        finish(out, whole.settings)
    odd = differences(out, whole)
    return f"{' and '.join(odd)} differ after {kills} kills" if odd else None


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
