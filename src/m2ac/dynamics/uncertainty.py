"""How far a drawn prediction may be from the truth, estimated by the ensemble's disagreement (Eq. 9 of the paper).

Each score takes the predictions of all members, the member drawn for each row, the drawn outcome, and which members
count as company; a larger score means less trust.
"""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from m2ac.dynamics.gaussian import Gaussian, geometric_js, kl, merge, negative_log_density, of_member

Score = Callable[
    [Gaussian, Int[Array, "B"], Float[Array, "B D"], Bool[Array, "K"]],
    Float[Array, "B"],
]


def _is_drawn(prediction: Gaussian, member: Int[Array, "B"]) -> Bool[Array, "K B"]:
    return jnp.arange(prediction.mean.shape[0])[:, None] == member


def one_vs_rest(
    prediction: Gaussian, member: Int[Array, "B"], outcome: Float[Array, "B D"], company: Bool[Array, "K"]
) -> Float[Array, "B"]:
    """KL[p_k ‖ p_−k]: the drawn member against the merged others (Eq. 9)."""
    others = company[:, None] & ~_is_drawn(prediction, member)
    return kl(of_member(prediction, member), merge(prediction, others))


def one_vs_all(
    prediction: Gaussian, member: Int[Array, "B"], outcome: Float[Array, "B D"], company: Bool[Array, "K"]
) -> Float[Array, "B"]:
    """KL[p_k ‖ p]: the drawn member against all merged, itself included; never above One-vs-Rest."""
    everyone = company[:, None] | _is_drawn(prediction, member)
    return kl(of_member(prediction, member), merge(prediction, everyone))


def negative_likelihood(
    prediction: Gaussian, member: Int[Array, "B"], outcome: Float[Array, "B D"], company: Bool[Array, "K"]
) -> Float[Array, "B"]:
    """−log density of the drawn outcome under all members merged; it can be negative."""
    everyone = company[:, None] | _is_drawn(prediction, member)
    return negative_log_density(merge(prediction, everyone), outcome)


def pairwise(
    prediction: Gaussian, member: Int[Array, "B"], outcome: Float[Array, "B D"], company: Bool[Array, "K"]
) -> Float[Array, "B"]:
    """The mean geometric Jensen-Shannon divergence over all pairs, the drawn member among them (MACURA)."""
    everyone = (company[:, None] | _is_drawn(prediction, member)).astype(prediction.mean.dtype)
    members = everyone.shape[0]
    total, pairs = jnp.zeros_like(everyone[0]), jnp.zeros_like(everyone[0])
    for shift in range(1, members // 2 + 1):  # every member and the one so many places behind it
        both = everyone * jnp.roll(everyone, shift, axis=0) * (0.5 if 2 * shift == members else 1.0)
        other = Gaussian(*(jnp.roll(x, shift, axis=0) for x in prediction))
        total += jnp.sum(both * geometric_js(prediction, other), axis=0)
        pairs += jnp.sum(both, axis=0)
    return total / pairs


SCORES: dict[Literal["ovr", "ova", "nll", "gjs"], Score] = {
    "ovr": one_vs_rest,
    "ova": one_vs_all,
    "nll": negative_likelihood,
    "gjs": pairwise,
}
