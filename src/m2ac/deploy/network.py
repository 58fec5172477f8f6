"""Everything between a raw observation and an action in the environment's units, as plain arrays."""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from m2ac.envs.actions import ActionScale
from m2ac.learners.acting import ActingPolicy, GaussianPolicy

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


class Network(NamedTuple):
    """A policy without chance. Its numbers are float32; all is computed with them in float64, as in the agent."""

    layers: tuple[tuple[F32, F32], ...]  # the last may give more than the mean action, which comes first
    hidden: Literal["relu", "tanh"]
    last: Literal["tanh", "cut"]  # what brings the mean action into [-1, 1]
    low: NDArray[np.floating[Any]]
    high: NDArray[np.floating[Any]]
    shift: F64 | None = None  # the first layer gets (observation - shift) * scale, where there are any
    scale: F64 | None = None

    @property
    def obs_dim(self) -> int:
        """Numbers in an observation."""
        return len(self.layers[0][0])

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return len(self.low)

    @property
    def middle(self) -> F64:
        """The action of 0."""
        return self.low.astype(np.float64) / 2 + self.high.astype(np.float64) / 2

    @property
    def half(self) -> F64:
        """The way from there to a bound."""
        return self.high.astype(np.float64) / 2 - self.low.astype(np.float64) / 2

    @property
    def mean_layers(self) -> tuple[tuple[F32, F32], ...]:
        """The layers with the mean action alone for a result."""
        weight, bias = self.layers[-1]
        last = np.ascontiguousarray(weight[:, : self.action_dim]), bias[: self.action_dim]
        return *self.layers[:-1], last


def network_of(policy: ActingPolicy, scale: ActionScale) -> Network:
    """The mean action of a policy, in the units of `scale`."""
    gaussian = isinstance(policy, GaussianPolicy)
    return Network(
        layers=tuple(policy.layers),
        hidden="tanh" if gaussian else "relu",
        last="cut" if gaussian else "tanh",
        low=scale.low,
        high=scale.high,
        shift=None if policy.scaling is None else policy.scaling.shift,
        scale=None if policy.scaling is None else policy.scaling.scale,
    )
