"""The model beside what really happened, on transitions that it has not learned from."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from m2ac.algorithms.diagnostics import Window, judge_model
from m2ac.compiling import compile_for_ensemble
from m2ac.dynamics.ensemble import Ensemble, predict
from m2ac.dynamics.gaussian import pick
from m2ac.dynamics.uncertainty import SCORES, Score
from m2ac.imagination.mask import rank_mask
from m2ac.imagination.rollout import BLOCK, Imagination, Rolling, draw_answers, roll_out, start_rollouts
from m2ac.model_config import mask_rates
from m2ac.replay import add_real, empty_real
from m2ac.types import Key, Transition


class Fresh(NamedTuple):
    """Real transitions that the model has not learned from, episode after episode."""

    rows: Transition  # (N, …), as the networks see them
    episode: Int[ndarray, "N"]  # from 0
    step: Int[ndarray, "N"]  # within the episode, from 0
    observed: Float[ndarray, "N D"]  # the observations as the environment gives them


class Masked(NamedTuple):
    """Model rollouts from real states with the actions really taken, ranked at every step as in training."""

    error: Float[ndarray, "H B"]  # of the observation: root mean square, in spreads
    score: Float[ndarray, "H B"]
    alive: Bool[ndarray, "H B"]  # and scored
    keep: Bool[ndarray, "H B"]  # by the paper's rates; see `kept_at` for others
    episode: Int[ndarray, "B"]


class Measured(NamedTuple):
    """What the model said of fresh rows, beside what happened."""

    fresh: Fresh
    error: Float[ndarray, "N"]  # of the drawn mean: root mean square over reward and observation, in their spreads
    relative: Float[ndarray, "N"]  # the same in standard deviations that the drawn member predicts
    scores: dict[str, Float[ndarray, "N"]]  # of every estimator
    off: Float[ndarray, "N D1"]  # predicted minus real, reward first, in their spreads
    deviations: Float[ndarray, "N D1"]  # real minus predicted, in predicted standard deviations
    reward_error: Float[ndarray, "N"]  # predicted minus real, in the environment's units
    reward_spread: float  # standard deviation of the real rewards, 1 where they are constant
    ending: Float[ndarray, "N"] | None  # the probability that the drawn member gives the end; None: not learned
    open_loop: Float[ndarray, "H N"]  # error of the observation after 1 … H steps alone; NaN where none were seen
    masked: Masked


class _Drawn(NamedTuple):
    deviation: Float[Array, "N D1"]  # predicted standard deviation
    ending: Float[Array, "N"] | None


def measure(ensemble: Ensemble, fresh: Fresh, how: Imagination, *, score: str, horizon: int, key: Key) -> Measured:
    """The model on every fresh row, and on its own for up to `horizon` steps; `score` ranks the masked rollouts."""
    key_judge, key_masked = jax.random.split(key)
    rows: Transition = jax.tree.map(jnp.asarray, fresh.rows)
    count, obs_dim = rows.obs.shape
    window = Window(count, min(horizon, count))
    empty = empty_real(count, obs_dim, rows.action.shape[1], slots=2 * count)
    real = jax.jit(add_real)(empty, rows, jnp.int32(count))
    errors = judge_model(ensemble, real, key_judge, jnp.int32(0), window=window, how=how)
    drawn = _drawn(ensemble, rows, key_judge, window=window, how=how)
    reward_error, deviations = (np.asarray(x, dtype=np.float64) for x in (errors.reward_error, errors.deviations))
    predicted = np.asarray(drawn.deviation, dtype=np.float64)
    reward_spread = _spread_of_reward(np.asarray(fresh.rows.reward))
    spread = np.concatenate([[reward_spread], np.asarray(ensemble.input_std)[:obs_dim]])
    return Measured(
        fresh=fresh,
        error=np.asarray(errors.error, dtype=np.float64),
        relative=np.sqrt(np.mean(np.square(deviations), axis=1)),
        scores={str(name): np.asarray(x, np.float64) for name, x in zip(SCORES, errors.scores, strict=True)},
        off=-deviations * predicted / spread,
        deviations=deviations,
        reward_error=reward_error,
        reward_spread=reward_spread,
        ending=None if drawn.ending is None else np.asarray(drawn.ending, dtype=np.float64),
        open_loop=np.asarray(errors.open_loop, dtype=np.float64),
        masked=_masked(ensemble, fresh, how, SCORES[score], horizon, key=key_masked),  # type: ignore[index]
    )


def _spread_of_reward(reward: Float[ndarray, "N"]) -> float:
    """As `judge_model` has it."""
    spread = float(np.std(reward, dtype=np.float64))
    return spread if spread > 1e-6 * (abs(float(np.mean(reward))) + 1e-6) else 1.0


@compile_for_ensemble(static_argnames=("window", "how"))
def _drawn(ensemble: Ensemble, rows: Transition, key: Key, *, window: Window, how: Imagination) -> _Drawn:
    """What `judge_model` does not tell of the members that it draws: the same ones, since the keys are the same."""
    keys = jax.random.split(jax.random.fold_in(key, jnp.int32(0)), (1 + window.lookahead, 2))
    member = draw_answers(ensemble, rows.obs, how, keys=keys[0]).member
    prediction, logits = predict(ensemble, rows.obs, rows.action)
    ending = None if logits is None else jax.nn.sigmoid(pick(logits, member))
    return _Drawn(jnp.sqrt(pick(prediction.variance, member)), ending)


def starts_of(episode: Int[ndarray, "N"], horizon: int, *, most: int = BLOCK) -> Int[ndarray, "B"]:
    """Rows after which the episode goes on for the whole horizon, evenly spread where there are more than `most`."""
    count = len(episode)
    if count < horizon:
        return np.zeros(0, dtype=np.int64)
    first = np.arange(count - horizon + 1)
    whole = first[episode[first] == episode[first + horizon - 1]]
    return whole[np.linspace(0, len(whole) - 1, min(most, len(whole))).round().astype(np.int64)]


def _masked(ensemble: Ensemble, fresh: Fresh, how: Imagination, score: Score, horizon: int, *, key: Key) -> Masked:
    """Algorithm 2 by training's own code, with the real actions in the policy's place and the paper's rates."""
    starts = starts_of(fresh.episode, horizon)
    while len(starts) == 0 and horizon > 1:  # no episode is that long
        horizon -= 1
        starts = starts_of(fresh.episode, horizon)
    how = how._replace(
        horizon=horizon, mask=rank_mask(mask_rates("paper", horizon)), score=score, penalty=0.0, stop="nonstop"
    )
    rolling = start_rollouts(ensemble, jnp.asarray(fresh.rows.obs[starts]), how, key=key)
    for h in range(horizon):
        rolling = _one_step(rolling, jnp.asarray(fresh.rows.action[starts + h]), ensemble, how=how)
    imagined = np.asarray(rolling.rollout.rows.next_obs, dtype=np.float64)
    real = np.asarray(fresh.rows.next_obs, dtype=np.float64)[starts + np.arange(horizon)[:, None]]
    off = (imagined - real) / np.asarray(ensemble.input_std, dtype=np.float64)[: real.shape[-1]]
    return Masked(
        error=np.sqrt(np.mean(np.square(off), axis=-1)),
        score=np.asarray(rolling.rollout.uncertainty),
        # What is not finite left its zeros behind, which are no prediction.
        alive=np.asarray(rolling.rollout.alive) & np.isfinite(np.asarray(rolling.rollout.uncertainty)),
        keep=np.asarray(rolling.rollout.keep),
        episode=fresh.episode[starts],
    )


def kept_at(masked: Masked, rate: float) -> Bool[ndarray, "H B"]:
    """What a mask with this rate at every step would keep of the rollouts: which rows go on does not depend on it."""
    mask = rank_mask(mask_rates(rate, len(masked.error)))
    steps = enumerate(zip(masked.score, masked.alive, strict=True))
    return np.stack([np.asarray(mask(jnp.asarray(u), jnp.asarray(alive), jnp.int32(h))) for h, (u, alive) in steps])


@compile_for_ensemble(static_argnames="how")
def _one_step(rolling: Rolling, action: Float[Array, "B A"], ensemble: Ensemble, *, how: Imagination) -> Rolling:
    # As many rows as fit into one block of `roll_out`, which then asks for the actions of all of them at once.
    return roll_out(rolling, lambda obs, key: action, ensemble, how, steps=1)
