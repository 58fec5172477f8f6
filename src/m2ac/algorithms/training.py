"""Algorithm 1 as a loop: M2AC, with MBPO as the case that keeps everything and SAC as the case without a model.

Training yields its progress at every point where it can be looked at, evaluated, saved or left; it prints nothing and
writes nothing.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from m2ac.algorithms import phases
from m2ac.algorithms.collecting import after, block_size, host_rows, step_world
from m2ac.algorithms.rhythm import Phase, Rhythm
from m2ac.algorithms.state import Counters, State, init_state, rollouts_per_phase
from m2ac.config import AgentConfig, mask_rates
from m2ac.dynamics.fit import FitReport, finish_fit, fit_slice, start_fit
from m2ac.dynamics.uncertainty import SCORES
from m2ac.envs.world import EnvError, Played, World
from m2ac.imagination.mask import keep_all, rank_mask
from m2ac.imagination.rollout import Imagination
from m2ac.learners.acting import ActingPolicy
from m2ac.learners.sac import SACLosses, update_many
from m2ac.replay import first_slots, grow_real
from m2ac.types import Key, RewardFn, TerminationFn

FIT_SLICE = 250
"""Batches of a fit between two chances to stop: some seconds on a laptop."""


class Streams(NamedTuple):
    """Keys of a run's random numbers, each to be folded with a counter, so that no generator needs saving."""

    fit: Key
    imagine: Key
    learn: Key


def streams(seed: int) -> Streams:
    """The streams that follow from a seed; `collecting.ACT` is one more, on the host."""
    root = jax.random.key(seed)
    return Streams(*(jax.random.fold_in(root, stream) for stream in (2, 3, 4)))


class Progress(NamedTuple):
    """Where a training is."""

    step: int
    phase: Phase
    settled: bool  # every update due for the collected steps is done: the moment to evaluate
    metrics: Mapping[str, Any] | None  # once per cycle
    episode: Played | None  # a training episode that has just ended


class Training(Rhythm[Progress]):
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
        self._streams = streams(config.seed)
        self._cycle: dict[str, Any] = {}
        self._losses: list[SACLosses] = []
        self._ended: Played | None = None

    @property
    def counters(self) -> Counters:
        """How far the training is."""
        return self.state.counters

    def acting_policy(self) -> ActingPolicy:
        """The current policy, for use outside of compiled code."""
        return ActingPolicy(self.state.learner.policy)

    def rejoin(self) -> bool:
        """Bring the environment to the middle of the episode under way, by playing its stored actions again.

        False where the environment went another way this time, or failed: then a new episode begins.
        """
        episode, real = self.state.episode, self.state.real
        if episode.length == 0:
            return True
        same = episode.length <= real.capacity
        if same:
            try:
                same = np.array_equal(self._replayed(), episode.obs)
            except EnvError:  # the next reset says whether it can go on at all
                same = False
        if not same:
            self.state = self.state._replace(episode=after(episode))
        return same

    def _replayed(self) -> NDArray[np.float32]:
        """Where the stored actions of the episode under way lead this time."""
        episode, real = self.state.episode, self.state.real
        obs = self.world.reset(episode.number)
        for index in range(int(real.cursor) - episode.length, int(real.cursor)):
            outcome = self.world.step(np.asarray(real.action[index % real.capacity]))
            obs = outcome.next_obs
            if outcome.terminated or outcome.truncated:
                break
        return obs

    def make_room(self, steps: int, *, slots: int = 0) -> None:
        """Let the real buffer hold that many transitions, in all, and at least that many observations."""
        real = self.state.real
        if steps > real.capacity or slots > real.slots:
            capacity = max(steps, real.capacity)
            self.state = self.state._replace(
                real=grow_real(real, capacity, slots=max(slots, real.slots, first_slots(capacity)))
            )

    def _collect(self, steps: int) -> None:
        """Line 4 of Algorithm 1: act in the real environment, at random at first, and store what happened."""
        assert self.config.random_steps is not None
        started = time.perf_counter()
        room = block_size(steps, self.state.real.capacity)
        policy = None if self.step < self.config.random_steps else self.acting_policy()
        rows = host_rows((room,), self.world.obs_dim, self.world.action_dim)
        counters, episode, taken = self.state.counters, self.state.episode, 0
        try:
            for taken in range(min(steps, room)):
                episode, ended = step_world(
                    self.world, episode, rows, taken, policy, seed=self.config.seed, step=counters.steps + taken
                )
                if ended is not None:
                    self._ended = ended
                    self._cycle |= episode_metrics(ended)
            taken += 1
        except BaseException:
            # Where the environment is now nobody knows; what it gave before is whole and stays.
            episode = after(episode)
            raise
        finally:
            self.state = self.state._replace(
                real=phases.store(self.state.real, rows, taken),
                counters=counters._replace(steps=counters.steps + taken),
                episode=episode,
            )
        self._took("collect", started)

    def _model(self) -> Iterator[Progress]:
        """Lines 5-7 of Algorithm 1: fit the ensemble, then imagine with it."""
        state, config = self.state, self.config
        assert state.dynamics is not None
        assert state.imagined is not None
        assert self.imagination is not None
        started = time.perf_counter()
        key = jax.random.fold_in(self._streams.fit, state.counters.fits)
        fit = start_fit(state.dynamics, state.real, config.model, key=key)  # line 5
        while not fit.done:
            yield self._progress("fitting")
            fit = fit_slice(fit, state.real, np.int32(FIT_SLICE), config.model)
        dynamics, report = finish_fit(fit, state.real, config.model)
        self._cycle |= fit_metrics(report)
        self._took("fit", started)
        yield self._progress("imagining")

        started = time.perf_counter()
        imagined, trust = phases.imagine(  # lines 6-7
            state.imagined,
            state.learner.policy,
            dynamics.ensemble,
            state.real,
            self._streams.imagine,
            np.int32(state.counters.fits),
            rollouts=rollouts_per_phase(config),
            how=self.imagination,
        )
        counters = state.counters._replace(fits=state.counters.fits + 1, modelled_at=state.counters.steps)
        self.state = state._replace(dynamics=dynamics, imagined=imagined, counters=counters)
        self._cycle |= trust_metrics(trust, scored=self.imagination.score is not None)
        self._took("imagine", started)

    def _learn(self) -> None:
        """Line 8 of Algorithm 1: the updates of one environment step."""
        config, state = self.config, self.state
        assert config.updates_per_step is not None
        started = time.perf_counter()
        batches, key = phases.draw_batches(
            state.real,
            state.imagined,
            self._streams.learn,
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

    def _progress(self, phase: Phase, *, ends_cycle: bool = False) -> Progress:
        metrics = self.cycle_metrics() if ends_cycle else None
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


def episode_metrics(ended: Played) -> dict[str, Any]:
    """A training episode, as plain numbers."""
    return {"train/return": ended.total, "train/length": ended.length}


def fit_metrics(report: FitReport) -> dict[str, Any]:
    """How a fit went, as plain numbers."""
    return {
        "model/epochs": int(report.epochs),
        "model/batches": int(report.batches),
        "model/train_loss": float(report.train_loss),
        "model/holdout_nll": float(jnp.mean(report.holdout_nll)),
        "model/holdout_mse": float(jnp.mean(report.holdout_mse)),
    }


def trust_metrics(trust: phases.Trust, *, scored: bool) -> dict[str, Any]:
    """What a rollout phase kept, as plain numbers."""
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
