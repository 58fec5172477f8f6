"""Several seeds of one configuration trained together: every compiled phase does its work for all of them at once.

Seed for seed it is what `Training` does, up to the rounding of products that are batched. The seeds advance in
lockstep: their counters are the same, their episodes may end at different times.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from m2ac.algorithms import phases, seed_phases
from m2ac.algorithms.base import Phase, streams
from m2ac.algorithms.collecting import LONGEST_BLOCK, after, block_size, host_rows, must_begin_anew, step_world
from m2ac.algorithms.diagnostics import Returns, acted, critic_metrics, fresh_rows, model_metrics, window
from m2ac.algorithms.metrics import count_skips, episode_metrics, fit_metrics, loss_metrics, trust_metrics
from m2ac.algorithms.numbers import (
    Place,
    Skips,
    check_dynamics,
    check_learner,
    check_refused,
    check_skips,
    check_state,
    is_refused,
    mean_of_finite,
    skips_of,
    without_skipped,
)
from m2ac.algorithms.rhythm import Rhythm
from m2ac.algorithms.stacked import Arrays, arrays_of, one_of, one_or_other, stacked
from m2ac.algorithms.state import Counters, State, init_state, rollouts_per_phase
from m2ac.algorithms.task_functions import what_is_wrong
from m2ac.algorithms.training import FIT_SLICE, imagination, in_env_units, settled_scaling
from m2ac.algorithms.watch import watch_metrics
from m2ac.config import MODELLED, SOFT, AgentConfig
from m2ac.dynamics.fit import Dynamics, Fit, FitReport
from m2ac.envs.world import Played, World
from m2ac.imagination.rollout import Imagination
from m2ac.learners.acting import ActingPolicy
from m2ac.learners.choice import entropy_bonus, learner_of
from m2ac.learners.sac import SACLosses, SACState
from m2ac.scaling import Scaling
from m2ac.types import RewardFn, TerminationFn, Transition

T = TypeVar("T")


class SeedsProgress(NamedTuple):
    """Where a training of several seeds is."""

    step: int
    phase: Phase
    settled: bool  # every update due for the collected steps is done: the moment to evaluate
    metrics: tuple[Mapping[str, Any], ...] | None  # one per seed, once per cycle; times are those of all seeds together
    episodes: tuple[Played | None, ...]  # one per seed: a training episode that has just ended


class ManySeeds(Rhythm[SeedsProgress]):
    """Runs of Algorithm 1 that differ in nothing but their seed."""

    def __init__(
        self,
        config: AgentConfig,
        worlds: Sequence[World],
        *,
        termination_fn: TerminationFn | None = None,
        reward_fn: RewardFn | None = None,
        states: Sequence[State] | None = None,
    ) -> None:
        """`config` must be resolved; its seed counts for nothing, every seed is that of its world.

        `states` are copied; they must have the same counters and sizes.
        """
        self.config = config
        self.worlds = tuple(worlds)
        assert config.algo in SOFT, "seeds of Soft Actor-Critic alone are trained together"
        self.learner = learner_of(config)
        self.imagination = imagination(config, termination_fn, reward_fn) if config.algo in MODELLED else None
        if states is None:
            states = [_initial(config, world, learns_termination=termination_fn is None) for world in worlds]
        else:
            for state in states:
                check_state(state)
        assert len(states) == len(worlds) > 0
        assert len({state.counters._replace(skips=0) for state in states}) == 1, "seeds advance in lockstep"
        self._counters = states[0].counters._replace(skips=0)
        self._skips = [state.counters.skips for state in states]
        self._episodes = tuple(state.episode for state in states)
        self._scalings = tuple(state.scaling for state in states)
        self._arrays: Arrays = stacked(*(arrays_of(s) for s in states))
        self._streams = stacked(*(streams(world.seed) for world in worlds))
        self._policies: tuple[ActingPolicy, ...] | None = None
        self._cycles: list[dict[str, Any]] = [{} for _ in worlds]
        self._losses: list[SACLosses] = []
        self._ended: list[Played | None] = [None for _ in worlds]

    @property
    def counters(self) -> Counters:
        """How far every seed is; only their updates left out in a row are their own."""
        return self._counters

    @property
    def _has_losses(self) -> bool:
        return bool(self._losses)

    def state_of(self, i: int) -> State:
        """The whole state of one seed, as `Training` has it."""
        counters = self._counters._replace(skips=self._skips[i])
        arrays, episode = one_of(self._arrays, np.int32(i)), self._episodes[i]
        return State(*arrays, counters=counters, episode=episode, scaling=self._scalings[i])

    def states(self) -> list[State]:
        """The whole state of every seed."""
        return [self.state_of(i) for i in range(len(self.worlds))]

    def acting_policy(self, i: int) -> ActingPolicy:
        """The current policy of one seed, for use outside of compiled code."""
        if self._policies is None:
            layers = jax.device_get(self._arrays.learner.policy)  # one transfer for all seeds
            self._policies = tuple(
                ActingPolicy(((w[s], b[s]) for w, b in layers), scaling) for s, scaling in enumerate(self._scalings)
            )
        return self._policies[i]

    def _collect(self, steps: int) -> None:
        """Line 4 of Algorithm 1 in every world in turn, at random at first; what happened is stored in one go."""
        assert self.config.random_steps is not None
        started = time.perf_counter()
        seeds = range(len(self.worlds))
        room = block_size(steps, self._arrays.real.capacity)
        random = self.step < self.config.random_steps
        policies = [None if random else self.acting_policy(s) for s in seeds]
        rows = host_rows((len(seeds), room), self.worlds[0].obs_dim, self.worlds[0].action_dim)
        rows_of = [jax.tree.map(lambda x, s=s: x[s], rows) for s in seeds]
        counters, taken = self._counters, 0
        episodes = tuple(
            after(episode) if must_begin_anew(world, episode.length) else episode
            for world, episode in zip(self.worlds, self._episodes, strict=True)
        )
        try:
            for taken in range(min(steps, room)):
                stepped = [
                    step_world(
                        world,
                        episodes[s],
                        rows_of[s],
                        taken,
                        policies[s],
                        scaling=self._scalings[s],
                        seed=world.seed,
                        step=self.step + taken,
                    )
                    for s, world in enumerate(self.worlds)
                ]
                episodes = tuple(episode for episode, _ in stepped)
                for s, (_, ended) in enumerate(stepped):
                    if ended is not None:
                        self._ended[s] = ended
                        self._cycles[s] |= episode_metrics(ended)
                if time.perf_counter() - started > LONGEST_BLOCK:
                    break
            taken += 1
        except BaseException:
            # Some worlds are a step ahead of what is stored, and where one of them is nobody knows; all begin anew.
            episodes = tuple(after(episode) for episode in episodes)
            raise
        finally:
            self._arrays = self._arrays._replace(real=seed_phases.store(self._arrays.real, rows, taken))
            self._counters = counters._replace(steps=counters.steps + taken)
            self._episodes = episodes
        self._took("collect", started)

    def _settle_scalings(self) -> None:
        """As `Training` does, each seed by its own random steps."""
        if all(scaling.settled for scaling in self._scalings):
            return
        reals = [self.state_of(i).real for i in range(len(self.worlds))]
        scalings = tuple(settled_scaling(self.config, real) for real in reals)
        after = [phases.rescaled(real, scaling) for real, scaling in zip(reals, scalings, strict=True)]
        arrays = self._arrays._replace(real=stacked(*after))
        # All at once: a scaling that is settled beside rows that are not yet scaled would be handed back as whole.
        self._scalings, self._arrays, self._policies = scalings, arrays, None

    def _stacked_scaling(self) -> Scaling | None:
        """Every seed's own; None where there is none to speak of."""
        return None if all(scaling.idle for scaling in self._scalings) else stacked(*self._scalings)

    def _model(self) -> Iterator[SeedsProgress]:
        """Lines 5-7 of Algorithm 1; a fit that is done waits for those that are not."""
        self._settle_scalings()
        arrays, config, counters = self._arrays, self.config, self._counters
        assert arrays.dynamics is not None
        assert arrays.imagined is not None
        assert self.imagination is not None
        if not counters.fits:
            self._judge_functions(self.imagination)
        self._judge_models(self.imagination)
        started = time.perf_counter()
        fits = np.int32(counters.fits)
        fit = seed_phases.start_fit(arrays.dynamics, arrays.real, self._streams.fit, fits, config.model)  # line 5
        while not np.all(fit.done):
            yield self._progress("fitting")
            fit = self._fit_on(fit)
        dynamics = self._judged(*seed_phases.finish_fit(fit, arrays.real, config.model))
        self._took("fit", started)
        yield self._progress("imagining")

        started = time.perf_counter()
        imagined, trust = seed_phases.imagine(  # lines 6-7
            arrays.imagined,
            arrays.learner.policy,
            dynamics.ensemble,
            arrays.real,
            self._streams.imagine,
            self._stacked_scaling(),
            fits,
            rollouts=rollouts_per_phase(config),
            how=self.imagination,
        )
        self._arrays = arrays._replace(dynamics=dynamics, imagined=imagined)
        self._counters = counters._replace(fits=counters.fits + 1, modelled_at=counters.steps)
        for cycle, own_trust in zip(self._cycles, self._each(trust), strict=True):
            cycle |= trust_metrics(own_trust, self.imagination)
        self._took("imagine", started)

    def _judge_functions(self, how: Imagination) -> None:
        """The task's functions on the first real steps of every seed."""
        for s, world in enumerate(self.worlds):
            scaling = self._scalings[s]
            wrong = what_is_wrong(self.state_of(s).real, how if scaling.idle else in_env_units(how, scaling))
            if wrong is not None:
                world.notices.tell("functions", wrong)

    def _judge_models(self, how: Imagination) -> None:
        """Every model on the real steps since its last fit, which it has not seen."""
        arrays, counters = self._arrays, self._counters
        looked_at = window(self.config, arrays.real.capacity)
        fresh = fresh_rows(counters, looked_at)
        if not fresh:
            return
        assert arrays.dynamics is not None
        assert self.config.mask.uncertainty is not None
        started = time.perf_counter()
        phase = np.int32(counters.fits)
        errors = seed_phases.judge_model(
            arrays.dynamics.ensemble, arrays.real, self._streams.judge, phase, window=looked_at, how=how
        )
        for cycle, own_errors in zip(self._cycles, self._each(errors), strict=True):
            cycle |= model_metrics(own_errors, fresh=fresh, score=self.config.mask.uncertainty)
        self._took("judge", started)

    def _fit_on(self, fit: Fit) -> Fit:
        """A slice of every fit; where a number in one is not finite, the same slice again without those batches."""
        slice_of = fit, self._arrays.real, np.int32(FIT_SLICE), self.config.model
        after = seed_phases.fit_slice(*slice_of)
        return after if np.all(seed_phases.fit_is_finite(after)) else seed_phases.fit_slice_guarded(*slice_of)

    def _judged(self, dynamics: Dynamics, report: FitReport) -> Dynamics:
        """The fitted models, or those before where no member of one can be judged."""
        assert self._arrays.dynamics is not None
        refused = is_refused(report, self.config)
        for s, own_report in enumerate(self._each(report)):
            self._cycles[s] |= fit_metrics(own_report, refused=bool(refused[s]))
        if np.any(report.skipped):
            for s, faulty in enumerate(np.asarray(seed_phases.faulty_dynamics(dynamics))):
                check_dynamics(faulty, self._place(s))
        if not refused.any():
            return dynamics
        for s in np.flatnonzero(refused).tolist():
            dynamics_before, real = one_of((self._arrays.dynamics, self._arrays.real), np.int32(s))
            check_refused(dynamics_before, real, self._place(s))
        return one_or_other(refused, self._arrays.dynamics, dynamics)

    def _place(self, s: int) -> Place:
        """Where the next update of a seed is."""
        return Place(self.step, self._counters.updates, self.worlds[s].seed)

    def _learn(self) -> None:
        """Line 8 of Algorithm 1: the updates of one environment step."""
        self._settle_scalings()
        arrays, config, counters = self._arrays, self.config, self._counters
        assert config.updates_per_step is not None
        started = time.perf_counter()
        batches, keys = seed_phases.draw_batches(
            arrays.real,
            arrays.imagined,
            self._streams.learn,
            np.int32(counters.updates),
            batches=config.updates_per_step,
            batch_size=config.sac.batch_size,
            real_share=config.replay.real_share,
        )
        seeds = range(len(self.worlds))
        places, skips = [self._place(s) for s in seeds], [Skips() for _ in seeds]
        learner, losses, finite = seed_phases.update_many(arrays.learner, batches, keys, config.sac)
        if not np.all(finite):
            learner, losses, skips = self._without_faults(batches, keys)
        self._arrays = arrays._replace(learner=learner)
        self._skips = [own.at_end for own in skips]
        self._counters = counters._replace(updates=counters.updates + config.updates_per_step)
        self._policies = None
        self._losses.append(losses)
        self._took("learn", started)
        for s, own in enumerate(skips):
            if own.updates:
                check_skips(own, self.learner, config, one_of(arrays.real, np.int32(s)), places[s])

    def _without_faults(self, batches: Transition, keys: seed_phases.Keys) -> tuple[SACState, SACLosses, list[Skips]]:
        """The same updates again, for each seed without those whose numbers are not finite."""
        self._check_learners()
        after, *told = seed_phases.update_many_guarded(self._arrays.learner, batches, keys, self.config.sac)
        losses, faulty = jax.device_get(told)
        skips = []
        for s, cycle in enumerate(self._cycles):
            own_losses = SACLosses(*(x[s] for x in losses))
            skips.append(skips_of(self.learner, own_losses, faulty[s], before=self._skips[s]))
            count_skips(self.learner.group, cycle, skips[s])
        return after, without_skipped(losses, faulty), skips

    def _check_learners(self) -> None:
        for s, faulty in enumerate(np.asarray(seed_phases.faulty_parts(self._arrays.learner))):
            check_learner(self.learner, faulty, self._place(s))

    def _progress(self, phase: Phase, *, ends_cycle: bool = False) -> SeedsProgress:
        if ends_cycle:
            self._check_learners()
        metrics = self.cycle_metrics() if ends_cycle else None
        ended, self._ended = tuple(self._ended), [None for _ in self.worlds]
        return SeedsProgress(self.step, phase, not self._updates_due(), metrics, ended)

    def _took(self, phase: str, started: float) -> None:
        name, seconds = f"time/{phase}", time.perf_counter() - started
        for cycle in self._cycles:
            cycle[name] = cycle.get(name, 0.0) + seconds

    def _each(self, results: T) -> list[T]:
        """Every seed's part of the results of a phase, on the host."""
        fetched = jax.device_get(results)
        return [jax.tree.map(lambda x, s=s: x[s], fetched) for s in range(len(self.worlds))]

    def cycle_metrics(self) -> tuple[Mapping[str, Any], ...]:
        """What happened to every seed since the last call or the start of the cycle, as plain numbers."""
        metrics = [{"step": self.step, "updates": self._counters.updates, **cycle} for cycle in self._cycles]
        if self._losses:
            losses = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *self._losses)
            rewards = np.asarray(seed_phases.reward_range(self._arrays.real))
            returns = self._critics_judged(losses)
            for s, own in enumerate(metrics):
                own_losses = SACLosses(*(x[s] for x in losses))
                own |= loss_metrics(self.learner.group, own_losses) | self._cycles[s]
                own |= watch_metrics(own_losses, rewards[s], self.learner)
                own |= critic_metrics(returns[s], acted=acted(self._counters, self.config))
        self._cycles, self._losses = [{} for _ in self.worlds], []
        return tuple(metrics)

    def _critics_judged(self, losses: SACLosses) -> list[Returns]:
        """Every seed's critics beside what followed its newest real steps."""
        arrays = self._arrays
        bonus = np.array([mean_of_finite(own) for own in entropy_bonus(losses)], dtype=np.float32)
        return self._each(seed_phases.judge_critics(arrays.learner, arrays.real, bonus, learner=self.learner))


def _initial(config: AgentConfig, world: World, *, learns_termination: bool) -> State:
    """The state that a training of the world's seed begins with."""
    return init_state(
        replace(config, seed=world.seed), world.obs_dim, world.action_dim, learns_termination=learns_termination
    )
