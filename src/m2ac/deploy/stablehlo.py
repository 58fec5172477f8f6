"""The policy as a StableHLO program, which JAX, and whatever else runs StableHLO, compiles for its hardware."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from m2ac.deploy.network import Network

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def program(network: Network) -> bytes:
    """A program of float32 observations (B, n) for any B, serialised with `jax.export`."""
    # Within it all is float64, as the agent does it; whoever runs it need not know.
    with jax.enable_x64(True):
        rows = export.symbolic_shape("B")
        shape = jax.ShapeDtypeStruct((*rows, network.obs_dim), jnp.float32)
        made = export.export(jax.jit(lambda obs: _act(network, obs)), platforms=PLATFORMS)(shape)
    return bytes(made.serialize())


def _act(network: Network, obs: Any) -> Any:
    x = obs
    if network.shift is not None:
        x = ((x.astype(jnp.float64) - network.shift) * network.scale).astype(jnp.float32)
    x = x.astype(jnp.float64)
    activation = jnp.tanh if network.hidden == "tanh" else jax.nn.relu
    *hidden, (last_weight, last_bias) = network.mean_layers
    for weight, bias in hidden:
        x = activation(_affine(x, weight, bias))
    unit = _affine(x, last_weight, last_bias)
    unit = (jnp.tanh(unit) if network.last == "tanh" else unit).astype(jnp.float32)
    inside = network.middle + network.half * unit.astype(jnp.float64)
    action = jnp.where(unit >= 1, network.high, jnp.where(unit <= -1, network.low, inside))
    return jnp.clip(action, network.low, network.high).astype(network.low.dtype)


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    # Kept as float32, of which the file has half the size; accelerators would round a product to fewer digits.
    return jnp.matmul(x, jnp.asarray(weight).astype(jnp.float64), precision="highest") + bias


def acting(data: bytes) -> Callable[[Any], Any]:
    """The policy that the program is."""
    call = jax.jit(export.deserialize(bytearray(data)).call)

    def act(obs: Any) -> Any:
        one = np.ndim(obs) == 1
        action = np.asarray(call(np.asarray(obs, np.float32)[None] if one else np.asarray(obs, np.float32)))
        return action[0] if one else action

    return act
