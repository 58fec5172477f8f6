"""What the bounds say as the mask, the model and the rollouts change: the curves behind "when it is confident"."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from m2ac.theory import tabular
from m2ac.theory.statements import Bound, theorem_2
from m2ac.theory.worlds import dense, rate_mask, some_mask

WORLDS = 400
DISCOUNT = 0.9


class Sweep(NamedTuple):
    """Means over worlds of the largest gap of any state and action, and of its bound."""

    over: str
    at: Float[ndarray, "N"]
    gap: Float[ndarray, "N"]
    bound: Float[ndarray, "N"]


def over_mask_rate(rates: Float[ndarray, "N"], *, seed: int = 0) -> Sweep:
    """A larger share of all states and actions is left to the model, the best known first."""
    pair = dense(np.random.default_rng(seed), WORLDS)
    world = pair.real._replace(discount=np.full(WORLDS, DISCOUNT))
    rows = []
    for rate in rates:
        masked = world._replace(mask=rate_mask(world.errors, np.full(WORLDS, rate)))
        rows.append(_largest(theorem_2(pair._replace(real=masked))))
    return Sweep("share of states and actions left to the model", rates, *np.array(rows).T)


def over_model_error(errors: Float[ndarray, "N"], *, seed: int = 0) -> Sweep:
    """The model is a mixture of the truth and something else, of which there is more and more."""
    rng = np.random.default_rng(seed)
    pair = dense(rng, WORLDS)
    world = pair.real._replace(discount=np.full(WORLDS, DISCOUNT))
    other = rng.dirichlet(np.ones(world.p.shape[-1]), size=world.p.shape[:3])
    rows = []
    for share in errors:
        worse = world._replace(model=(1 - share) * world.p + share * other)
        rows.append(_largest(theorem_2(pair._replace(real=worse))))
    return Sweep("share of something else in the model", errors, *np.array(rows).T)


def over_horizon(horizons: Float[ndarray, "N"], *, seed: int = 0) -> Sweep:
    """Rollouts by the model may be longer and longer."""
    rng = np.random.default_rng(seed)
    pair = dense(rng, WORLDS)
    world = pair.real._replace(discount=np.full(WORLDS, DISCOUNT))
    world = world._replace(mask=some_mask(rng, world.errors))
    real = tabular.q_values(world)
    rows = []
    for horizon in horizons:
        value, used = tabular.masked_up_to(world, int(horizon))
        bound = (world.factor * world.masked_error)[:, None, None] * used
        rows.append([np.abs(value - real).max(axis=(1, 2)).mean(), bound.max(axis=(1, 2)).mean()])
    return Sweep("longest rollout by the model, H_max", horizons, *np.array(rows).T)


def _largest(bound: Bound) -> list[float]:
    return [float(x.max(axis=(1, 2)).mean()) for x in (bound.gap, bound.value)]
