"""The task's functions of termination and reward, held against what happened: a wrong one teaches another task."""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from m2ac.algorithms import phases
from m2ac.imagination.rollout import Imagination
from m2ac.replay import Real

MOST_ROWS = 1000
"""Real rows looked at, the newest ones."""

WRONG_ENDS = 1
"""Steps of those in which a termination function may be wrong: near its threshold rounding may decide."""

WRONG_REWARDS = 0.1
"""Spreads of the reward that a reward function may be off by."""


class Answers(NamedTuple):
    """What the functions say of the newest rows, beside what happened; the oldest row first."""

    terminated: Bool[Array, "N"]
    truly_terminated: Bool[Array, "N"]
    reward: Float[Array, "N"]
    true_reward: Float[Array, "N"]


@partial(jax.jit, static_argnames=("rows", "how"))
def _answers(real: Real, *, rows: int, how: Imagination) -> Answers:
    """A function that is not given is not judged: what happened stands for its answer."""
    seen = jax.tree.map(lambda x: x[:, 0], phases.newest(real, rows=rows, envs=1))
    of_row = seen.obs, seen.action, seen.next_obs
    terminated = seen.terminated if how.termination_fn is None else jax.vmap(how.termination_fn)(*of_row)
    reward = seen.reward if how.reward_fn is None else jax.vmap(how.reward_fn)(*of_row)
    return Answers(terminated, seen.terminated, reward, seen.reward)


def what_is_wrong(real: Real, how: Imagination) -> str | None:
    """What the functions get wrong in the newest rows, in words; None where it is no more than rounding explains."""
    rows = min(MOST_ROWS, real.capacity)
    seen = min(rows, int(real.size))
    if not seen or (how.termination_fn is None and how.reward_fn is None):
        return None
    ends, true_ends, reward, true_reward = (np.asarray(x)[-seen:] for x in _answers(real, rows=rows, how=how))
    wrong = int(np.sum(ends != true_ends))
    if wrong > WRONG_ENDS:
        return (
            f"the termination function is wrong in {wrong} of the last {seen} steps: it has {np.sum(ends)} ends, the "
            f"environment {np.sum(true_ends)}; mend it, or leave it out to have it learned"
        )
    off, spread = np.sqrt(np.mean(np.square(reward - true_reward))), np.std(true_reward)
    if not off <= WRONG_REWARDS * spread + 1e-4 * np.abs(true_reward).max():
        return (
            f"the reward function is off by {off:.2g} in the last {seen} steps, where rewards have a spread of "
            f"{spread:.2g}; mend it, or leave it out to have it learned"
        )
    return None
