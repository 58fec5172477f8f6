"""The layers' own gradient rule against what JAX derives by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from m2ac.networks import NARROW, product


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("outputs", [1, NARROW - 1, NARROW])
def test_the_gradient_of_a_product_is_that_of_the_plain_product(shape, outputs):
    key_x, key_w, key_g = jax.random.split(jax.random.key(0), 3)
    x, w = jax.random.normal(key_x, shape), jax.random.normal(key_w, (5, outputs))
    value, backward = jax.vjp(product, x, w)
    expected, plain_backward = jax.vjp(jnp.matmul, x, w)
    gradient = jax.random.normal(key_g, value.shape)
    np.testing.assert_array_equal(value, expected)
    for ours, theirs in zip(backward(gradient), plain_backward(gradient), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
