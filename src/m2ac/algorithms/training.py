"""Algorithm 1 as a loop: M2AC, with MBPO as the case that keeps everything and SAC as the case without a model.

Training yields its progress at every point where it can be looked at, evaluated, saved or left; it prints nothing and
writes nothing.
"""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from m2ac.algorithms import phases
from m2ac.algorithms.state import Episode, State, init_state, rollouts_per_phase
from m2ac.config import AgentConfig, mask_rates
from m2ac.dynamics.fit import FitReport, finish_fit, fit_slice, start_fit
from m2ac.dynamics.uncertainty import SCORES
from m2ac.envs.world import Played, World
from m2ac.imagination.mask import keep_all, rank_mask
from m2ac.imagination.rollout import Imagination
from m2ac.learners.acting import ActingPolicy
from m2ac.learners.sac import SACLosses, update_many
from m2ac.replay import grow_real
from m2ac.types import RewardFn, TerminationFn, Transition

Phase = Literal["exploring", "collecting", "fitting", "imagining", "learning"]

FIT_SLICE = 250
"""Batches of a fit between two chances to stop: some seconds on a laptop."""

COLLECTED_AT_ONCE = 50
"""Real steps between two chances to stop while nothing is learned."""

# Streams of random numbers, each a fold of the run's key with a counter, so that no generator needs saving.
_FIT, _IMAGINE, _LEARN, _ACT = range(2, 6)


class Progress(NamedTuple):
    """Where a training is."""

    step: int
    phase: Phase
    settled: bool  # every update due for the collected steps is done: the moment to evaluate
    metrics: Mapping[str, Any] | None  # once per cycle
    episode: Played | None  # a training episode that has just ended


class Training:
    """A run of Algorithm 1, resumable from its state at every yield."""

    def __init__(
        self,
        config: AgentConfig,
        world: World,
        *,
        termination_fn: TerminationFn | None = None,
        reward_fn: RewardFn | None = None,
        state: State | None = None,
    ) -> None:
        """`config` must be resolved; without `termination_fn` the ensemble learns when episodes terminate."""
        self.config = config
        self.world = world
        self.imagination = imagination(config, termination_fn, reward_fn) if config.algo != "sac" else None
        self.state = state or init_state(
            config, world.obs_dim, world.action_dim, learns_termination=termination_fn is None
        )
        root = jax.random.key(config.seed)
        self._keys = {stream: jax.random.fold_in(root, stream) for stream in (_FIT, _IMAGINE, _LEARN)}
        self._cycle: dict[str, Any] = {}
        self._losses: list[SACLosses] = []
        self._ended: Played | None = None

    @property
    def step(self) -> int:
        """Environment steps taken."""
        return self.state.counters.steps

    def acting_policy(self) -> ActingPolicy:
        """The current policy, for use outside of compiled code."""
        return ActingPolicy(self.state.learner.policy)

    def rejoin(self) -> bool:
        """Bring the environment to the middle of the episode under way, by playing its stored actions again.

        False where the environment went another way this time: then a new episode begins.
        """
        episode, real = self.state.episode, self.state.real
        if episode.length == 0:
            return True
        capacity = real.rows.reward.shape[0]
        same = episode.length <= capacity
        if same:
            obs = self.world.reset(episode.number)
            for index in range(int(real.cursor) - episode.length, int(real.cursor)):
                outcome = self.world.step(np.asarray(real.rows.action[index % capacity]))
                obs = outcome.next_obs
                if outcome.terminated or outcome.truncated:
                    break
            same = np.array_equal(obs, episode.obs)
        if not same:
            self.state = self.state._replace(episode=Episode(episode.number + 1, 0, 0.0, episode.obs))
        return same

    def make_room(self, steps: int) -> None:
        """Let the real buffer hold that many transitions, in all."""
        if steps > self.state.real.rows.reward.shape[0]:
            self.state = self.state._replace(real=grow_real(self.state.real, steps))

    def run(self, until: int) -> Iterator[Progress]:
        """Train until that many environment steps are taken and the updates due for them are done."""
        assert self.config.random_steps is not None
        while self.step < min(self.config.random_steps, until):
            self._collect(min(self.config.random_steps, until) - self.step)
            yield self._progress("exploring")
        if self.step < self.config.random_steps:
            return
        cycle = {"epoch": self._epoch, "mbpo": self._interleaved}[self.config.rhythm]
        while self.step < until or self._updates_due():
            yield from cycle(until)
            yield self._progress("learning", metrics=self.cycle_metrics())

    def _epoch(self, until: int) -> Iterator[Progress]:
        """Lines 4-8 of Algorithm 1, to the letter; the random steps are the collection of the first epoch."""
        if not self._updates_due():
            end = min(self.step + self._every, until)
            while self.step < end:
                self._collect(end - self.step)  # line 4
                yield self._progress("collecting")
        yield from self._model()  # lines 5-7
        while self._updates_due():
            self._learn()  # line 8
            yield self._progress("learning")

    def _interleaved(self, until: int) -> Iterator[Progress]:
        """The same lines in MBPO's rhythm: model first, then updates after every single step of the cycle."""
        yield from self._model()  # lines 5-7
        end = min(self.step + self._every, until)
        if self.state.dynamics is not None:
            end = min(self.state.counters.modelled_at + self._every, until)
        while self.step < end:
            self._collect(1)  # line 4
            while self._updates_due():
                self._learn()  # line 8
            yield self._progress("learning")

    @property
    def _every(self) -> int:
        assert self.config.model_every is not None
        return self.config.model_every

    def _model_due(self) -> bool:
        counters = self.state.counters
        if self.state.dynamics is None:
            return False
        if self.config.rhythm == "epoch":
            return counters.modelled_at != counters.steps
        return counters.modelled_at < 0 or counters.steps - counters.modelled_at >= self._every

    def _updates_due(self) -> bool:
        """Whether the steps already taken still have to be learned from."""
        assert self.config.updates_per_step is not None
        assert self.config.random_steps is not None
        learned = self.step - self.config.random_steps + (self._every if self.config.rhythm == "epoch" else 0)
        return learned * self.config.updates_per_step > self.state.counters.updates

    def _collect(self, steps: int) -> None:
        """Line 4 of Algorithm 1: act in the real environment, at random at first, and store what happened."""
        assert self.config.random_steps is not None
        started = time.perf_counter()
        # Two sizes in all, so that two programs store whatever comes; never more than the ring holds.
        room = 1 if steps == 1 else min(COLLECTED_AT_ONCE, self.state.real.rows.reward.shape[0])
        policy = None if self.step < self.config.random_steps else self.acting_policy()
        rows = _rows(room, self.world.obs_dim, self.world.action_dim)
        counters, episode, taken = self.state.counters, self.state.episode, 0
        try:
            for taken in range(min(steps, room)):
                episode = self._step_world(episode, rows, taken, policy)
            taken += 1
        except BaseException:
            # Where the environment is now nobody knows; what it gave before is whole and stays.
            episode = Episode(episode.number + 1, 0, 0.0, episode.obs)
            raise
        finally:
            self.state = self.state._replace(
                real=phases.store(self.state.real, rows, np.int32(taken)),
                counters=counters._replace(steps=counters.steps + taken),
                episode=episode,
            )
        self._took("collect", started)

    def _step_world(self, episode: Episode, rows: Transition, i: int, policy: ActingPolicy | None) -> Episode:
        """One real step, written into row i."""
        if episode.length == 0:
            episode = Episode(episode.number, 0, 0.0, self.world.reset(episode.number))
        noise = np.random.default_rng([self.config.seed, _ACT, self.step + i])
        shape = self.world.action_dim
        if policy is None:
            action = noise.uniform(-1.0, 1.0, shape).astype(np.float32)
        else:
            action = policy(episode.obs, noise.standard_normal(shape).astype(np.float32))
        outcome = self.world.step(action)
        rows.obs[i], rows.action[i], rows.next_obs[i] = episode.obs, action, outcome.next_obs
        rows.reward[i], rows.terminated[i] = outcome.reward, outcome.terminated
        total, length = episode.total + outcome.reward, episode.length + 1
        if not (outcome.terminated or outcome.truncated):
            return Episode(episode.number, length, total, outcome.next_obs)
        self._ended = Played(self.world.seed_of(episode.number), total, length)
        self._cycle["train/return"], self._cycle["train/length"] = total, length
        return Episode(episode.number + 1, 0, 0.0, outcome.next_obs)

    def _model(self) -> Iterator[Progress]:
        """Lines 5-7 of Algorithm 1, where they are due: fit the ensemble, then imagine with it."""
        if not self._model_due():
            return
        state, config = self.state, self.config
        assert state.dynamics is not None
        assert state.imagined is not None
        assert self.imagination is not None
        started = time.perf_counter()
        key = jax.random.fold_in(self._keys[_FIT], state.counters.fits)
        fit = start_fit(state.dynamics, state.real, config.model, key=key)  # line 5
        while not fit.done:
            yield self._progress("fitting")
            fit = fit_slice(fit, state.real, np.int32(FIT_SLICE), config.model)
        dynamics, report = finish_fit(fit, state.real, config.model)
        self._cycle |= _fit_metrics(report)
        self._took("fit", started)
        yield self._progress("imagining")

        started = time.perf_counter()
        imagined, trust = phases.imagine(  # lines 6-7
            state.imagined,
            state.learner.policy,
            dynamics.ensemble,
            state.real,
            self._keys[_IMAGINE],
            np.int32(state.counters.fits),
            rollouts=rollouts_per_phase(config),
            how=self.imagination,
        )
        counters = state.counters._replace(fits=state.counters.fits + 1, modelled_at=state.counters.steps)
        self.state = state._replace(dynamics=dynamics, imagined=imagined, counters=counters)
        self._cycle |= _trust_metrics(trust, scored=self.imagination.score is not None)
        self._took("imagine", started)

    def _learn(self) -> None:
        """Line 8 of Algorithm 1: the updates of one environment step."""
        config, state = self.config, self.state
        assert config.updates_per_step is not None
        started = time.perf_counter()
        batches, key = phases.draw_batches(
            state.real,
            state.imagined,
            self._keys[_LEARN],
            np.int32(state.counters.updates),
            batches=config.updates_per_step,
            batch_size=config.sac.batch_size,
            real_share=config.replay.real_share,
        )
        learner, losses = update_many(state.learner, batches, config.sac, key=key)
        counters = state.counters._replace(updates=state.counters.updates + config.updates_per_step)
        self.state = state._replace(learner=learner, counters=counters)
        self._losses.append(losses)
        jax.block_until_ready(learner.log_temperature)
        self._took("learn", started)

    def _progress(self, phase: Phase, metrics: Mapping[str, Any] | None = None) -> Progress:
        ended, self._ended = self._ended, None
        return Progress(self.step, phase, not self._updates_due(), metrics, ended)

    def _took(self, phase: str, started: float) -> None:
        name = f"time/{phase}"
        self._cycle[name] = self._cycle.get(name, 0.0) + time.perf_counter() - started

    def cycle_metrics(self) -> Mapping[str, Any]:
        """What happened since the last call or the start of the cycle, as plain numbers."""
        metrics = {"step": self.step, "updates": self.state.counters.updates, **self._cycle}
        if self._losses:
            means = jax.tree.map(lambda *x: float(np.mean(np.concatenate(x))), *self._losses)
            metrics |= {f"sac/{name}": value for name, value in means._asdict().items()}
        self._cycle, self._losses = {}, []
        return metrics


def imagination(config: AgentConfig, termination_fn: TerminationFn | None, reward_fn: RewardFn | None) -> Imagination:
    """The parts of Algorithm 2 that a configuration fixes."""
    assert config.horizon is not None
    assert config.mask.penalty is not None
    mask = keep_all if config.mask.rate == 1 else rank_mask(mask_rates(config.mask.rate, config.horizon))
    return Imagination(
        horizon=config.horizon,
        mask=mask,
        score=None if mask is keep_all and not config.mask.penalty else SCORES[config.mask.uncertainty],
        penalty=config.mask.penalty,
        stop=config.mask.stop,
        draw=config.mask.draw,
        rest=config.mask.rest,
        termination_fn=termination_fn,
        reward_fn=reward_fn,
    )


def _rows(count: int, obs_dim: int, action_dim: int) -> Transition:
    """Room on the host for some real transitions."""
    zeros: Any = partial(np.zeros, dtype=np.float32)
    return Transition(
        obs=zeros((count, obs_dim)),
        action=zeros((count, action_dim)),
        reward=zeros(count),
        next_obs=zeros((count, obs_dim)),
        terminated=zeros(count, dtype=bool),
    )


def _fit_metrics(report: FitReport) -> dict[str, Any]:
    return {
        "model/epochs": int(report.epochs),
        "model/batches": int(report.batches),
        "model/train_loss": float(report.train_loss),
        "model/holdout_nll": float(jnp.mean(report.holdout_nll)),
        "model/holdout_mse": float(jnp.mean(report.holdout_mse)),
    }


def _trust_metrics(trust: phases.Trust, *, scored: bool) -> dict[str, Any]:
    kept, alive = np.asarray(trust.kept_by_step), np.asarray(trust.alive_by_step)
    metrics = {
        "trust/rows_kept": int(kept.sum()),
        "trust/share_kept": float(trust.share_kept),
        "trust/kept_by_step": kept.tolist(),
        "trust/alive_by_step": alive.tolist(),
        "trust/nonfinite_rows": int(trust.nonfinite_rows),
        "trust/terminated_rows": int(trust.terminated_rows),
    }
    if not scored:  # nobody asked the other members
        return metrics
    return metrics | {
        "trust/uncertainty_kept": float(trust.uncertainty_kept),
        "trust/uncertainty_dropped": float(trust.uncertainty_dropped),
    }
