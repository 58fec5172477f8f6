"""A row of the fault campaign."""

from typing import NamedTuple


class Row(NamedTuple):
    """A property, in how many cases it was tried and in how many it held."""

    property: str
    tried: int
    held: int
    failures: list[str]  # one line for each that did not hold
