"""Algorithm 2: masked model rollouts.

The result is the whole (H, B) rectangle in both stop modes; `keep` says what counts, and the buffer alone flattens it.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from m2ac.dynamics.ensemble import Ensemble, predict
from m2ac.dynamics.uncertainty import Score, of_member
from m2ac.imagination.mask import Mask
from m2ac.types import Key, RewardFn, TerminationFn, Transition

BLOCK = 2500
"""Rows evaluated at a time: the activations of all members then stay in the cache."""

Policy = Callable[[Float[Array, "B D"], Key], Float[Array, "B A"]]


class Rollout(NamedTuple):
    """Everything that was imagined, kept or not."""

    rows: Transition  # (H, B, …); rewards are penalised
    uncertainty: Float[Array, "H B"]  # not a number where the prediction was not finite
    member: Int[Array, "H B"]  # the member each row was drawn from
    alive: Bool[Array, "H B"]  # the rollout had not ended before this step
    keep: Bool[Array, "H B"]


class Imagination(NamedTuple):
    """The fixed parts of Algorithm 2: how rows are scored, masked, penalised and ended."""

    horizon: int
    mask: Mask
    score: Score
    penalty: float
    stop: Literal["nonstop", "hardstop"]
    draw: Literal["elites", "all"]
    rest: Literal["all", "elites"]
    termination_fn: TerminationFn | None  # None: the ensemble has learned it
    reward_fn: RewardFn | None  # None: the ensemble has learned it


class _Step(NamedTuple):
    rows: Transition
    uncertainty: Float[Array, "B"]
    member: Int[Array, "B"]


def _imagine_rows(policy: Policy, ensemble: Ensemble, obs: Float[Array, "B D"], how: Imagination, *, key: Key) -> _Step:
    """Lines 5-9 of Algorithm 2 for a block of rows."""
    key_action, key_member, key_outcome = jax.random.split(key, 3)
    members = len(ensemble.params.members)
    elite = jnp.zeros(members, dtype=bool).at[ensemble.elites].set(True)

    action = policy(obs, key_action)
    prediction, ends = predict(ensemble, obs, action)
    drawable = ensemble.elites if how.draw == "elites" else jnp.arange(members, dtype=jnp.int32)
    member = drawable[jax.random.randint(key_member, obs.shape[:1], 0, drawable.shape[0])]
    drawn = of_member(prediction, member)
    outcome = drawn.mean + jnp.sqrt(drawn.variance) * jax.random.normal(key_outcome, drawn.mean.shape)
    company = elite if how.rest == "elites" else jnp.ones(members, dtype=bool)
    uncertainty = how.score(prediction, member, outcome, company)

    reward, next_obs = outcome[:, 0], obs + outcome[:, 1:]
    if how.reward_fn is not None:
        reward = jax.vmap(how.reward_fn)(obs, action, next_obs)
    if how.termination_fn is not None:
        terminated = jax.vmap(how.termination_fn)(obs, action, next_obs)
    else:
        assert ends is not None, "an ensemble that has not learned termination needs a termination_fn"
        terminated = jnp.take_along_axis(ends, member[None], axis=0)[0]
    finite = jnp.isfinite(uncertainty) & jnp.isfinite(reward) & jnp.all(jnp.isfinite(next_obs), axis=-1)
    penalised = reward - how.penalty * uncertainty if how.penalty else reward
    return _Step(
        Transition(obs, action, penalised, next_obs, terminated),
        jnp.where(finite, uncertainty, jnp.nan),
        member,
    )


def _in_blocks(policy: Policy, ensemble: Ensemble, obs: Float[Array, "B D"], how: Imagination, *, key: Key) -> _Step:
    """`_imagine_rows` on blocks of at most BLOCK rows, one after the other."""
    rows = obs.shape[0]
    blocks = -(-rows // BLOCK)
    size = -(-rows // blocks)
    padded = jnp.pad(obs, ((0, blocks * size - rows), (0, 0)))
    steps = jax.lax.map(
        lambda block: _imagine_rows(policy, ensemble, block[0], how, key=block[1]),
        (padded.reshape(blocks, size, -1), jax.random.split(key, blocks)),
    )
    return jax.tree.map(lambda x: x.reshape(blocks * size, *x.shape[2:])[:rows], steps)


def masked_rollouts(
    policy: Policy, ensemble: Ensemble, starts: Float[Array, "B D"], how: Imagination, *, key: Key
) -> Rollout:
    """Algorithm 2 from the given start states."""

    def step(
        carry: tuple[Float[Array, "B D"], Bool[Array, "B"]], h_and_key: tuple[Int[Array, ""], Key]
    ) -> tuple[tuple[Float[Array, "B D"], Bool[Array, "B"]], Rollout]:
        obs, alive = carry
        h, key = h_and_key
        imagined = _in_blocks(policy, ensemble, obs, how, key=key)  # lines 4-9
        keep = how.mask(imagined.uncertainty, alive, h)  # line 10
        finite = jnp.isfinite(imagined.uncertainty)
        goes_on = keep if how.stop == "hardstop" else alive & finite  # lines 12-13
        goes_on = goes_on & ~imagined.rows.terminated
        # A dead row still takes part in the products below; zeros keep it from overflowing.
        next_obs = jnp.where(goes_on[:, None], imagined.rows.next_obs, 0.0)
        return (next_obs, goes_on), Rollout(imagined.rows, imagined.uncertainty, imagined.member, alive, keep)

    steps = jnp.arange(how.horizon, dtype=jnp.int32), jax.random.split(key, how.horizon)
    _, rollout = jax.lax.scan(step, (starts, jnp.ones(starts.shape[0], dtype=bool)), steps)
    return rollout
