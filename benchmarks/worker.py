"""One library in a process of its own: it prepares what it is asked for, then answers with one timing at a time."""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""This process may use so many."""


class Prepared(NamedTuple):
    """A phase ready to be timed."""

    measure: Callable[[], float]  # seconds per unit of work
    setting: str = ""  # the fastest of those tried


def seconds_of(call: Callable[[], Any]) -> float:
    """One call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def timed(call: Callable[[], Any], *, units: float) -> Callable[[], float]:
    """Seconds per unit of one call, after another that wakes threads and caches (or compiles)."""

    def measure() -> float:
        call()
        return seconds_of(call) / units

    return measure


def fastest(settings: Sequence[T], call: Callable[[T], Any]) -> T:
    """The setting whose calls take the least time."""
    if len(settings) == 1:
        return settings[0]

    def seconds(setting: T) -> float:
        call(setting)
        return min(seconds_of(lambda: call(setting)) for _ in range(2))

    return min(settings, key=seconds)


def thread_counts() -> list[int]:
    """1, 2, 4, … and all cores."""
    return sorted({*(2**i for i in range(CORES.bit_length()) if 2**i <= CORES), CORES})


def serve(phases: Mapping[str, Callable[[], Prepared]], *, packages: Iterable[str]) -> None:
    """Prepare the phases named on the command line, say so, and time one for each line that comes in."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not look like an answer

    def answer(value: Any) -> None:
        print(json.dumps(value), file=answers, flush=True)

    prepared = {name: phases[name]() for name in sys.argv[1:]}
    answer(
        {
            "versions": {"python": platform.python_version(), **{package: version(package) for package in packages}},
            "settings": {name: p.setting for name, p in prepared.items() if p.setting},
        }
    )
    for line in sys.stdin:
        answer(prepared[line.strip()].measure())
