"""The same seed in two processes ends in the same state, for every algorithm."""

from pathlib import Path

from faults.row import Row
from faults.training import SETTINGS, finish, read

KINDS = (
    ("m2ac",),
    ("m2ac", "--rhythm", "epoch"),
    ("m2ac", "--mask.stop", "hardstop", "--mask.uncertainty", "nll"),
    ("mbpo",),
    ("mbpo", "--rhythm", "epoch"),
    ("sac",),
)
DEFAULT = len(KINDS)
PROPERTY = "same seed, two processes, every algorithm: equal SHA-256 of the full state"


def run(n: int, scratch: Path) -> Row:
    """Train n kinds of agents twice."""
    failures = []
    for i, (algo, *more) in enumerate(KINDS[:n]):
        chosen = ["--algo", algo, *more, *(SETTINGS if algo != "sac" else _without(SETTINGS, "--horizon"))]
        ended = []
        for twin in ("a", "b"):
            out = scratch / f"{i}-{twin}"
            finish(out, chosen)
            ended.append(read(out))
        if ended[0] != ended[1]:
            failures.append(f"{' '.join((algo, *more))}: the two ended differently")
    return Row(PROPERTY, n, n - len(failures), failures)


def _without(settings: list[str], name: str) -> list[str]:
    at = settings.index(name)
    return settings[:at] + settings[at + 2 :]


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
