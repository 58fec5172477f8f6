"""One line of the campaign's table."""

from typing import NamedTuple


class Row(NamedTuple):
    """How often a property was put to the test, and how often it held."""

    property: str
    tried: int
    held: int
    failures: list[str]  # one line for each that did not hold
