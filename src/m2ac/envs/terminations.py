"""When the tasks terminate, as pure functions of one transition: (obs, action, next_obs) -> bool.

The rules are those of Gymnasium's v4 and v5 environments (the inequalities are as strict as theirs), read from the
observation. A bound is compared in the observation's precision: a float32 observation that was rounded onto the bound
itself no longer tells on which side it was. InvertedDoublePendulum has no function here: its simulator ends an
episode by the tip's height in the last Runge-Kutta stage, a state that the observation does not show.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

ANT_STATE = 27
"""Leading entries of Ant's observation that are positions and velocities; contact forces, if any, follow."""


def never(obs: Float[Array, "D"], action: Float[Array, "A"], next_obs: Float[Array, "D"]) -> Bool[Array, ""]:
    """HalfCheetah, Swimmer, Pendulum: only the time limit ends an episode."""
    return jnp.zeros((), dtype=bool)


def walker2d(obs: Float[Array, "D"], action: Float[Array, "A"], next_obs: Float[Array, "D"]) -> Bool[Array, ""]:
    """Healthy while 0.8 < height < 2 and -1 < angle < 1."""
    height, angle = next_obs[0], next_obs[1]
    return ~((height > 0.8) & (height < 2.0) & (angle > -1.0) & (angle < 1.0))


def hopper(obs: Float[Array, "D"], action: Float[Array, "A"], next_obs: Float[Array, "D"]) -> Bool[Array, ""]:
    """Healthy while height > 0.7, |angle| < 0.2 and everything but the height is within ±100.

    The simulator holds the raw velocities to ±100, the observation clips them to ±10: that part cannot be seen.
    """
    height, angle = next_obs[0], next_obs[1]
    within = jnp.all(jnp.abs(next_obs[1:]) < 100.0)
    return ~(within & (height > 0.7) & (height < jnp.inf) & (jnp.abs(angle) < 0.2))


def ant(obs: Float[Array, "D"], action: Float[Array, "A"], next_obs: Float[Array, "D"]) -> Bool[Array, ""]:
    """Healthy while the state is finite and 0.2 <= height <= 1."""
    height = next_obs[0]
    return ~(jnp.all(jnp.isfinite(next_obs[:ANT_STATE])) & (height >= 0.2) & (height <= 1.0))


def humanoid(obs: Float[Array, "D"], action: Float[Array, "A"], next_obs: Float[Array, "D"]) -> Bool[Array, ""]:
    """Healthy while 1 < height < 2."""
    height = next_obs[0]
    return ~((height > 1.0) & (height < 2.0))


def inverted_pendulum(
    obs: Float[Array, "D"], action: Float[Array, "A"], next_obs: Float[Array, "D"]
) -> Bool[Array, ""]:
    """Healthy while the observation is finite and |angle| <= 0.2."""
    return ~(jnp.all(jnp.isfinite(next_obs)) & (jnp.abs(next_obs[1]) <= 0.2))
