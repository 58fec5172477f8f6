"""Value expansion: targets that follow a model for some steps before they ask the critics (MVE, STEVE).

Nothing here knows what the model or the critics are.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST_VARIANCE = 1e-8


def candidate_targets(
    rewards: Float[Array, "H1 *S"], ends: Float[Array, "H1 *S"], values: Float[Array, "H1 *S"], discount: float
) -> Float[Array, "H1 *S"]:
    """T₀ … T_H: after i imagined steps the value is asked for.

    The first reward and end are real, those behind imagined. `ends` says with what probability the episode ends with
    each step; `values` are those of the states that the steps lead to.
    """
    steps = jnp.arange(rewards.shape[0], dtype=rewards.dtype).reshape(-1, *[1] * (rewards.ndim - 1))
    goes_on = jnp.cumprod(1.0 - ends, axis=0)  # still going on after step i
    before = jnp.concatenate([jnp.ones_like(goes_on[:1]), goes_on[:-1]])
    collected = jnp.cumsum(discount**steps * before * rewards, axis=0)
    return collected + discount ** (steps + 1.0) * goes_on * values


def inverse_variance_weights(variances: Float[Array, "H1 *B"]) -> Float[Array, "H1 *B"]:
    """The more the members agree on a candidate, the more it counts; all sum to 1."""
    precision = 1.0 / (variances + SMALLEST_VARIANCE)
    return precision / jnp.sum(precision, axis=0)


def weighted_target(candidates: Float[Array, "H1 N *B"]) -> tuple[Float[Array, "*B"], Float[Array, "H1 *B"]]:
    """STEVE's target from N opinions on every candidate, and the candidates' weights."""
    weights = inverse_variance_weights(jnp.var(candidates, axis=1))
    return jnp.sum(weights * jnp.mean(candidates, axis=1), axis=0), weights
