"""Line 4 of Algorithm 1 on the host: real steps, written into rows that are stored together."""

from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from m2ac.algorithms.state import Episode
from m2ac.envs.world import Played, World
from m2ac.learners.acting import ActingPolicy
from m2ac.scaling import Scaling
from m2ac.types import Transition

COLLECTED_AT_ONCE = 50
"""Real steps between two chances to stop while nothing is learned."""

LONGEST_BLOCK = 1.0
"""Seconds after which a chance to stop comes earlier: a real machine may take its time for a step."""

FAR = 100.0
"""A scaled observation beyond this is told: a sensor that was at rest while its unit was taken."""

ACT = 5
"""The stream of a seed's random numbers that actions are drawn from; `base.streams` has the others."""


def block_size(steps: int, capacity: int) -> int:
    """How many rows are stored together where `steps` are to be taken."""
    # Two sizes in all, so that two programs store whatever comes; never more than the ring holds.
    return 1 if steps == 1 else min(COLLECTED_AT_ONCE, capacity)


def host_rows(shape: tuple[int, ...], obs_dim: int, action_dim: int) -> Transition:
    """Room on the host for some real transitions."""
    zeros: Any = partial(np.zeros, dtype=np.float32)
    return Transition(
        obs=zeros((*shape, obs_dim)),
        action=zeros((*shape, action_dim)),
        reward=zeros(shape),
        next_obs=zeros((*shape, obs_dim)),
        terminated=zeros(shape, dtype=bool),
    )


def step_world(
    world: World,
    episode: Episode,
    rows: Transition,
    i: int,
    policy: ActingPolicy | None,
    *,
    scaling: Scaling,
    seed: int,
    step: int,
) -> tuple[Episode, Played | None]:
    """One real step, at random without a policy, written into row i; and the episode, where it has just ended."""
    if episode.length == 0:
        episode = Episode(episode.number, 0, 0.0, world.reset(episode.number))
    noise = np.random.default_rng([seed, ACT, step])
    if policy is None:
        action = noise.uniform(-1.0, 1.0, world.action_dim).astype(np.float32)
    else:
        action = policy(episode.obs, policy.draw(noise))
    outcome = world.step(action)
    rows.obs[i], rows.action[i], rows.next_obs[i] = scaling.apply(episode.obs), action, scaling.apply(outcome.next_obs)
    if not scaling.idle and np.abs(rows.next_obs[i]).max() > FAR:
        world.notices.tell("far", _far_away(np.asarray(rows.next_obs[i]), outcome.next_obs, step))
    rows.reward[i], rows.terminated[i] = outcome.reward, outcome.terminated
    total, length = episode.total + outcome.reward, episode.length + 1
    if not (outcome.terminated or outcome.truncated):
        return Episode(episode.number, length, total, outcome.next_obs), None
    ended = Played(world.seed_of(episode.number), total, length)
    return after(Episode(episode.number, length, total, outcome.next_obs)), ended


def must_begin_anew(world: World, length: int) -> bool:
    """Whether somebody else has used the environment in the middle of an episode of that length; warns if so."""
    used = length > 0 and world.used_elsewhere
    if used:
        world.notices.tell(
            "used",
            "the environment was used in the middle of a training episode, which therefore ends there; evaluate in "
            "another one: agent.evaluate() makes a copy",
        )
    return used


def _far_away(seen: Float[ndarray, "D"], obs: Float[ndarray, "D"], step: int) -> str:
    index = int(np.abs(seen).argmax())
    return (
        f"observation[{index}] is {obs[index]:g} at step {step + 1}, {abs(seen[index]):.3g} times its spread in the "
        f"first steps, by which it is scaled; networks learn badly from such numbers, so take more random steps "
        f"(--random-steps), or scale the observation to about 1 yourself and use --scale-observations False"
    )


def after(episode: Episode) -> Episode:
    """The next episode, not yet begun."""
    return Episode(episode.number + 1, 0, 0.0, episode.obs)
