"""Every statement on many random worlds."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from m2ac.theory.statements import FALSE, TRUE, Bound, Pair, Statement
from m2ac.theory.worlds import KINDS, TIGHT

ROUNDING = 1e-9
"""By which a gap may exceed its bound, relative to their size: linear solves of small systems round by less."""


class Checked(NamedTuple):
    """How a statement fared."""

    statement: str
    holds: bool  # as it is known to; a false one is here to be seen fail
    tried: int  # worlds
    violated: int  # of them
    tightest: float  # the smallest bound / gap, 1 where nothing is lost


def check(mdps: int = 2000, *, seed: int = 0) -> list[Checked]:
    """Every statement on so many worlds of all kinds in equal parts, and on those in which the bounds are tight."""
    rng = np.random.default_rng(seed)
    sizes = [mdps // len(KINDS) + (i < mdps % len(KINDS)) for i in range(len(KINDS))]
    pairs = [make(rng, n) for make, n in zip(KINDS.values(), sizes, strict=True) if n]
    return [*_checked(TRUE, pairs, holds=True), *_checked(FALSE, pairs, holds=False)]


def _checked(statements: Mapping[str, Statement], pairs: list[Pair], *, holds: bool) -> Iterator[Checked]:
    for name, statement in statements.items():
        bounds = [statement(pair) for pair in (*pairs, *TIGHT.get(name, ()))]
        yield Checked(
            name,
            holds,
            tried=sum(len(bound.gap) for bound in bounds),
            violated=sum(int(violations(bound).sum()) for bound in bounds),
            tightest=min(tightness(bound) for bound in bounds),
        )


def violations(bound: Bound) -> np.ndarray:
    """Which instances are above their bound anywhere."""
    room = ROUNDING * (1.0 + np.abs(bound.gap) + np.abs(bound.value))
    return np.any((bound.gap > bound.value + room).reshape(len(bound.gap), -1), axis=1)


def tightness(bound: Bound) -> float:
    """The smallest bound / gap of all; infinite where there is no gap."""
    counts = bound.gap > 1e-6
    return float(np.min(np.broadcast_to(bound.value, bound.gap.shape)[counts] / bound.gap[counts], initial=np.inf))
