"""Gradients against finite differences in float64."""

import jax
import jax.numpy as jnp
from jax.test_util import check_grads


def check_gradient(function, at) -> None:
    """`function` of one pytree has the gradient that central differences show."""

    def of_arrays(x):  # JAX's checker calls with NumPy arrays
        return function(jax.tree.map(jnp.asarray, x))

    check_grads(of_arrays, (at,), order=1, modes=["rev"], atol=1e-6, rtol=1e-6)
