"""The same seed in two processes ends in the same state, for every algorithm."""

from pathlib import Path

from faults.row import Row
from faults.training import KINDS, finish, read

DEFAULT = len(KINDS)
PROPERTY = "same seed, two processes, every algorithm: equal SHA-256 of the full state"


def run(n: int, scratch: Path) -> Row:
    """Train n kinds of agents twice."""
    failures = []
    for kind, settings in list(KINDS.items())[:n]:
        ended = []
        for twin in ("one", "two"):
            out = scratch / f"{kind} {twin}"
            finish(out, settings)
            ended.append(read(out, settings))
        if ended[0] != ended[1]:
            failures.append(f"{kind}: the two ended differently")
    return Row(PROPERTY, n, n - len(failures), failures)


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
