"""Algorithm 2: masked model rollouts.

The result is the whole (H, B) rectangle in both stop modes; `keep` says what counts, and the buffer alone flattens it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from jaxtyping import Key as KeyArray

from m2ac.dynamics.ensemble import Ensemble, predict, predict_drawn
from m2ac.dynamics.gaussian import Gaussian, of_member, pick
from m2ac.dynamics.uncertainty import Score
from m2ac.imagination.mask import Mask, Threshold
from m2ac.types import Border, Key, RewardFn, TerminationFn, Transition

BLOCK = 2500
"""Rows evaluated at a time: the activations of all members then stay in the cache."""

Policy = Callable[[Float[Array, "B D"], Key], Float[Array, "B A"]]


class Rollout(NamedTuple):
    """Everything that was imagined, kept or not."""

    rows: Transition  # (H, B, …); rewards are penalised
    uncertainty: Float[Array, "H B"]  # not a number where the prediction was not finite; 0 without a score
    member: Int[Array, "H B"]  # the member each row was drawn from
    alive: Bool[Array, "H B"]  # the rollout had not ended before this step
    keep: Bool[Array, "H B"]


class Imagination(NamedTuple):
    """The fixed parts of Algorithm 2: how rows are scored, masked, penalised and ended."""

    horizon: int
    mask: Mask | Threshold
    score: Score | None  # None: nobody asks how far the members differ, so only the drawn one is evaluated
    penalty: float
    stop: Literal["nonstop", "hardstop"]
    draw: Literal["elites", "all"]
    rest: Literal["all", "elites"]
    termination_fn: TerminationFn | None  # None: the ensemble has learned it
    reward_fn: RewardFn | None  # None: the ensemble has learned it


class Drawn(NamedTuple):
    """What chance decides in the model's answer."""

    member: Int[Array, "B"]  # the one to answer
    noise: Float[Array, "B D1"]  # standard normal, for the outcome


class _Draw(NamedTuple):
    action: Float[Array, "B A"]
    member: Int[Array, "B"]
    noise: Float[Array, "B D1"]
    luck: Float[Array, "B"] | None  # in [0, 1), for an end that is learned


class _Step(NamedTuple):
    rows: Transition
    uncertainty: Float[Array, "B"]
    member: Int[Array, "B"]


def _draw(policy: Policy, ensemble: Ensemble, obs: Float[Array, "B D"], how: Imagination, *, key: Key) -> _Draw:
    """Lines 5 and 7 of Algorithm 2: the actions, and which member each row is drawn from."""
    key_action, *keys = jax.random.split(key, 3)
    luck = None
    if how.termination_fn is None:  # folded in, so that the other draws are those of a known termination
        luck = jax.random.uniform(jax.random.fold_in(keys[1], 1), obs.shape[:1])
    return _Draw(policy(obs, key_action), *draw_answers(ensemble, obs, how, keys=keys), luck)


def draw_answers(
    ensemble: Ensemble, obs: Float[Array, "B D"], how: Imagination, *, keys: Sequence[Key] | KeyArray[Array, "2"]
) -> Drawn:
    """Line 7 of Algorithm 2, and the noise of line 8."""
    key_member, key_outcome = keys
    members = len(ensemble.params.members)
    drawable = ensemble.elites if how.draw == "elites" else jnp.arange(members, dtype=jnp.int32)
    return Drawn(
        member=drawable[jax.random.randint(key_member, obs.shape[:1], 0, drawable.shape[0])],
        noise=jax.random.normal(key_outcome, (obs.shape[0], obs.shape[1] + 1)),
    )


def outcome(drawn: Gaussian, noise: Float[Array, "B D1"]) -> Float[Array, "B D1"]:
    """Line 8: r and s' − s from the drawn member."""
    return drawn.mean + jnp.sqrt(drawn.variance) * noise


def company(ensemble: Ensemble, how: Imagination) -> Bool[Array, "K"]:
    """The members that count in a score, which takes the drawn one out, or adds it, by itself."""
    everyone = jnp.ones(len(ensemble.params.members), dtype=bool)
    if how.rest == "all":
        return everyone
    elites = jnp.zeros_like(everyone).at[ensemble.elites].set(True)
    # Where one member alone has a finite holdout loss it is every elite, and would be compared with nobody: 0/0.
    return jnp.where(jnp.sum(elites) > 1, elites, everyone)


def _step(
    obs: Float[Array, "B D"],
    draw: _Draw,
    imagined: Float[Array, "B D1"],
    logit: Float[Array, "B"] | None,
    uncertainty: Float[Array, "B"],
    how: Imagination,
) -> _Step:
    """Line 11: what the outcome means as a transition, its reward penalised."""
    reward, next_obs = imagined[:, 0], obs + imagined[:, 1:]
    if how.reward_fn is not None:
        reward = jax.vmap(how.reward_fn)(obs, draw.action, next_obs)
    if how.termination_fn is not None:
        terminated = jax.vmap(how.termination_fn)(obs, draw.action, next_obs)
    else:
        assert draw.luck is not None
        assert logit is not None, "an ensemble that has not learned termination needs a termination_fn"
        # Drawn, as the outcome is: an end of 40 % that never came would leave critics too hopeful of every risk.
        terminated = draw.luck < jax.nn.sigmoid(logit)
    penalised = reward - how.penalty * uncertainty if how.penalty else reward
    rows = Transition(obs, draw.action, penalised, next_obs, terminated)
    finite = jnp.isfinite(uncertainty)
    for numbers in (draw.action, penalised[:, None], next_obs):
        finite &= jnp.all(jnp.isfinite(numbers), axis=-1)
    return _Step(_zero_unless(finite, rows), jnp.where(finite, uncertainty, jnp.nan), draw.member)


def _zero_unless(finite: Bool[Array, "B"], rows: Transition) -> Transition:
    """Zeros for the rows that are not finite: none of them is kept, yet a buffer may be filled up with one."""
    return jax.tree.map(lambda x: jnp.where(finite.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.zeros_like(x)), rows)


def _scored_rows(
    policy: Policy, ensemble: Ensemble, obs: Float[Array, "B D"], how: Imagination, score: Score, *, key: Key
) -> _Step:
    """Lines 5-9 with every member's opinion of every row."""
    draw = _draw(policy, ensemble, obs, how, key=key)
    prediction, logits = predict(ensemble, obs, draw.action)
    imagined = outcome(of_member(prediction, draw.member), draw.noise)
    uncertainty = score(prediction, draw.member, imagined, company(ensemble, how))
    return _step(obs, draw, imagined, None if logits is None else pick(logits, draw.member), uncertainty, how)


def _imagine_rows(policy: Policy, ensemble: Ensemble, obs: Float[Array, "B D"], how: Imagination, *, key: Key) -> _Step:
    """Lines 4-9 of Algorithm 2."""
    if how.score is not None:
        scored = partial(_scored_rows, policy, ensemble, how=how, score=how.score)
        return _in_blocks(lambda block, key: scored(block, key=key), obs, key=key)
    # The same draws as above; of the members, only the drawn one is asked.
    draw = _in_blocks(lambda block, key: _draw(policy, ensemble, block, how, key=key), obs, key=key)
    drawn, logit = predict_drawn(ensemble, obs, draw.action, draw.member)
    return _step(obs, draw, outcome(drawn, draw.noise), logit, jnp.zeros(obs.shape[0]), how)


T = TypeVar("T", _Draw, _Step)


def _in_blocks(per_block: Callable[[Float[Array, "B D"], Key], T], obs: Float[Array, "N D"], *, key: Key) -> T:
    """`per_block` on blocks of at most BLOCK rows, one after the other."""
    rows = obs.shape[0]
    blocks = -(-rows // BLOCK)
    size = -(-rows // blocks)
    padded = jnp.pad(obs, ((0, blocks * size - rows), (0, 0)))
    results: T = jax.lax.map(
        lambda block: per_block(block[0], block[1]),
        (padded.reshape(blocks, size, -1), jax.random.split(key, blocks)),
    )
    return jax.tree.map(lambda x: x.reshape(blocks * size, *x.shape[2:])[:rows], results)


class Rolling(NamedTuple):
    """Rollouts under way: the rectangle, filled up to step h."""

    rollout: Rollout
    obs: Float[Array, "B D"]  # where the living are
    alive: Bool[Array, "B"]
    h: Int[Array, ""]
    keys: KeyArray[Array, "H"]
    border: Border  # of a mask with a threshold


def start_rollouts(
    ensemble: Ensemble, starts: Float[Array, "B D"], how: Imagination, *, border: Border | None = None, key: Key
) -> Rolling:
    """An empty rectangle over the given start states; a threshold goes on from the border of the phases before."""
    shape = how.horizon, *starts.shape[:1]
    actions = ensemble.input_mean.shape[0] - starts.shape[1]
    rows = Transition(
        obs=jnp.zeros((*shape, starts.shape[1])),
        action=jnp.zeros((*shape, actions)),
        reward=jnp.zeros(shape),
        next_obs=jnp.zeros((*shape, starts.shape[1])),
        terminated=jnp.zeros(shape, dtype=bool),
    )
    nothing = jnp.zeros(shape, dtype=bool)
    empty = Rollout(rows, jnp.zeros(shape), jnp.zeros(shape, dtype=jnp.int32), nothing, nothing)
    alive = jnp.ones(starts.shape[0], dtype=bool)
    border = Border(jnp.float32(0), jnp.int32(0)) if border is None else border
    return Rolling(empty, starts, alive, jnp.int32(0), jax.random.split(key, how.horizon), border)


def roll_out(
    rolling: Rolling, policy: Policy, ensemble: Ensemble, how: Imagination, *, steps: int | Int[Array, ""]
) -> Rolling:
    """Algorithm 2 for so many steps more, or to the horizon."""

    def step(_: Int[Array, ""], rolling: Rolling) -> Rolling:
        obs, alive, h = rolling.obs, rolling.alive, rolling.h
        imagined = _imagine_rows(policy, ensemble, obs, how, key=rolling.keys[h])  # lines 4-9
        keep, border = _mask(imagined.uncertainty, rolling, how)  # line 10
        finite = jnp.isfinite(imagined.uncertainty)
        goes_on = keep if how.stop == "hardstop" else alive & finite  # lines 12-13
        goes_on = goes_on & ~imagined.rows.terminated
        # A dead row still takes part in the products below; zeros keep it from overflowing.
        next_obs = jnp.where(goes_on[:, None], imagined.rows.next_obs, 0.0)
        column = Rollout(imagined.rows, imagined.uncertainty, imagined.member, alive, keep)
        rollout = jax.tree.map(lambda x, new: x.at[h].set(new), rolling.rollout, column)
        return Rolling(rollout, next_obs, goes_on, h + 1, rolling.keys, border)

    return jax.lax.fori_loop(0, jnp.minimum(steps, how.horizon - rolling.h), step, rolling)


def _mask(uncertainty: Float[Array, "B"], rolling: Rolling, how: Imagination) -> tuple[Bool[Array, "B"], Border]:
    """What is kept of a step, and the border of a threshold, which the first step moves."""
    if not isinstance(how.mask, Threshold):
        return how.mask(uncertainty, rolling.alive, rolling.h), rolling.border
    border = jax.lax.cond(rolling.h == 0, how.mask.border, lambda before, _: before, rolling.border, uncertainty)
    return how.mask(border, uncertainty, rolling.alive), border


def masked_rollouts(
    policy: Policy, ensemble: Ensemble, starts: Float[Array, "B D"], how: Imagination, *, key: Key
) -> Rollout:
    """Algorithm 2 from the given start states."""
    rolling = start_rollouts(ensemble, starts, how, key=key)
    return roll_out(rolling, policy, ensemble, how, steps=how.horizon).rollout
