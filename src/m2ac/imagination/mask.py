"""Which imagined rows are kept: M(s, a) of the paper as a function of the scores of one rollout step.

A mask is a function (uncertainty, alive, h) → keep. A row without a finite score is never kept, whatever the mask.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

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
        order = jnp.argsort(jnp.where(usable, uncertainty, jnp.inf), stable=True)
        first = jnp.arange(order.shape[0]) < count
        return jnp.zeros_like(usable).at[order].set(first) & usable

    return mask


def most_rows_kept(rates: Sequence[Fraction], rollouts: int, stop: Literal["nonstop", "hardstop"]) -> int:
    """How many rows a rollout phase can keep, reached when nothing terminates: the size of a slot of D_model."""
    total, alive = 0, rollouts
    for rate in rates:
        kept = alive * rate.numerator // rate.denominator
        total += kept
        alive = kept if stop == "hardstop" else alive
    return total
