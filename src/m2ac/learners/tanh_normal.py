"""The policy's distribution: a Gaussian squashed by tanh, with exact log-probabilities at any saturation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LOG_TWO = 0.6931471805599453
HALF_LOG_TWO_PI = 0.9189385332046727
MIN_LOG_STD, MAX_LOG_STD = -20.0, 2.0


class TanhNormal(NamedTuple):
    """tanh(N(mean, exp(log_std)²)), independent dimensions on the last axis."""

    mean: Float[Array, "*B A"]
    log_std: Float[Array, "*B A"]


def from_output(output: Float[Array, "*B A2"]) -> TanhNormal:
    """The distribution a policy network's output stands for."""
    mean, log_std = jnp.split(output, 2, axis=-1)
    return TanhNormal(mean, jnp.clip(log_std, MIN_LOG_STD, MAX_LOG_STD))


def log_prob_of_pre_tanh(p: TanhNormal, x: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    """Log density of tanh(x), from x itself: the action alone has lost it where tanh rounds to ±1."""
    return _log_prob(p, x, (x - p.mean) * jnp.exp(-p.log_std))


def sample(p: TanhNormal, noise: Float[Array, "*B A"]) -> tuple[Float[Array, "*B A"], Float[Array, "*B"]]:
    """A reparametrised action from standard normal noise, and its log-probability."""
    x = p.mean + jnp.exp(p.log_std) * noise
    # The noise itself: going back to it through x would lose digits where log_std is small.
    return jnp.tanh(x), _log_prob(p, x, noise)


def _log_prob(p: TanhNormal, x: Float[Array, "*B A"], z: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    """Log density of tanh(x), where x = mean + std · z."""
    normal = -0.5 * jnp.square(z) - p.log_std - HALF_LOG_TWO_PI
    # log(1 − tanh²x) = 2 (log 2 − x − softplus(−2x)), finite for every x.
    log_slope = 2.0 * (LOG_TWO - x - jax.nn.softplus(-2.0 * x))
    return jnp.sum(normal - log_slope, axis=-1)
