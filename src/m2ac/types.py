"""The words every part of the project shares: a transition, a random key, functions of a transition."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

Key = PRNGKeyArray
Params = PyTree

TerminationFn = Callable[[Any, Any, Any], Any]
"""One example: (obs, action, next_obs) -> whether the episode terminates there, in jax.numpy."""

RewardFn = Callable[[Any, Any, Any], Any]
"""One example: (obs, action, next_obs) -> reward, in jax.numpy."""


class Border(NamedTuple):
    """Below which score a row is trusted, from all rollout phases so far."""

    level: Float[Array, ""]
    phases: Int[Array, ""]


class Transition(NamedTuple):
    """One step of experience, or many with leading axes.

    Time limits (`truncated`) end an episode but are not in here: they never end the bootstrap.
    """

    obs: Float[Array, "*N D"]
    action: Float[Array, "*N A"]  # in [-1, 1], whatever the bounds of the environment; PPO's before they are cut
    reward: Float[Array, "*N"]
    next_obs: Float[Array, "*N D"]
    terminated: Bool[Array, "*N"]
