"""Which real rows a fit learns from and which it is judged by, and the units that the first give the networks."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from m2ac.dynamics.ensemble import Ensemble, target_of
from m2ac.model_config import ModelConfig
from m2ac.replay import Real
from m2ac.types import Key

SORTED_AT_LEAST = 4096
CONSTANT = 1e-6
"""A spread below this share of the size of a number is a rounding error of float32."""
UNCHANGING = 0.05
"""The unit of a target that has never changed, such as a goal's position within an episode, in spreads of the
observation. A unit of a whole spread would allow for noise that drowns it: by exp(-4 / 2) at first."""


class Split(NamedTuple):
    """Which real rows a fit learns from, and which it is judged by."""

    order: Int[Array, "N"]  # a random order of the rows; the first `holdout` are held out
    holdout: Int[Array, ""]
    train: Int[Array, ""]
    bootstrap: Int[Array, "K N"]  # for each member, positions in the train part, drawn once per fit


def split_rows(real: Real, config: ModelConfig, *, key: Key) -> Split:
    """Hold some rows out, and draw every member's bootstrap from the others."""
    key_order, key_bootstrap = jax.random.split(key)
    # A row to learn from is left even where rounding makes the share 1: an epoch of none would never end.
    most = jnp.minimum(config.holdout_max, jnp.maximum(real.size - 1, 1))
    holdout = jnp.clip((real.size * config.holdout_share).astype(jnp.int32), 1, most)
    return Split(
        order=shuffled(real.capacity, real.size, key=key_order),
        holdout=holdout,
        train=real.size - holdout,
        bootstrap=jax.random.randint(key_bootstrap, (config.members, real.capacity), 0, real.size - holdout),
    )


def shuffled(capacity: int, count: Int[Array, ""], *, key: Key) -> Int[Array, "N"]:
    """A random order of 0 .. count−1, followed by the rest.

    What is sorted is the smallest of some sizes that holds `count`: a buffer for a million rows with a thousand in it
    would spend more time in sorting than in learning. The order is the same, since a row's rank depends on its place
    and the key alone. Where seeds learn together every size is sorted, which costs a third more than the largest.
    """

    def ordered(size: int) -> Int[Array, "N"]:
        rank = jax.random.uniform(key, (size,))
        order = jnp.argsort(jnp.where(jnp.arange(size) < count, rank, 2.0)).astype(jnp.int32)
        return jnp.concatenate([order, jnp.arange(size, capacity, dtype=jnp.int32)])

    sizes = [capacity]
    while sizes[0] > SORTED_AT_LEAST:
        sizes.insert(0, -(-sizes[0] // 4))
    return jax.lax.switch(jnp.searchsorted(jnp.array(sizes), count), [partial(ordered, size) for size in sizes])


def standardised(ensemble: Ensemble, real: Real, split: Split, *, targets: bool) -> Ensemble:
    """The ensemble with the mean and standard deviation of the train part's inputs, and of its targets if asked."""
    position = jnp.zeros_like(split.order).at[split.order].set(jnp.arange(split.order.shape[0], dtype=jnp.int32))
    is_train = ((position >= split.holdout) & (position < split.holdout + split.train))[:, None]
    inputs = jnp.concatenate([real.observations[real.at], real.action], axis=-1)
    mean, std = _mean_and_std(inputs, is_train, split.train)
    ensemble = ensemble._replace(input_mean=mean, input_std=std)
    if not targets:
        return ensemble
    # What changes by less than a millionth of its own spread does not change: that is the rounding of float32.
    own = jnp.ones_like(ensemble.target_std).at[1:].set(std[: ensemble.target_std.shape[0] - 1])
    least = (CONSTANT * own).at[0].set(0.0)
    mean, std = _mean_and_std(target_of(real.rows), is_train, split.train, least, constant=UNCHANGING * own)
    return ensemble._replace(target_mean=mean, target_std=std)


def _mean_and_std(
    numbers: Float[Array, "N F"],
    is_train: Bool[Array, "N 1"],
    count: Int[Array, ""],
    least: Float[Array, "F"] | float = 0.0,
    *,
    constant: Float[Array, "F"] | float = 1.0,
) -> tuple[Float[Array, "F"], Float[Array, "F"]]:
    """Of the train part; what is constant there, or has no more than the least spread, gets the unit given for it."""
    mean = jnp.sum(jnp.where(is_train, numbers, 0.0), axis=0) / count
    variance = jnp.sum(jnp.where(is_train, jnp.square(numbers - mean), 0.0), axis=0) / count
    std = jnp.sqrt(variance)
    finite = jnp.isfinite(mean) & jnp.isfinite(std)
    # What is constant shows a spread of its rounding errors; dividing by that would blow up the smallest change.
    std = jnp.where(std <= jnp.maximum(CONSTANT * (jnp.abs(mean) + CONSTANT), least), constant, std)
    # Where numbers are so large that their squares overflow, the others of that kind are better left as they are.
    return jnp.where(finite, mean, 0.0), jnp.where(finite, std, 1.0)
