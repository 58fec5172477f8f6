"""PPO's loop: a rollout of all environments, then some epochs of updates on it.

Environments take their steps in turn, so a training can be left and taken up after any single one of them. An episode
that has ended is followed by the next one of its environment at once; the row keeps the observation it ended with.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from m2ac.algorithms import phases
from m2ac.algorithms.base import BaseTraining, Progress
from m2ac.algorithms.collecting import ACT, COLLECTED_AT_ONCE, LONGEST_BLOCK, host_rows, must_begin_anew
from m2ac.algorithms.metrics import episode_metrics
from m2ac.algorithms.numbers import check_state
from m2ac.algorithms.state import OnPolicyState, init_on_policy, rollout_position
from m2ac.config import AgentConfig
from m2ac.envs.world import EnvError, Played, World
from m2ac.learners import ppo
from m2ac.learners.acting import GaussianPolicy, cut
from m2ac.learners.choice import Losses
from m2ac.types import Transition


class OnPolicy(BaseTraining[OnPolicyState]):
    """A run of PPO."""

    def __init__(self, config: AgentConfig, worlds: Sequence[World], *, state: OnPolicyState | None = None) -> None:
        """`config` must be resolved; one world for each of `ppo.envs`."""
        assert len(worlds) == config.ppo.envs
        if state is not None:
            check_state(state)
        super().__init__(config, state or init_on_policy(config, worlds[0].obs_dim, worlds[0].action_dim))
        self.worlds = worlds
        self._turn: tuple[int, Float[ndarray, "E A"]] | None = None  # the actions of the turn under way
        self._copied: tuple[int, GaussianPolicy] | None = None  # with the update count it was copied at
        self._busy = 0  # the environment that was last asked for something

    @property
    def _position(self) -> int:
        """Steps of the rollout under way."""
        return rollout_position(self.counters, self.config.ppo)

    @property
    def _settled(self) -> bool:
        return self._position == 0

    def run(self, until: int) -> Iterator[Progress]:
        """Train until that many environment steps are taken; a rollout that is not full then waits for more."""
        rollout = self.config.ppo.rollout
        while self.step < until or self._position == rollout:
            if self._position < rollout:
                self._collect(min(until - self.step, rollout - self._position))
                yield self._progress("collecting")
            else:
                self._learn()
                yield self._progress("learning", ends_cycle=True)

    def _collect(self, steps: int) -> None:
        """Act in the environments, one after the other, for at most that many steps and at least one."""
        started = time.perf_counter()
        policy = self._policy()
        rows = host_rows((COLLECTED_AT_ONCE,), self.worlds[0].obs_dim, self.worlds[0].action_dim)
        episodes = jax.tree.map(np.copy, self.state.episodes)  # a state that somebody holds stays what it was
        self.state = self.state._replace(episodes=episodes)
        envs, counters, position, taken = len(self.worlds), self.state.counters, self._position, 0
        for env, world in enumerate(self.worlds):
            if must_begin_anew(world, int(episodes.length[env])):
                self._turn = None  # its actions were meant for where the environment was
                self._abandon(env, counters.steps)
        try:
            for taken in range(min(steps, COLLECTED_AT_ONCE)):
                turn, env = divmod(counters.steps + taken, envs)
                if self._turn is None or self._turn[0] != turn:
                    self._turn = turn, self._actions(policy, turn, env)
                action = self._turn[1][env]
                episodes.ended[(position + taken) // envs, env] = self._step(env, rows, taken, action)
                if time.perf_counter() - started > LONGEST_BLOCK:
                    break
            taken += 1
        except BaseException:
            # Where this environment is now nobody knows; what all gave before is whole and stays.
            self._abandon(self._busy, counters.steps + taken)
            self._turn = None
            raise
        finally:
            self.state = self.state._replace(
                real=phases.store(self.state.real, rows, taken),
                counters=counters._replace(steps=counters.steps + taken),
            )
        self._took("collect", started)

    def _policy(self) -> GaussianPolicy:
        """The current policy, copied once per rollout."""
        if self._copied is None or self._copied[0] != self.counters.updates:
            policy = self.acting_policy()
            assert isinstance(policy, GaussianPolicy)
            self._copied = self.counters.updates, policy
        return self._copied[1]

    def _actions(self, policy: GaussianPolicy, turn: int, first: int) -> Float[ndarray, "E A"]:
        """What all do in one turn, before it is cut; new episodes begin where it is time, from `first` on.

        Always for all of them, so that a training which is taken up within a turn has the same products of matrices.
        """
        episodes = self.state.episodes
        for env in range(first, len(self.worlds)):
            if episodes.length[env] == 0:
                self._busy = env
                episodes.obs[env] = self.worlds[env].reset(int(episodes.number[env]))
        noise = np.random.default_rng([self.config.seed, ACT, turn])
        return policy.uncut(episodes.obs, policy.draw(noise, len(self.worlds)))

    def _step(self, env: int, rows: Transition, i: int, action: Float[ndarray, "A"]) -> bool:
        """One step of one environment, written into row i; whether its episode has ended."""
        world, episodes, self._busy = self.worlds[env], self.state.episodes, env
        outcome = world.step(cut(action))
        rows.obs[i], rows.action[i], rows.next_obs[i] = episodes.obs[env], action, outcome.next_obs
        rows.reward[i], rows.terminated[i] = outcome.reward, outcome.terminated
        episodes.length[env] += 1
        episodes.total[env] += outcome.reward
        episodes.obs[env] = outcome.next_obs
        if not (outcome.terminated or outcome.truncated):
            return False
        number, total, length = (x[env].item() for x in (episodes.number, episodes.total, episodes.length))
        self._ended = Played(world.seed_of(number), total, length)
        self._cycle |= episode_metrics(self._ended)
        self._begin_anew(env)
        return True

    def _begin_anew(self, env: int) -> None:
        """The next episode of an environment, not yet begun."""
        episodes = self.state.episodes
        episodes.number[env] += len(self.worlds)
        episodes.length[env], episodes.total[env] = 0, 0.0

    def _abandon(self, env: int, steps: int) -> None:
        """End the episode of an environment where it is, so many steps of all into the training."""
        last = steps - 1 - (steps - 1 - env) % len(self.worlds)  # the step that was this environment's last
        position = last - (self.step - self._position)
        if position >= 0:
            self.state.episodes.ended[position // len(self.worlds), env] = True
        else:  # it was learned from as an episode that goes on
            learner = self.state.learner
            self.state = self.state._replace(learner=learner._replace(sums=learner.sums.at[env].set(0.0)))
        self._begin_anew(env)

    def rejoin(self) -> bool:
        """Bring every environment to the middle of its episode, by playing its stored actions again."""
        self.state = self.state._replace(episodes=jax.tree.map(np.copy, self.state.episodes))
        same = [self._rejoined(env) for env in range(len(self.worlds))]
        for env in np.flatnonzero(~np.array(same)):
            self._abandon(int(env), self.step)
        return all(same)

    def _rejoined(self, env: int) -> bool:
        world, real, episodes, envs = self.worlds[env], self.state.real, self.state.episodes, len(self.worlds)
        length = int(episodes.length[env])
        if length == 0:
            return True
        newest = (self.step - 1 - env) % envs  # steps of others since this environment's last
        oldest = newest + envs * (length - 1)
        if oldest >= int(real.size) or not self.config.rejoin:
            return False
        try:
            obs = world.reset(int(episodes.number[env]))
            for steps_ago in range(oldest, newest - 1, -envs):
                outcome = world.step(cut(np.asarray(real.action[(int(real.cursor) - 1 - steps_ago) % real.capacity])))
                obs = outcome.next_obs
                if outcome.terminated or outcome.truncated:
                    break
        except EnvError:  # the next reset says whether it can go on at all
            return False
        return np.array_equal(obs, episodes.obs[env])

    def _learn(self) -> None:
        """The updates of a rollout."""
        started = time.perf_counter()
        state, config = self.state, self.config.ppo
        key = jax.random.fold_in(self._streams.learn, state.counters.updates)
        rollout = phases.newest(state.real, rows=config.rollout, envs=config.envs)
        learner, batches, explained = ppo.prepare(state.learner, rollout, state.episodes.ended, config, key=key)
        self._update(learner, batches, key)
        nothing_ended = np.zeros_like(state.episodes.ended)
        self.state = self.state._replace(episodes=state.episodes._replace(ended=nothing_ended))
        self._cycle["ppo/explained"] = float(explained)
        self._took("learn", started)

    def _judged_critics(self, losses: Losses) -> dict[str, Any]:
        return {}
