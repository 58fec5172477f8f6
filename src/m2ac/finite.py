"""Whether numbers are finite, of whole trees of arrays at once."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool


def all_finite(tree: Any) -> Bool[Array, ""]:
    """Whether every floating-point number of the tree is finite."""
    numbers = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.all(jnp.stack([jnp.array(True), *(jnp.all(jnp.isfinite(x)) for x in numbers)]))


def first_faulty(arrays: Mapping[str, Any]) -> tuple[str, float] | None:
    """The place and value of the first number that is not finite among named arrays of the host, None without one."""
    for name, given in arrays.items():
        array = np.asarray(given)
        if not np.issubdtype(array.dtype, np.floating) or np.isfinite(array).all():
            continue
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        return name + (str(list(index)) if index else ""), float(array[index])
    return None
