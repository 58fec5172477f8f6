"""One line of the campaign's table."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """How often a property was put to the test, and how often it held."""

    property: str
    tried: int
    held: int
    failures: list[str]  # one line for each that did not hold


def show(row: Row) -> None:
    """The row, and what did not hold."""
    print(f"{row.property}: tried {row.tried}, held {row.held}", flush=True)
    for failure in row.failures[:20]:
        print(f"    {failure}", flush=True)


def alone(run: Callable[[int, Path], Row], default: int) -> None:
    """`python -m faults.NAME [N]`: one row by itself."""
    with tempfile.TemporaryDirectory() as scratch:
        show(run(int(sys.argv[1]) if len(sys.argv) > 1 else default, Path(scratch)))
