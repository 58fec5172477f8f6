"""What `m2ac theory` says."""

from collections.abc import Callable

import numpy as np

from m2ac.theory import statements, sweeps, toy, worlds
from m2ac.theory.check import Checked, check
from m2ac.theory.sweeps import Sweep
from m2ac.theory.toy import Learned

BATCH = 20_000
"""Worlds looked at together: some hundred megabytes."""


def tell(mdps: int, seed: int, say: Callable[[str], None]) -> bool:
    """Print how every statement fared, and whether all of it is as expected."""
    rows = _in_batches(mdps, seed)
    width = max(len(row.statement) for row in rows)
    say(f"{'statement':{width}}  {'tried':>7}  {'violated':>8}  tightest bound/gap")
    for row in rows:
        remark = "" if row.holds else "   false as printed or used: to be seen fail"
        say(f"{row.statement:{width}}  {row.tried:7d}  {row.violated:8d}  {row.tightest:18.4g}{remark}")
    example = worlds.counterexample()
    gap, first, second, printed = (
        float(x.ravel()[0])
        for x in (
            statements.theorem_2(example).gap,
            statements.theorem_1(example).value,
            statements.theorem_2(example).value,
            statements.theorem_2_of_the_appendix(example).value,
        )
    )
    say(
        f"\nThe model takes the worst for the best, once (γ = 0.9): gap {gap:.6g}, Theorem 1 says {first:.6g}, "
        f"Theorem 2 {second:.6g}, the appendix {printed:.6g}."
    )
    alone, masked, everywhere = (toy.learn(rate).real for rate in (0.0, 0.75, 1.0))
    say(
        f"A model that is wrong in a known place: return {alone:.1f} without it, {masked:.1f} with the mask at 0.75, "
        f"{everywhere:.1f} where it is trusted everywhere (MBPO)."
    )
    return all((row.violated == 0) == row.holds for row in rows if row.holds or mdps >= 100)


def _in_batches(mdps: int, seed: int) -> list[Checked]:
    """The same as one check, with no more worlds in memory than need be."""
    parts = [check(min(BATCH, mdps - begin), seed=seed + i) for i, begin in enumerate(range(0, mdps, BATCH))]
    return [
        Checked(
            same[0].statement,
            same[0].holds,
            tried=sum(row.tried for row in same),
            violated=sum(row.violated for row in same),
            tightest=min(row.tightest for row in same),
        )
        for same in zip(*parts, strict=True)
    ]


def curves() -> tuple[list[Sweep], list[Learned]]:
    """What the picture shows."""
    over = [
        sweeps.over_mask_rate(np.linspace(0.0, 1.0, 31)),
        sweeps.over_model_error(np.linspace(0.0, 1.0, 21)),
        sweeps.over_horizon(np.arange(1, 31)),
    ]
    return over, [toy.learn(float(rate)) for rate in np.linspace(0.0, 1.0, 49)]
