"""Every statement of the paper as a gap and a bound that it says the gap is under.

A bound is given as its terms, so that each can be looked at, and changed, by itself. What is compared has a first axis
of instances; behind it may be whatever the statement speaks of, such as states and actions.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from m2ac.theory import tabular
from m2ac.theory.tabular import Tabular, total_variation

HORIZONS = (1, 2, 5, 10)
LAST_STEP = 30
"""T of Lemma 3."""


class Bound(NamedTuple):
    """gap ≤ the sum of the terms."""

    gap: Float[ndarray, "N *B"]
    terms: tuple[Float[ndarray, "N *B"], ...]

    @property
    def value(self) -> Float[ndarray, "N *B"]:
        """The bound."""
        return np.sum(np.broadcast_arrays(*self.terms), axis=0)


class Pair(NamedTuple):
    """Two worlds that differ in everything but their rewards, and a policy for each."""

    real: Tabular
    other_policy: Float[ndarray, "N S A"]
    other_start: Float[ndarray, "N S"]


Statement = Callable[[Pair], Bound]


def lemma_1(pair: Pair) -> Bound:
    """TV of joint distributions ≤ TV of the first part + expected TV of the second given the first."""
    world = pair.real
    first, other = world.start, pair.other_start
    second, other_second = world.p[:, :, 0], world.model[:, :, 0]
    joint = (first[..., None] * second, other[..., None] * other_second)
    flat = [x.reshape(len(x), -1) for x in joint]
    apart = (other * total_variation(second, other_second)).sum(axis=-1)
    return Bound(total_variation(*flat), (total_variation(first, other), apart))


def lemma_2(pair: Pair) -> Bound:
    """TV of two Markov chains grows by at most the expected TV of their steps."""
    world = pair.real
    chain, other_chain = world.p[:, :, 0], world.model[:, :, 0]
    now, other = world.start, pair.other_start
    later, other_later = (np.einsum("ns,nst->nt", x, step) for x, step in ((now, chain), (other, other_chain)))
    apart = (other * total_variation(chain, other_chain)).sum(axis=-1)
    return Bound(total_variation(later, other_later), (total_variation(now, other), apart))


def lemma_3(pair: Pair) -> Bound:
    """The returns up to step T of two policies in two worlds differ by policies, starts and expected model errors."""
    world = pair.real
    seen = tabular.visits(world.p, world.policy, world.start, LAST_STEP)
    other = tabular.visits(world.model, pair.other_policy, pair.other_start, LAST_STEP)
    discounts = world.discount ** np.arange(LAST_STEP + 1)[:, None]
    gap = np.abs((discounts * ((seen - other) * world.reward).sum(axis=(2, 3))).sum(axis=0))
    policies = total_variation(world.policy, pair.other_policy).max(axis=1)
    starts = total_variation(world.start, pair.other_start)[None]
    errors = np.concatenate([starts, (other * world.errors).sum(axis=(2, 3))[:-1]])  # δ⁽⁰⁾, then δ⁽¹⁾ …
    return Bound(
        gap,
        (
            2.0 * world.largest_reward * policies / (1.0 - world.discount) ** 2,
            world.factor * (discounts * errors).sum(axis=0),
        ),
    )


def theorem_1(pair: Pair) -> Bound:
    """J̃ − J ≤ α Σ γᵗ δ⁽ᵗ⁾ over t ≥ 1: the model errors that the policy meets in the model."""
    world = pair.real
    gap = tabular.returns(world, tabular.q_model(world)) - tabular.returns(world, tabular.q_values(world))
    met = tabular.returns(world, tabular.solve(world.model, world.policy, world.errors, world.discount))
    return Bound(gap, (world.factor * world.discount * met,))


def theorem_2(pair: Pair) -> Bound:
    """|Q − Q̃_mask| ≤ α ε Σ γᵗ w(t)."""
    world = pair.real
    gap = np.abs(tabular.q_values(world) - tabular.q_masked(world))
    return Bound(gap, (_each(world.factor * world.masked_error) * tabular.use(world),))


def theorem_2_of_the_appendix(pair: Pair) -> Bound:
    """|Q − Q̃_mask| ≤ ε Σ γᵗ w(t), as the appendix prints it: α is missing."""
    world = pair.real
    return Bound(theorem_2(pair).gap, (_each(world.masked_error) * tabular.use(world),))


def limited_rollouts(pair: Pair) -> Bound:
    """|Q − Q̃_mask| ≤ α ε Σ γᵗ w(t) over t < H_max, where the model is used for H_max steps at most."""
    world = pair.real
    real = tabular.q_values(world)
    masked = [tabular.masked_up_to(world, horizon) for horizon in HORIZONS]
    gap = np.stack([np.abs(real - value) for value, _ in masked], axis=1)
    used = np.stack([used for _, used in masked], axis=1)
    return Bound(gap, ((world.factor * world.masked_error)[:, None, None, None] * used,))


def sublinear_growth(pair: Pair) -> Bound:
    """The bound grows sub-linearly in H_max: a further step adds at most γ times what the one before did."""
    world = pair.real
    used = np.stack([tabular.masked_up_to(world, horizon)[1] for horizon in range(max(HORIZONS) + 1)], axis=1)
    added = np.diff(used, axis=1)
    return Bound(added[:, 1:], (world.discount[:, None, None, None] * added[:, :-1],))


def lower_bound(pair: Pair) -> Bound:
    """Eq. 6: Q ≥ E[Σ γᵗ (r − αε) over t < H + γᴴ Q(s_H, a_H)]; told as how far the masked value is above Q at most."""
    world = pair.real
    masked = tabular.q_masked(world)
    penalised = tabular.q_masked(world, reward=world.reward - _each(world.factor * world.masked_error))
    return Bound(masked - tabular.q_values(world), (masked - penalised,))


def corollary(pair: Pair) -> Bound:
    """Q̃_M2AC ≤ Q, with the penalty αε of the theory; told as how far the value without it is above Q at most."""
    return _penalised(pair.real, pair.real.factor * pair.real.masked_error)


def _penalised(world: Tabular, penalty: Float[ndarray, "N"]) -> Bound:
    unpenalised = tabular.q_m2ac(world, np.zeros_like(penalty))
    return Bound(unpenalised - tabular.q_values(world), (unpenalised - tabular.q_m2ac(world, penalty),))


def learned_reward(pair: Pair) -> Bound:
    """|Q − Q̃_mask| where the reward is learned too: Theorem 2 and E Σ γᵗ |r̃ − r| over t < H."""
    world = pair.real
    reward = _learned(pair)
    gap = np.abs(tabular.q_values(world) - tabular.q_masked(world, reward=reward))
    off = tabular.spent_inside(world, np.abs(reward - world.reward))
    return Bound(gap, (*theorem_2(pair).terms, off))


def learned_reward_left_out(pair: Pair) -> Bound:
    """Theorem 2 as it is, where the reward is learned: the term of the reward's error is missing."""
    return Bound(learned_reward(pair).gap, theorem_2(pair).terms)


def heuristic_penalty(pair: Pair) -> Bound:
    """Q̃_M2AC ≤ Q with the penalty of the experiments, 0.001 times the error, in place of the theory's."""
    return _penalised(pair.real, 1e-3 * pair.real.masked_error)


def _learned(pair: Pair) -> Float[ndarray, "N S A"]:
    """A reward that is wrong by as much as the other policy differs, which is as good as any."""
    world = pair.real
    return world.reward + _each(world.largest_reward) * (pair.other_policy - world.policy)


def _each(x: Float[ndarray, "N"]) -> Float[ndarray, "N 1 1"]:
    return x[:, None, None]


TRUE: dict[str, Statement] = {
    "Lemma 1": lemma_1,
    "Lemma 2": lemma_2,
    "Lemma 3": lemma_3,
    "Theorem 1": theorem_1,
    "Theorem 2": theorem_2,
    "H_max bound": limited_rollouts,
    "… grows sub-linearly": sublinear_growth,
    "Eq. 6": lower_bound,
    "Corollary (Eq. 7)": corollary,
    "Theorem 2, learned reward": learned_reward,
}
"""What holds."""

FALSE: dict[str, Statement] = {
    "Theorem 2 as in the appendix": theorem_2_of_the_appendix,
    "… learned reward not counted": learned_reward_left_out,
    "Corollary with penalty 0.001": heuristic_penalty,
}
"""What does not."""
