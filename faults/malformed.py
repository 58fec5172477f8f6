"""Malformed environments, configurations and command lines: each is met by one clear line, or learned from and told.

`python -m faults.malformed [N]` tries N cases, taken evenly from all of them.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from faults import malformed_configs, malformed_envs
from faults.row import Row
from m2ac.runs.caching import prepare_jax


class Case(NamedTuple):
    """Something malformed, and the trial of it, which says why it does not hold or nothing."""

    name: str
    failure: Callable[[Path], str]


def _of_env(failure: Callable[[], str], scratch: Path) -> str:
    return failure()


CASES: list[Case] = [
    *(Case(f"env, {each.name}", partial(_of_env, each.failure)) for each in malformed_envs.CASES),
    *(Case(each.name, each.failure) for each in malformed_configs.CASES),
]
DEFAULT = len(CASES)


def evenly(n: int) -> list[Case]:
    """n of the cases, from the first to the last at equal distances."""
    n = min(n, len(CASES))
    return [CASES[i * len(CASES) // n] for i in range(n)]


def run(n: int, scratch: Path) -> Row:
    """Try n cases."""
    prepare_jax()
    failures = []
    cases = evenly(n)
    for i, case in enumerate(cases):
        place = scratch / f"case-{i}"
        place.mkdir()
        try:
            failure = case.failure(place)
        except Exception as error:  # what a user would see as a traceback
            failure = f"raised {type(error).__name__}: {error}"
        if failure:
            failures.append(f"{case.name}: {' '.join(failure.split())}")
    return Row("malformed envs and configs", len(cases), len(cases) - len(failures), failures)


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
