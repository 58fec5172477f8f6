"""What both libraries do in `beside_sb3`: learn a part, play five episodes, and so on; the time is that of learning."""

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version


def follow(
    make: Callable[[str, str, int, int], tuple[Callable[[int], object], Callable[[], list[float]]]], *packages: str
) -> None:
    """Follow the course of the command line; `make` gives how to learn some steps and how to score."""
    task, algo, seed, part, parts = *sys.argv[1:3], *(int(word) for word in sys.argv[3:6])
    learn, score = make(task, algo, seed, part * parts)
    seconds, returns = [], []
    for _ in range(parts):
        started = time.perf_counter()
        learn(part)
        seconds.append(time.perf_counter() - started)
        returns.append(score())
    versions = {package: version(package) for package in packages}
    print(json.dumps({"seconds": seconds, "returns": returns, "versions": versions}))
