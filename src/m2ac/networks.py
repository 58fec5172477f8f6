"""Multi-layer perceptrons as plain tuples of weights.

Named tuples rather than module objects: JAX flattens them in C++, and a compiled call is made after every environment
step, where flattening a tree of Python objects would cost a tenth of a SAC update.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from m2ac.types import Key

Initialiser = Callable[[Key, int, int], Array]


class Linear(NamedTuple):
    """x W + b."""

    weight: Float[Array, "I O"]
    bias: Float[Array, "O"]


MLP = tuple[Linear, ...]


def glorot_uniform(key: Key, fan_in: int, fan_out: int) -> Float[Array, "I O"]:
    """Uniform within ±√(6/(fan_in + fan_out))."""
    limit = (6.0 / (fan_in + fan_out)) ** 0.5
    return jax.random.uniform(key, (fan_in, fan_out), minval=-limit, maxval=limit)


def truncated_normal(key: Key, fan_in: int, fan_out: int) -> Float[Array, "I O"]:
    """Standard deviation 1/(2√fan_in) before the cut at two of them, as in MBPO's models."""
    return jax.random.truncated_normal(key, -2.0, 2.0, (fan_in, fan_out)) / (2.0 * fan_in**0.5)


def orthogonal(gain: float) -> Initialiser:
    """An orthogonal matrix times the gain."""
    draw = jax.nn.initializers.orthogonal(gain)
    return lambda key, fan_in, fan_out: draw(key, (fan_in, fan_out), jnp.float32)


def init_mlp(sizes: Sequence[int], initialiser: Initialiser, *, key: Key, last: Initialiser | None = None) -> MLP:
    """Layers of the given sizes, input first, with zero biases; the last one may have an initialiser of its own."""
    keys = jax.random.split(key, len(sizes) - 1)
    initialisers = [initialiser] * (len(keys) - 1) + [last or initialiser]
    return tuple(
        Linear(weight=draw(k, fan_in, fan_out), bias=jnp.zeros(fan_out))
        for draw, k, fan_in, fan_out in zip(initialisers, keys, sizes[:-1], sizes[1:], strict=True)
    )


NARROW = 64
"""Outputs below which a layer's weight gradient is computed the other way round."""


@jax.custom_vjp
def product(x: Float[Array, "*B I"], weight: Float[Array, "I O"]) -> Float[Array, "*B O"]:
    """x W, with a gradient in the shape of product that a CPU does well."""
    return x @ weight


def _product_forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight, (x, weight)


def _product_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = saved
    rows, g = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
    if weight.shape[1] < NARROW:
        # xᵀg with few columns runs at a tenth of the speed of gᵀx. The barrier keeps the compiler from turning it back.
        return gradient @ weight.T, jax.lax.optimization_barrier(g.T @ rows).T
    return gradient @ weight.T, rows.T @ g


product.defvjp(_product_forward, _product_backward)


def apply_mlp(mlp: MLP, x: Float[Array, "*B I"], activation: Callable[[Array], Array]) -> Float[Array, "*B O"]:
    """The network's output; the last layer is linear."""
    for layer in mlp[:-1]:
        x = activation(product(x, layer.weight) + layer.bias)
    return product(x, mlp[-1].weight) + mlp[-1].bias
