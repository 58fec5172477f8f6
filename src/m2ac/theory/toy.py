"""A world whose model is wrong in a known place: what the mask buys, exactly.

A walker starts at the left end of a path; at its right end there is a reward for ever. Halfway lies ice: who jumps
there falls into the water, for ever. Real experience covers the first part of the path alone, and no jump on the ice.
The model knows how to walk, better on the even ground of the second part, and believes that a jump on the ice leads
straight to the end.

Learning is exact: for every mask, the best policy of Eq. 7's world, which is the model where the mask is 1, real
experience where it is 0 and there is any, and the worst possible where there is none. Its return is that of the policy
in the real world. A mask that is 0 everywhere is a learner without a model; one that is 1 everywhere is MBPO.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from m2ac.theory.tabular import Tabular, q_values, returns
from m2ac.theory.worlds import rate_mask

LENGTH, ICE, KNOWN = 10, range(3, 7), 7
"""Places on the path; those where the ice is; how many of them real experience has seen."""
WALK, JUMP = 0, 1
DISCOUNT = 0.95
END, WATER = LENGTH, LENGTH + 1


class Learned(NamedTuple):
    """What a learner gets."""

    rate: float  # share of states and actions left to the model
    promised: float  # the return that it expects
    real: float  # the return that it gets


def world() -> tuple[Tabular, Bool[ndarray, "1 S A"]]:
    """The truth and the model of it; and where there is real experience."""
    p, model = np.zeros((2, LENGTH + 2, 2, LENGTH + 2))
    for place in range(LENGTH):
        for dynamics, slip in ((p, 0.1), (model, 0.1 + 0.02 * (LENGTH - place))):
            dynamics[place, WALK, place] = slip
            dynamics[place, WALK, place + 1] = 1 - slip
            dynamics[place, JUMP, place] = 1.0
    p[ICE, JUMP], model[ICE, JUMP] = np.eye(LENGTH + 2)[[WATER, END]]
    for dynamics in (p, model):
        dynamics[END, :, END] = dynamics[WATER, :, WATER] = 1.0
    reward = np.zeros((LENGTH + 2, 2))
    reward[END], reward[WATER] = 1.0, -1.0
    seen = np.zeros((LENGTH + 2, 2), dtype=bool)
    seen[:KNOWN, WALK] = seen[: ICE[0], JUMP] = seen[END:] = True
    truth = Tabular(
        p=p[None],
        model=model[None],
        reward=reward[None],
        policy=np.full((1, LENGTH + 2, 2), 0.5),
        start=np.eye(LENGTH + 2)[:1],
        mask=np.ones((1, LENGTH + 2, 2), dtype=bool),
        discount=np.array([DISCOUNT]),
    )
    return truth, seen[None]


def learn(rate: float) -> Learned:
    """The best policy for the mask of that rate, and what comes of it."""
    truth, seen = world()
    mask = rate_mask(truth.errors, np.array([rate]))
    nothing = np.zeros_like(truth.p[0, 0, 0])
    nothing[WATER] = 1.0  # where neither the model nor experience says anything, the worst is expected
    real = np.where(seen[..., None], truth.p, nothing)
    imagined = truth._replace(p=np.where(mask[..., None], truth.model, real))
    policy = best_policy(imagined)
    expected, got = (each._replace(policy=policy) for each in (imagined, truth))
    return Learned(rate, float(returns(expected, q_values(expected))[0]), float(returns(got, q_values(got))[0]))


def best_policy(world: Tabular) -> Float[ndarray, "N S A"]:
    """By policy iteration; of equals, the first action."""
    policy = np.eye(world.reward.shape[-1])[np.zeros(world.reward.shape[:2], dtype=int)]
    while True:
        q = q_values(world._replace(policy=policy))
        better = np.eye(q.shape[-1])[np.argmax(q.round(12), axis=-1)]
        if np.array_equal(better, policy):
            return policy
        policy = better
