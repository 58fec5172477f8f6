"""Functions of the user's own, of one transition in the environment's units: checked, and for actions in [-1, 1]."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from m2ac.envs import ActionScale
from m2ac.envs.world import World
from m2ac.settings import ConfigError


def check_function(name: str, function: Any, world: World, *, kind: Literal["bool", "float"]) -> None:
    """Refuse a user's function that cannot be compiled or does not return one number, before anything is collected."""
    if function is None:
        return
    needed = f"{name} must take (obs, action, next_obs) of one transition and return one {kind}"
    remedy = "write it with jax.numpy, without if or bool() on its arguments"
    if not callable(function):
        raise ConfigError(f"{needed}, got {function!r}; pass a function")
    obs, action = (jax.ShapeDtypeStruct((n,), jnp.float32) for n in (world.obs_dim, world.action_dim))
    try:
        result = jax.eval_shape(lambda o, a, n: jnp.asarray(function(o, a, n)), obs, action, obs)
    except Exception as error:
        cause = str(error).strip().splitlines()[0] if str(error).strip() else ""
        raise ConfigError(f"{needed}; calling it raised {type(error).__name__}: {cause}; {remedy}") from error
    right = jnp.bool_ if kind == "bool" else jnp.number
    if result.shape != () or not jnp.issubdtype(result.dtype, right):
        raise ConfigError(f"{needed}, got {result.dtype} of shape {result.shape}; {remedy}")


def of_unit_actions(function: Callable[..., Any] | None, scale: ActionScale) -> Callable[..., Any] | None:
    """A user's function of environment actions as a function of actions in [-1, 1]."""
    if function is None:
        return None
    low, high = np.float32(scale.low), np.float32(scale.high)

    def in_unit_box(obs: Any, action: Any, next_obs: Any) -> Any:
        return function(obs, low + (action + 1.0) * 0.5 * (high - low), next_obs)

    return in_unit_box
