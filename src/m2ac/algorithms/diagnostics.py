"""Whether model and critics deserve their trust, measured on real steps that they have not learned from.

Nothing here changes a training: it reads the state, and its random numbers are a stream of their own.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from jaxtyping import Key as KeyArray
from numpy import ndarray

from m2ac.algorithms.state import Counters
from m2ac.compiling import compile_for_ensemble
from m2ac.config import AgentConfig
from m2ac.dynamics.ensemble import Ensemble, predict, target_of
from m2ac.dynamics.gaussian import of_member
from m2ac.dynamics.uncertainty import SCORES
from m2ac.imagination.rollout import Imagination, company, draw_answers, outcome
from m2ac.learners.choice import Learner, LearnerState
from m2ac.learners.ppo import PPOState
from m2ac.replay import Real, take_real
from m2ac.types import Key

MOST_ROWS = 1000
"""Real rows looked at, the newest ones: enough for every figure here, and cheap."""

LOOKAHEAD = 10
"""Steps that the model is followed on its own, or the horizon where that is longer."""

INSIDE = {"50": 0.674490, "90": 1.644854}
"""Standard deviations to either side within which that many percent of a Gaussian lie."""

TAIL = 0.2
"""A return counts where the part of it that is not known, after the last step seen, weighs at most this much."""


class ModelErrors(NamedTuple):
    """What the model said of the newest real rows, beside what happened; the oldest row first."""

    error: Float[Array, "N"]  # of the drawn mean: root mean square over reward and observation, in their spreads
    reward_error: Float[Array, "N"]  # predicted minus real
    scores: Float[Array, "E N"]  # of every estimator, in the order of SCORES
    deviations: Float[Array, "N D1"]  # of the real outcome from the drawn mean, in predicted standard deviations
    open_loop: Float[Array, "L N"]  # how far the model is off after 1 … L steps on its own; NaN where none were seen


class _Alone(NamedTuple):
    """The model on its own, from every row."""

    obs: Float[Array, "N D"]
    row: Int[Array, "N"]  # whose action is taken next
    seen: Bool[Array, "N"]  # whether that row is of the same episode


class Returns(NamedTuple):
    """What the critics say of the newest real rows, beside what came after; the oldest row first."""

    value: Float[Array, "N"]  # mean of the critics
    reward: Float[Array, "N"]  # discounted sum of what followed; after the last step seen, the critics' own word
    bonus: Float[Array, "N"]  # the entropy bonus that belongs to it
    unknown: Float[Array, "N"]  # weight of the critics' own word


class Window(NamedTuple):
    """Which real rows are looked at."""

    rows: int  # the newest so many, which fixes the shapes
    lookahead: int  # steps that the model is followed on its own


def window(config: AgentConfig, capacity: int) -> Window:
    """The steps between two fits, as far as they are enough."""
    assert config.model_every is not None
    rows = min(config.model_every, MOST_ROWS, capacity)
    return Window(rows, min(max(LOOKAHEAD, config.horizon or 1), rows))


def fresh_rows(counters: Counters, window: Window) -> int:
    """How many of the newest rows came after the model's last fit; none before the first."""
    return min(counters.steps - counters.modelled_at, window.rows) if counters.fits else 0


def acted(counters: Counters, config: AgentConfig) -> int:
    """How many steps the policy itself has taken."""
    assert config.random_steps is not None
    return counters.steps - config.random_steps


def _newest(real: Real, rows: int) -> Int[Array, "N"]:
    """Where the newest rows are, the oldest of them first."""
    return (real.cursor - rows + jnp.arange(rows)) % real.capacity


def _goes_on(real: Real, index: Int[Array, "N"]) -> Bool[Array, "N"]:
    """Whether the row behind is the next step of the same episode."""
    follows = jnp.roll(real.at[index], -1) == (real.at[index] + 1) % real.slots
    return follows & ~real.terminated[index] & (jnp.arange(index.shape[0]) < index.shape[0] - 1)


@compile_for_ensemble(static_argnames=("window", "how"))
def judge_model(
    ensemble: Ensemble, real: Real, key: Key, phase: Int[Array, ""], *, window: Window, how: Imagination
) -> ModelErrors:
    """The model on the newest rows, one step from each, and then on its own with the actions that were really taken."""
    rows, lookahead = window
    index = _newest(real, rows)
    seen = take_real(real, index)
    keys = jax.random.split(jax.random.fold_in(key, phase), (1 + lookahead, 2))
    target = target_of(seen)
    spread = jnp.concatenate([_spread(seen.reward)[None], ensemble.input_std[: seen.obs.shape[1]]])

    member, noise = draw_answers(ensemble, seen.obs, how, keys=keys[0])
    prediction, _ = predict(ensemble, seen.obs, seen.action)
    drawn = of_member(prediction, member)
    imagined = outcome(drawn, noise)
    scores = [score(prediction, member, imagined, company(ensemble, how)) for score in SCORES.values()]

    def go_on(alone: _Alone, keys: KeyArray[Array, "2"]) -> tuple[_Alone, Float[Array, "N"]]:
        member, noise = draw_answers(ensemble, alone.obs, how, keys=keys)
        prediction, _ = predict(ensemble, alone.obs, seen.action[alone.row])
        obs = alone.obs + outcome(of_member(prediction, member), noise)[:, 1:]
        off = _root_mean_square((obs - seen.next_obs[alone.row]) / spread[1:])
        off = jnp.where(jnp.isfinite(off), off, jnp.inf)
        after = _Alone(obs, jnp.minimum(alone.row + 1, rows - 1), alone.seen & goes_on[alone.row])
        return after, jnp.where(alone.seen, off, jnp.nan)

    goes_on = _goes_on(real, index)
    _, open_loop = jax.lax.scan(go_on, _Alone(seen.obs, jnp.arange(rows), jnp.ones(rows, dtype=bool)), keys[1:])
    return ModelErrors(
        error=_root_mean_square((drawn.mean - target) / spread),
        reward_error=drawn.mean[:, 0] - seen.reward,
        scores=jnp.stack(scores),
        deviations=(target - drawn.mean) / jnp.sqrt(drawn.variance),
        open_loop=open_loop,
    )


def _root_mean_square(x: Float[Array, "*N D"]) -> Float[Array, "*N"]:
    return jnp.sqrt(jnp.mean(jnp.square(x), axis=-1))


def _spread(x: Float[Array, "N"]) -> Float[Array, ""]:
    """Standard deviation, but 1 of what is constant up to rounding."""
    std = jnp.std(x)
    return jnp.where(std <= 1e-6 * (jnp.abs(jnp.mean(x)) + 1e-6), 1.0, std)


@partial(jax.jit, static_argnames="learner")
def judge_critics(state: LearnerState, real: Real, bonus: Float[Array, ""], *, learner: Learner) -> Returns:
    """The critics on the newest rows; `bonus` is what the policy's entropy adds to each step of a soft value."""
    index = _newest(real, min(MOST_ROWS, real.capacity))
    seen = take_real(real, index)
    assert not isinstance(state, PPOState)
    assert learner.act is not None
    assert learner.values is not None
    discount = learner.discount
    mean_action = learner.act(state.policy, seen.next_obs)
    next_value = jnp.mean(learner.values(state.critics, seen.next_obs, mean_action), axis=0)

    def backwards(later: Returns, row: tuple[Array, ...]) -> tuple[Returns, Returns]:
        value, reward, goes_on, terminated, next_value = row
        weight = jnp.where(terminated, 0.0, discount)
        here = Returns(
            value=value,
            reward=reward + weight * jnp.where(goes_on, later.reward, next_value),
            bonus=weight * (bonus + jnp.where(goes_on, later.bonus, 0.0)),
            unknown=weight * jnp.where(goes_on, later.unknown, 1.0),
        )
        return here, here

    value = jnp.mean(learner.values(state.critics, seen.obs, seen.action), axis=0)
    rows_seen = value, seen.reward, _goes_on(real, index), seen.terminated, next_value
    nothing = Returns(*(jnp.float32(0) for _ in Returns._fields))
    return jax.lax.scan(backwards, nothing, rows_seen, reverse=True)[1]


def rank_correlation(x: Float[ndarray, "N"], y: Float[ndarray, "N"]) -> float:
    """Spearman's: how far two orders agree, from −1 to 1; not a number where there is no order."""
    finite = np.isfinite(x) & np.isfinite(y)
    both = np.stack([ranks(x[finite]), ranks(y[finite])])
    if np.any(np.ptp(both, axis=1) == 0) if finite.any() else True:
        return float("nan")
    return float(np.corrcoef(both)[0, 1])


def ranks(x: Float[ndarray, "N"]) -> Float[ndarray, "N"]:
    """Places in the order; equals share the mean of theirs."""
    _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[which], dtype=np.float64)


def model_metrics(errors: ModelErrors, *, fresh: int, score: str) -> dict[str, Any]:
    """The newest `fresh` rows as plain numbers; `score` is the estimator by which the halves are told apart."""
    error, reward_error, scores, deviations, open_loop = (np.asarray(x) for x in errors)
    error, reward_error, scores = error[-fresh:], reward_error[-fresh:], scores[:, -fresh:]
    deviations, open_loop = deviations[-fresh:], open_loop[:, -fresh:]
    by_name = {str(name): values for name, values in zip(SCORES, scores, strict=True)}
    order = np.argsort(by_name[score], kind="stable")
    halves = {"trusted": order[: len(order) // 2], "distrusted": order[len(order) // 2 :]}
    # In units of what the model itself expects: chance that it knows of is no error of its own, a divergence says.
    relative = np.sqrt(np.mean(np.square(deviations), axis=1))
    metrics: dict[str, Any] = {
        "fresh/rows": len(error),
        "fresh/error": _mean(error),
        "fresh/relative_error": _mean(relative),
    }
    for name, values in by_name.items():
        metrics[f"fresh/rank_{name}"] = rank_correlation(values, relative)
        metrics[f"fresh/rank_{name}_absolute"] = rank_correlation(values, error)
    for name, half in halves.items():
        metrics[f"fresh/error_{name}"] = _mean(error[half])
        metrics[f"fresh/relative_error_{name}"] = _mean(relative[half])
        metrics[f"fresh/optimism_{name}"] = _mean(reward_error[half])
    for percent, bound in INSIDE.items():
        inside = np.mean(np.abs(deviations) <= bound, axis=0)
        metrics[f"fresh/inside_{percent}_reward"] = float(inside[0])
        metrics[f"fresh/inside_{percent}_obs"] = float(np.mean(inside[1:]))
        metrics[f"fresh/inside_{percent}_by_dim"] = inside[1:].round(4).tolist()
    return metrics | {"fresh/open_loop_error": [_median(off) for off in open_loop]}


def critic_metrics(returns: Returns, *, acted: int) -> dict[str, Any]:
    """The newest rows as plain numbers, or nothing where no return of them was seen to its end.

    Those since the policy itself has `acted`: what followed a random action says nothing about it.
    """
    value, reward, bonus, unknown = (np.asarray(x) for x in returns)
    counts = (unknown <= TAIL) & (np.arange(len(value)) >= len(value) - acted)
    if not counts.any():
        return {}
    means = {
        "critic/value": _mean(value[counts]),
        "critic/return": _mean(reward[counts]),
        "critic/bonus": _mean(bonus[counts]),
    }
    bias = means["critic/value"] - means["critic/return"] - means["critic/bonus"]
    return {**means, "critic/bias": bias, "critic/rows": int(counts.sum())}


def _mean(x: Float[ndarray, "N"]) -> float:
    return float(np.mean(x)) if len(x) else float("nan")


def _median(x: Float[ndarray, "N"]) -> float:
    """Of what was seen; not a number where nothing was."""
    seen = x[~np.isnan(x)]
    return float(np.median(seen)) if len(seen) else float("nan")
