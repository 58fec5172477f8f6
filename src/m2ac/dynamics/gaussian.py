"""Diagonal Gaussians: divergence, density, and the merging of several into one (section 4.3 of the paper)."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

LOG_TWO_PI = 1.8378770664093453


class Gaussian(NamedTuple):
    """Independent dimensions on the last axis; any leading axes."""

    mean: Float[Array, "*B D"]
    variance: Float[Array, "*B D"]


def kl(p: Gaussian, q: Gaussian) -> Float[Array, "*B"]:
    """KL[p ‖ q] in nats, summed over the dimensions."""
    ratio = p.variance / q.variance
    distance = jnp.square(p.mean - q.mean) / q.variance
    return 0.5 * jnp.sum(ratio - 1.0 - jnp.log(ratio) + distance, axis=-1)


def geometric_js(p: Gaussian, q: Gaussian) -> Float[Array, "*B"]:
    """The geometric Jensen-Shannon divergence in nats, summed over the dimensions: half the KL to each from √(pq).

    In its dual form, which for Gaussians is the Bhattacharyya distance −log ∫√(pq), and here written as that: nothing
    cancels.
    """
    apart = 0.25 * jnp.square(p.mean - q.mean) / (p.variance + q.variance)
    ratio = jnp.sqrt(p.variance / q.variance)
    return jnp.sum(apart + 0.5 * jnp.log1p(0.5 * jnp.square(ratio - 1.0) / ratio), axis=-1)


def negative_log_density(p: Gaussian, x: Float[Array, "*B D"]) -> Float[Array, "*B"]:
    """−log p(x) in nats, summed over the dimensions."""
    distance = jnp.square(x - p.mean) / p.variance
    return 0.5 * jnp.sum(distance + jnp.log(p.variance) + LOG_TWO_PI, axis=-1)


def merge(parts: Gaussian, included: Bool[Array, "K *B"]) -> Gaussian:
    """The Gaussian with the mean and variance of an equal mixture of the included parts (first axis)."""
    weight = included[..., None].astype(parts.mean.dtype)
    share = weight / jnp.sum(weight, axis=0)
    mean = jnp.sum(share * parts.mean, axis=0)
    # mean(var) + mean(spread²), not the paper's E[var + mean²] − mean²: equal, but that one cancels in float32.
    variance = jnp.sum(share * (parts.variance + jnp.square(parts.mean - mean)), axis=0)
    return Gaussian(mean, variance)


def pick(x: Shaped[Array, "K B *D"], member: Int[Array, "B"]) -> Shaped[Array, "B *D"]:
    """Row by row, the entry of the drawn member."""
    return x[member, jnp.arange(member.shape[0])]


def of_member(prediction: Gaussian, member: Int[Array, "B"]) -> Gaussian:
    """Row by row, the prediction of the drawn member."""
    return Gaussian(pick(prediction.mean, member), pick(prediction.variance, member))
