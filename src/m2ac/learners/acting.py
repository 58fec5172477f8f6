"""The policy in NumPy: one observation costs some 10 µs, where a compiled call costs 50 to 170.

Sampled actions are computed in float32, as the learner does. Mean actions, which are what is evaluated, predicted and
exported, are computed in float64 and rounded to float32 at the end: so they are the same alone and in a batch, on every
processor and in every format of an export, except that about one action in a million differs in its last digit.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from m2ac.learners.tanh_normal import MAX_LOG_STD, MIN_LOG_STD
from m2ac.scaling import Scaling

Layers = list[tuple[Any, Any]]
"""Weight and bias of each, as arrays of NumPy."""


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

    @cached_property
    def _mean_layers(self) -> Layers:
        """The layers in float64, the last with the mean action alone; made when first asked for, as few copies are."""
        *hidden, (weight, bias) = self.layers
        last = np.ascontiguousarray(weight[:, : self.action_dim]), bias[: self.action_dim]
        return [(weight.astype(np.float64), bias.astype(np.float64)) for weight, bias in (*hidden, last)]

    def _output(self, obs: Float[ndarray, "*B D"], layers: Layers) -> Float[ndarray, "*B O"]:
        x = obs if self.scaling is None else self.scaling.apply(obs)
        for weight, bias in layers[:-1]:
            x = self._activation(x @ weight + bias)
        weight, bias = layers[-1]
        return x @ weight + bias

    def _mean(self, obs: Float[ndarray, "*B D"]) -> Float[ndarray, "*B A"]:
        """The mean as the network gives it, in float64."""
        return self._output(obs, self._mean_layers)

    def _sample(self, obs: Float[ndarray, "*B D"], noise: Float[ndarray, "*B A"]) -> Float[ndarray, "*B A"]:
        """A sample as it is before it is brought into [-1, 1]."""
        mean, log_std = np.split(self._output(obs, self.layers), 2, axis=-1)
        return mean + np.exp(np.clip(log_std, MIN_LOG_STD, MAX_LOG_STD)) * noise

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
        return np.tanh(self._mean(obs)).astype(np.float32) if noise is None else np.tanh(self._sample(obs, noise))


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

    def _sample(self, obs: Float[ndarray, "*B D"], noise: Float[ndarray, "*B A"]) -> Float[ndarray, "*B A"]:
        """The action, disturbed before its tanh."""
        return self._output(obs, self.layers) + noise


class GaussianPolicy(ActingPolicy):
    """A policy whose actions are normal, and cut to the range of actions where they are carried out."""

    @staticmethod
    def _activation(x: Float[ndarray, "*B H"]) -> Float[ndarray, "*B H"]:
        return np.tanh(x)

    def uncut(self, obs: Float[ndarray, "*B D"], noise: Float[ndarray, "*B A"]) -> Float[ndarray, "*B A"]:
        """A sample, from standard normal noise, as it is before it is cut."""
        mean, log_std = np.split(self._output(obs, self.layers), 2, axis=-1)
        return mean + np.exp(log_std) * noise

    def __call__(
        self, obs: Float[ndarray, "*B D"], noise: Float[ndarray, "*B A"] | None = None
    ) -> Float[ndarray, "*B A"]:
        """The mean action, or with standard normal noise a sampled one; in [-1, 1]."""
        return cut(self._mean(obs).astype(np.float32) if noise is None else self.uncut(obs, noise))


def cut(action: Float[ndarray, "*B A"]) -> Float[ndarray, "*B A"]:
    """An action within the range of actions."""
    return np.clip(action, np.float32(-1.0), np.float32(1.0))
