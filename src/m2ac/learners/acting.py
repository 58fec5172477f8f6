"""The policy in NumPy: one observation costs some 10 µs, where a compiled call costs 50 to 170."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from m2ac.learners.tanh_normal import MAX_LOG_STD, MIN_LOG_STD
from m2ac.scaling import Scaling


class ActingPolicy:
    """A copy of a policy network's weights that acts outside of compiled code."""

    def __init__(self, layers: Iterable[tuple[Any, Any]], scaling: Scaling | None = None) -> None:
        """`layers` are (weight, bias) pairs, such as a learner's policy network."""
        # Copies on the host: acting then costs no call into compiled code, nor does it keep an old learner alive.
        self.layers = [(np.array(weight), np.array(bias)) for weight, bias in layers]
        self.scaling = scaling if scaling is not None and not scaling.idle else None

    @property
    def obs_dim(self) -> int:
        """Numbers in an observation."""
        return int(self.layers[0][0].shape[0])

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return int(self.layers[-1][1].shape[0]) // 2

    def _output(self, obs: Float[ndarray, "*B D"]) -> Float[ndarray, "*B O"]:
        x = obs if self.scaling is None else self.scaling.apply(obs)
        for weight, bias in self.layers[:-1]:
            x = self._activation(x @ weight + bias)
        weight, bias = self.layers[-1]
        return x @ weight + bias

    @staticmethod
    def _activation(x: Float[ndarray, "*B H"]) -> Float[ndarray, "*B H"]:
        return np.maximum(x, 0.0)

    def draw(self, rng: np.random.Generator, *shape: int) -> Float[ndarray, "*noise"]:
        """The noise that a call takes for observations of that shape, without their last axis."""
        return rng.standard_normal((*shape, self.action_dim)).astype(np.float32)

    def __call__(
        self, obs: Float[ndarray, "*B D"], noise: Float[ndarray, "*B A"] | None = None
    ) -> Float[ndarray, "*B A"]:
        """The mean action, or with standard normal noise a sampled one; in [-1, 1]."""
        mean, log_std = np.split(self._output(obs), 2, axis=-1)
        if noise is not None:
            mean = mean + np.exp(np.clip(log_std, MIN_LOG_STD, MAX_LOG_STD)) * noise
        return np.tanh(mean)


class DeterministicPolicy(ActingPolicy):
    """A policy whose network gives the action alone; to explore, single numbers of it are now and then disturbed."""

    def __init__(
        self, layers: Iterable[tuple[Any, Any]], scaling: Scaling | None = None, *, exploration: float = 0.0
    ) -> None:
        """`exploration` is the probability with which each number is disturbed."""
        super().__init__(layers, scaling)
        self.exploration = exploration

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return int(self.layers[-1][1].shape[0])

    def draw(self, rng: np.random.Generator, *shape: int) -> Float[ndarray, "*noise"]:
        """Standard normal, and 0 where nothing is disturbed."""
        noise = super().draw(rng, *shape)
        return np.where(rng.random(noise.shape) < self.exploration, noise, np.float32(0.0))

    def __call__(
        self, obs: Float[ndarray, "*B D"], noise: Float[ndarray, "*B A"] | None = None
    ) -> Float[ndarray, "*B A"]:
        """The action, or with noise one that is disturbed before its tanh; in [-1, 1]."""
        raw = self._output(obs)
        return np.tanh(raw if noise is None else raw + noise)


class GaussianPolicy(ActingPolicy):
    """A policy whose actions are normal, and cut to the range of actions where they are carried out."""

    @staticmethod
    def _activation(x: Float[ndarray, "*B H"]) -> Float[ndarray, "*B H"]:
        return np.tanh(x)

    def uncut(self, obs: Float[ndarray, "*B D"], noise: Float[ndarray, "*B A"] | None) -> Float[ndarray, "*B A"]:
        """The mean, or with standard normal noise a sample, as it is before it is cut."""
        mean, log_std = np.split(self._output(obs), 2, axis=-1)
        return mean if noise is None else mean + np.exp(log_std) * noise

    def __call__(
        self, obs: Float[ndarray, "*B D"], noise: Float[ndarray, "*B A"] | None = None
    ) -> Float[ndarray, "*B A"]:
        """The mean action, or with standard normal noise a sampled one; in [-1, 1]."""
        return cut(self.uncut(obs, noise))


def cut(action: Float[ndarray, "*B A"]) -> Float[ndarray, "*B A"]:
    """An action within the range of actions."""
    return np.clip(action, np.float32(-1.0), np.float32(1.0))
