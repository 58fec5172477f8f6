"""Tabular MDPs with a model of them, and the exact value of everything that the paper's statements speak of.

All arrays have a first axis of instances, so that thousands of them are one call. Transition probabilities are real
here, and errors are total variations: half the sum of absolute differences.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray


class Tabular(NamedTuple):
    """Worlds, each with a model of it, a policy and a mask."""

    p: Float[ndarray, "N S A S"]  # the true dynamics, p(s'|s, a)
    model: Float[ndarray, "N S A S"]  # the fitted ones, p̃
    reward: Float[ndarray, "N S A"]  # r, known to the model
    policy: Float[ndarray, "N S A"]  # π
    start: Float[ndarray, "N S"]  # p₀
    mask: Bool[ndarray, "N S A"]  # M: where the model is used
    discount: Float[ndarray, "N"]  # γ

    @property
    def largest_reward(self) -> Float[ndarray, "N"]:
        """r_max."""
        return np.abs(self.reward).max(axis=(1, 2))

    @property
    def factor(self) -> Float[ndarray, "N"]:
        """2 r_max / (1 − γ), which the paper calls α in its theory: what one unit of model error costs at most."""
        return 2.0 * self.largest_reward / (1.0 - self.discount)

    @property
    def errors(self) -> Float[ndarray, "N S A"]:
        """The model's error at every state and action."""
        return total_variation(self.p, self.model)

    @property
    def masked_error(self) -> Float[ndarray, "N"]:
        """ε: the largest error where the mask lets the model be used."""
        return np.where(self.mask, self.errors, 0.0).max(axis=(1, 2))


def total_variation(p: Float[ndarray, "*N D"], q: Float[ndarray, "*N D"]) -> Float[ndarray, "*N"]:
    """Half the L1 distance of distributions on the last axis."""
    return 0.5 * np.abs(p - q).sum(axis=-1)


def expected(
    dynamics: Float[ndarray, "N S A S"], policy: Float[ndarray, "N S A"], x: Float[ndarray, "N S A"]
) -> Float[ndarray, "N S A"]:
    """E[x(s', a')] after every state and action."""
    return np.einsum("nsat,nt->nsa", dynamics, (policy * x).sum(axis=-1))


def solve(
    dynamics: Float[ndarray, "N S A S"],
    policy: Float[ndarray, "N S A"],
    gain: Float[ndarray, "N S A"],
    discount: Float[ndarray, "N"] | Float[ndarray, "N S A"],
) -> Float[ndarray, "N S A"]:
    """The x with x = gain + discount · E[x(s', a')]: a Q-function where the gain is a reward."""
    n, states, actions = gain.shape
    pairs = states * actions
    discounts = np.broadcast_to(discount.reshape(n, *[1] * (3 - discount.ndim), *discount.shape[1:]), gain.shape)
    onward = np.einsum("nsat,ntb->nsatb", dynamics, policy).reshape(n, pairs, pairs)
    matrix = np.eye(pairs) - discounts.reshape(n, pairs, 1) * onward
    return np.linalg.solve(matrix, gain.reshape(n, pairs, 1)).reshape(gain.shape)


def q_values(world: Tabular) -> Float[ndarray, "N S A"]:
    """Q^π in the real world."""
    return solve(world.p, world.policy, world.reward, world.discount)


def q_model(world: Tabular) -> Float[ndarray, "N S A"]:
    """Q̃^π in the model."""
    return solve(world.model, world.policy, world.reward, world.discount)


def q_masked(world: Tabular, *, reward: Float[ndarray, "N S A"] | None = None) -> Float[ndarray, "N S A"]:
    """Q̃_mask: by the model, with the given reward or the true one, until the mask is 0 once; from there on real."""
    reward = world.reward if reward is None else reward
    gain = np.where(world.mask, reward, q_values(world))
    return solve(world.model, world.policy, gain, _discount_inside(world))


def use(world: Tabular) -> Float[ndarray, "N S A"]:
    """Σ γᵗ w(t; s, a): how much the model is used, where w is the probability that it still is at step t."""
    return spent_inside(world, np.ones_like(world.reward))


def spent_inside(world: Tabular, cost: Float[ndarray, "N S A"]) -> Float[ndarray, "N S A"]:
    """E Σ γᵗ cost(s_t, a_t) over the steps by the model, before the mask is 0 for the first time."""
    return solve(world.model, world.policy, np.where(world.mask, cost, 0.0), _discount_inside(world))


def _discount_inside(world: Tabular) -> Float[ndarray, "N S A"]:
    return np.where(world.mask, world.discount[:, None, None], 0.0)


def masked_up_to(world: Tabular, horizon: int) -> tuple[Float[ndarray, "N S A"], Float[ndarray, "N S A"]]:
    """`q_masked` and `use` where the model is used for at most so many steps."""
    real = q_values(world)
    value, used = real, np.zeros_like(real)
    discount = world.discount[:, None, None]
    for _ in range(horizon):
        value = np.where(world.mask, world.reward + discount * expected(world.model, world.policy, value), real)
        used = np.where(world.mask, 1.0 + discount * expected(world.model, world.policy, used), 0.0)
    return value, used


def q_m2ac(world: Tabular, penalty: Float[ndarray, "N"]) -> Float[ndarray, "N S A"]:
    """Eq. 7: the model where the mask is 1, at a penalty, and the real world where it is 0, for ever."""
    mixed = np.where(world.mask[..., None], world.model, world.p)
    return solve(mixed, world.policy, world.reward - penalty[:, None, None] * world.mask, world.discount)


def returns(world: Tabular, q: Float[ndarray, "N S A"]) -> Float[ndarray, "N"]:
    """J: the value of the policy's own start."""
    return (world.start[..., None] * world.policy * q).sum(axis=(1, 2))


def visits(
    dynamics: Float[ndarray, "N S A S"], policy: Float[ndarray, "N S A"], start: Float[ndarray, "N S"], steps: int
) -> Float[ndarray, "T N S A"]:
    """p_t^π(s, a) for t = 0 … steps."""
    seen = [start[..., None] * policy]
    for _ in range(steps):
        state = np.einsum("nsa,nsat->nt", seen[-1], dynamics)
        seen.append(state[..., None] * policy)
    return np.stack(seen)
