"""Random worlds of several kinds, and those on which the bounds are tight."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from m2ac.theory.statements import Pair
from m2ac.theory.tabular import Tabular

STATES, ACTIONS = 5, 3

Rng = np.random.Generator


def _distributions(rng: Rng, *shape: int, concentration: float = 1.0) -> Float[ndarray, "*shape"]:
    return rng.dirichlet(np.full(shape[-1], concentration), size=shape[:-1])


def dense(rng: Rng, n: int) -> Pair:
    """Every state can follow every other; the model is a mixture of the truth and something else."""
    p = _distributions(rng, n, STATES, ACTIONS, STATES)
    return _pair(rng, p, _mixed(rng, p, _distributions(rng, *p.shape)))


def sparse(rng: Rng, n: int) -> Pair:
    """Few states can follow; the model may think of others."""
    p, other = (_distributions(rng, n, STATES, ACTIONS, STATES, concentration=0.1) for _ in range(2))
    return _pair(rng, p, _mixed(rng, p, other))


def near_deterministic(rng: Rng, n: int) -> Pair:
    """Nearly always one state follows; the model is right almost everywhere and wrong in a few places."""
    shape = n, STATES, ACTIONS
    noise = 0.02 * rng.random((*shape, 1))
    sure = np.eye(STATES)[rng.integers(STATES, size=shape)]
    p = (1 - noise) * sure + noise / STATES
    wrong = rng.random((*shape, 1)) < 0.2
    elsewhere = np.eye(STATES)[rng.integers(STATES, size=shape)]
    return _pair(rng, p, np.where(wrong, elsewhere, p))


def adversarial(rng: Rng, n: int) -> Pair:
    """Two states that are never left, the best and the worst; the model takes one for the other with some probability.

    The more often it does so, and the fewer other errors there are, the closer the bounds are to what happens.
    """
    p = _distributions(rng, n, STATES, ACTIONS, STATES, concentration=0.3)
    best, worst = STATES - 2, STATES - 1
    for absorbing in (best, worst):
        p[:, absorbing] = np.eye(STATES)[absorbing]
    p[:, 0] = np.eye(STATES)[worst]
    model = p.copy()
    mistaken = rng.random((n, 1))
    model[:, 0, :, worst], model[:, 0, :, best] = 1 - mistaken, mistaken
    pair = _pair(rng, p, model)
    reward = pair.real.reward.copy()
    reward[:, best], reward[:, worst] = 1.0, -1.0
    start = np.where(rng.random((n, 1)) < 0.5, np.eye(STATES)[0], pair.real.start)
    return pair._replace(real=pair.real._replace(reward=reward, start=start))


KINDS: dict[str, Callable[[Rng, int], Pair]] = {
    "dense": dense,
    "sparse": sparse,
    "near-deterministic": near_deterministic,
    "adversarial": adversarial,
}


def _mixed(rng: Rng, p: Float[ndarray, "N S A S"], other: Float[ndarray, "N S A S"]) -> Float[ndarray, "N S A S"]:
    """A model whose error differs from place to place."""
    share = rng.random((len(p), 1, 1, 1)) * rng.random((*p.shape[:3], 1))
    return (1 - share) * p + share * other


def _pair(rng: Rng, p: Float[ndarray, "N S A S"], model: Float[ndarray, "N S A S"]) -> Pair:
    n, states, actions, _ = p.shape
    policy, other_policy = (_distributions(rng, n, states, actions, concentration=0.5) for _ in range(2))
    start, other_start = (_distributions(rng, n, states, concentration=0.5) for _ in range(2))
    closeness = rng.random((n, 1))
    world = Tabular(
        p=p,
        model=model,
        reward=rng.uniform(-1, 1, (n, states, actions)),
        policy=policy,
        start=start,
        mask=np.ones((n, states, actions), dtype=bool),
        discount=0.99 * rng.random((n,)),
    )
    return Pair(
        world._replace(mask=some_mask(rng, world.errors)),
        other_policy=closeness[..., None] * policy + (1 - closeness[..., None]) * other_policy,
        other_start=closeness * start + (1 - closeness) * other_start,
    )


def some_mask(rng: Rng, errors: Float[ndarray, "N S A"]) -> Bool[ndarray, "N S A"]:
    """In equal parts: by a threshold of the error, by rank, at random, everywhere."""
    n = len(errors)
    by_threshold = threshold_mask(errors, rng.random(n) * errors.max(axis=(1, 2)))
    by_rate = rate_mask(errors, rng.random(n))
    at_random = rng.random(errors.shape) < rng.random((n, 1, 1))
    kind = rng.integers(4, size=n)[:, None, None]
    return np.select([kind == 0, kind == 1, kind == 2], [by_threshold, by_rate, at_random], default=True)


def threshold_mask(errors: Float[ndarray, "N S A"], most: Float[ndarray, "N"]) -> Bool[ndarray, "N S A"]:
    """The model where its error is at most that."""
    return errors <= most[:, None, None]


def rate_mask(errors: Float[ndarray, "N S A"], rate: Float[ndarray, "N"]) -> Bool[ndarray, "N S A"]:
    """The model in that share of all places, those of the smallest error."""
    flat = errors.reshape(len(errors), -1)
    places = np.argsort(np.argsort(flat, axis=1, kind="stable"), axis=1)
    return (places < np.floor(rate * flat.shape[1])[:, None]).reshape(errors.shape)


def counterexample(discount: float = 0.9) -> Pair:
    """The model takes the worst for the best, once: s₀ leads to −1 for ever, and it says to +1 for ever.

    The gap is 2γ/(1−γ). Theorem 1 says just that, Theorem 2 says 2/(1−γ), and the appendix says 1.
    """
    p = np.array([[0, 0, 1], [0, 1, 0], [0, 0, 1]], dtype=float)[:, None]  # s₀, "+", "−"; one action
    model = p.copy()
    model[0, 0] = [0, 1, 0]
    return one(p, model, reward=np.array([[0.0], [1.0], [-1.0]]), mask=np.eye(3)[0][:, None] > 0, discount=discount)


def one(
    p: Float[ndarray, "S A S"],
    model: Float[ndarray, "S A S"],
    *,
    reward: Float[ndarray, "S A"],
    mask: Bool[ndarray, "S A"] | None = None,
    discount: float = 0.9,
    policy: Float[ndarray, "S A"] | None = None,
    start: Float[ndarray, "S"] | None = None,
    other_policy: Float[ndarray, "S A"] | None = None,
    other_start: Float[ndarray, "S"] | None = None,
) -> Pair:
    """A single world, by default with one policy, which does anything, and one start, at the first state."""
    states, actions = reward.shape
    policy = np.full((states, actions), 1.0 / actions) if policy is None else policy
    start = np.eye(states)[0] if start is None else start
    world = Tabular(
        p=p[None],
        model=model[None],
        reward=reward[None],
        policy=policy[None],
        start=start[None],
        mask=(np.ones_like(reward, dtype=bool) if mask is None else mask)[None],
        discount=np.array([discount]),
    )
    return Pair(
        world,
        (policy if other_policy is None else other_policy)[None],
        (start if other_start is None else other_start)[None],
    )


def _moves(*to: int) -> Float[ndarray, "S 1 S"]:
    """From each state to the named one, whatever is done."""
    return np.eye(len(to))[list(to)][:, None]


def drifting_policies(difference: float = 1e-4, discount: float = 0.5) -> Pair:
    """The other policy leaves the good state for ever, with a small probability: its loss grows with every step."""
    p = np.stack([np.eye(2)[[0, 1]], np.eye(2)[[1, 1]]], axis=1)  # stay, or leave to the state that is never left
    stays, leaves = np.array([[1.0, 0.0]] * 2), np.array([[1.0 - difference, difference], [1.0, 0.0]])
    reward = np.array([[1.0, -1.0], [-1.0, -1.0]])
    return one(p, p, reward=reward, discount=discount, policy=stays, other_policy=leaves)


def other_starts(discount: float = 0.5) -> Pair:
    """One starts in the best state, the other in the worst, and neither is left."""
    p, reward = _moves(0, 1), np.array([[1.0], [-1.0]])
    return one(p, p, reward=reward, discount=discount, other_start=np.array([0.0, 1.0]))


def disjoint() -> Pair:
    """Starts and steps that differ without any overlap."""
    return one(
        _moves(2, 1, 2, 3), _moves(3, 1, 2, 3), reward=np.ones((4, 1)), other_start=np.array([0.5, 0.5, 0.0, 0.0])
    )


def wrong_reward() -> Pair:
    """The dynamics are known, and the learned reward is wrong by as much at every step."""
    p = np.eye(1)[:, None].repeat(2, axis=1)  # one state, two actions of which the first is always taken
    return one(p, p, reward=np.ones((1, 2)), policy=np.array([[1.0, 0.0]]), other_policy=np.array([[0.5, 0.5]]))


TIGHT: dict[str, tuple[Pair, ...]] = {
    "Lemma 1": (disjoint(),),
    "Lemma 2": (disjoint(),),
    "Lemma 3": (drifting_policies(), other_starts(), counterexample(0.5)),
    "Theorem 1": (counterexample(),),
    "Theorem 2": (counterexample(0.99),),
    "H_max bound": (counterexample(0.99),),
    "… grows sub-linearly": (wrong_reward(),),
    "Eq. 6": (counterexample(0.99),),
    "Corollary (Eq. 7)": (counterexample(0.99),),
    "Theorem 2, learned reward": (wrong_reward(), counterexample(0.99)),
}
"""Worlds in which hardly anything is lost between a statement's gap and its bound."""
