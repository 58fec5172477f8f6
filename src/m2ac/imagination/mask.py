"""Which imagined rows are kept: M(s, a) of the paper as a function of the scores of one rollout step.

A mask is a function (uncertainty, alive, h) → keep, or a `Threshold`, which remembers earlier phases. A row without a
finite score is never kept, whatever the mask.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from m2ac.types import Border

Mask = Callable[[Float[Array, "B"], Bool[Array, "B"], Int[Array, ""]], Bool[Array, "B"]]


def keep_all(uncertainty: Float[Array, "B"], alive: Bool[Array, "B"], h: Int[Array, ""]) -> Bool[Array, "B"]:
    """Every alive row: MBPO."""
    return alive & jnp.isfinite(uncertainty)


def floor_of_share(rate: Fraction | tuple[Array, Array], rows: Int[Array, ""]) -> Int[Array, ""]:
    """⌊rate · rows⌋ exactly, without leaving int32."""
    p, q = (rate.numerator, rate.denominator) if isinstance(rate, Fraction) else rate
    return p * (rows // q) + p * (rows % q) // q


@cache  # one function per schedule: what is compiled with it is found again
def rank_mask(rates: tuple[Fraction, ...]) -> Mask:
    """Line 10 of Algorithm 2: the ⌊w_h · B⌋ rows with the smallest score among the alive ones; ties go to the first."""
    numerators = np.array([r.numerator for r in rates], dtype=np.int32)
    denominators = np.array([r.denominator for r in rates], dtype=np.int32)

    def mask(uncertainty: Float[Array, "B"], alive: Bool[Array, "B"], h: Int[Array, ""]) -> Bool[Array, "B"]:
        usable = alive & jnp.isfinite(uncertainty)
        count = floor_of_share(
            (jnp.asarray(numerators)[h], jnp.asarray(denominators)[h]), jnp.sum(alive, dtype=jnp.int32)
        )
        return smallest(jnp.where(usable, uncertainty, jnp.inf), count) & usable

    return mask


def smallest(x: Float[Array, "B"], count: Int[Array, ""]) -> Bool[Array, "B"]:
    """The `count` smallest entries, none of them a NaN; ties go to the first.

    What a stable sort would put in front, without sorting: the bits of the last one are found one after the other.
    """
    unsigned = jnp.dtype(f"uint{8 * x.dtype.itemsize}").type
    sign = unsigned(1 << (8 * x.dtype.itemsize - 1))
    bits = jax.lax.bitcast_convert_type(x, unsigned)
    bits = jnp.where(bits == sign, unsigned(0), bits)  # −0 is 0; not by arithmetic, which makes tiny numbers 0 as well
    rank = jnp.where(bits >= sign, ~bits, bits | sign)  # in the order of the numbers

    def add_bit(i: Int[Array, ""], last: Array) -> Array:
        higher = last | (sign >> i.astype(unsigned))
        return jnp.where(jnp.sum(rank < higher, dtype=jnp.int32) < count, higher, last)

    last = jax.lax.fori_loop(0, 8 * x.dtype.itemsize, add_bit, unsigned(0))
    below, level = rank < last, rank == last
    room = count - jnp.sum(below, dtype=jnp.int32)
    return below | (level & (jnp.cumsum(level, dtype=jnp.int32) <= room))


class Threshold(NamedTuple):
    """A mask whose measure is what the first steps, which start from real states, are scored (MACURA)."""

    quantile: float  # of their scores
    factor: float

    def border(self, before: Border, uncertainty: Float[Array, "B"]) -> Border:
        """The mean over all phases of the factor times the quantile, with the first steps of one more."""
        usual = jnp.nanquantile(jnp.where(jnp.isfinite(uncertainty), uncertainty, jnp.nan), self.quantile)
        phases = before.phases + 1
        level = before.level + (self.factor * usual - before.level) / phases
        return jax.tree.map(lambda new, old: jnp.where(jnp.isfinite(usual), new, old), Border(level, phases), before)

    def __call__(self, border: Border, uncertainty: Float[Array, "B"], alive: Bool[Array, "B"]) -> Bool[Array, "B"]:
        """The alive rows below the border."""
        return alive & (uncertainty < border.level)


def most_rows_kept(rates: Sequence[Fraction], rollouts: int, stop: Literal["nonstop", "hardstop"]) -> int:
    """How many rows a rollout phase can keep, reached when nothing terminates: the size of a slot of D_model."""
    total, alive = 0, rollouts
    for rate in rates:
        kept = alive * rate.numerator // rate.denominator
        total += kept
        alive = kept if stop == "hardstop" else alive
    return total
