"""Algorithm 1 as a loop: M2AC, with MBPO as the case that keeps everything and SAC as the case without a model.

DDPG, MVE and STEVE are the same loop with another learner, whose world model, if any, is trained before the first
update and then in every one.

Training yields its progress at every point where it can be looked at, evaluated, saved or left; it prints nothing and
writes nothing.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from m2ac.algorithms import phases
from m2ac.algorithms.collecting import LONGEST_BLOCK, after, block_size, host_rows, step_world
from m2ac.algorithms.diagnostics import (
    acted,
    critic_metrics,
    fresh_rows,
    judge_critics,
    judge_model,
    model_metrics,
    window,
)
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
from m2ac.algorithms.rhythm import Phase, Rhythm
from m2ac.algorithms.state import Counters, State, init_state, rollouts_per_phase
from m2ac.algorithms.watch import reward_range, watch_metrics
from m2ac.config import MODELLED, AgentConfig, mask_rates
from m2ac.dynamics.fit import (
    Dynamics,
    Fit,
    FitReport,
    faulty_dynamics,
    finish_fit,
    fit_is_finite,
    fit_slice,
    fit_slice_guarded,
    start_fit,
)
from m2ac.dynamics.uncertainty import SCORES
from m2ac.envs.world import EnvError, Played, World
from m2ac.imagination.mask import keep_all, rank_mask
from m2ac.imagination.rollout import Imagination
from m2ac.learners import ddpg
from m2ac.learners.acting import ActingPolicy
from m2ac.learners.choice import LearnerState, Losses, acting_policy, entropy_bonus, learner_of, losses_of
from m2ac.learners.updating import faulty_parts
from m2ac.replay import first_slots, grow_real
from m2ac.types import Key, RewardFn, TerminationFn, Transition

PRETRAIN_SLICE = 250
"""Updates of a world model between two chances to stop."""

FIT_SLICE = 250
"""Batches of a fit between two chances to stop: some seconds on a laptop."""


class Streams(NamedTuple):
    """Keys of a run's random numbers, each to be folded with a counter, so that no generator needs saving."""

    fit: Key
    imagine: Key
    learn: Key
    judge: Key


def streams(seed: int) -> Streams:
    """The streams that follow from a seed; `collecting.ACT` is one more, on the host."""
    root = jax.random.key(seed)
    return Streams(*(jax.random.fold_in(root, stream) for stream in (2, 3, 4, 6)))


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
        if state is not None:
            check_state(state)
        self.learner = learner_of(config)
        self.imagination = imagination(config, termination_fn, reward_fn) if config.algo in MODELLED else None
        self.state = state or init_state(
            config, world.obs_dim, world.action_dim, learns_termination=termination_fn is None
        )
        self._streams = streams(config.seed)
        self._cycle: dict[str, Any] = {}
        self._losses: list[Losses] = []
        self._ended: Played | None = None

    @property
    def counters(self) -> Counters:
        """How far the training is."""
        return self.state.counters

    @property
    def _has_losses(self) -> bool:
        return bool(self._losses)

    def acting_policy(self) -> ActingPolicy:
        """The current policy, for use outside of compiled code."""
        return acting_policy(self.config, self.state.learner.policy)

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
                if time.perf_counter() - started > LONGEST_BLOCK:
                    break
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

    def _pretrained(self) -> int:
        """Updates that a world model had on its own."""
        return self.state.counters.fits * PRETRAIN_SLICE

    def _model_due(self) -> bool:
        if self._modelled:
            return super()._model_due()
        world = getattr(self.state.learner, "world", None)
        return world is not None and self._pretrained() < (self.config.world.pretrain or 0)

    def _model(self) -> Iterator[Progress]:
        """Lines 5-7 of Algorithm 1, or what comes in their place before the first update of STEVE and MVE."""
        yield from self._fit_and_imagine() if self._modelled else self._pretrain()

    def _pretrain(self) -> Iterator[Progress]:
        """A world model learns the random steps before values look ahead with it."""
        config, how = self.config, self.learner.how
        assert config.world.pretrain is not None
        while self._model_due():
            state = self.state
            assert isinstance(state.learner, ddpg.DDPGState)
            started = time.perf_counter()
            count = min(PRETRAIN_SLICE, config.world.pretrain - self._pretrained())
            batches, key = phases.draw_batches(
                state.real,
                None,
                self._streams.fit,
                np.int32(state.counters.fits),
                batches=count,
                batch_size=self.learner.batch_size,
                real_share=config.replay.real_share,
            )
            learner, loss = ddpg.pretrain(state.learner, batches, how, key=key)
            counters = state.counters._replace(fits=state.counters.fits + 1, modelled_at=state.counters.steps)
            self.state = state._replace(learner=learner, counters=counters)
            self._cycle["ddpg/pretrain_loss"] = float(np.mean(loss))
            self._took("fit", started)
            yield self._progress("fitting")

    def _fit_and_imagine(self) -> Iterator[Progress]:
        """Lines 5-7 of Algorithm 1: fit the ensemble, then imagine with it."""
        state, config = self.state, self.config
        assert state.dynamics is not None
        assert state.imagined is not None
        assert self.imagination is not None
        self._judge_model(self.imagination)
        started = time.perf_counter()
        key = jax.random.fold_in(self._streams.fit, state.counters.fits)
        fit = start_fit(state.dynamics, state.real, config.model, key=key)  # line 5
        while not fit.done:
            yield self._progress("fitting")
            fit = self._fit_on(fit)
        dynamics = self._judged(*finish_fit(fit, state.real, config.model))
        self._took("fit", started)

        started = time.perf_counter()
        rolling = phases.start_imagining(  # line 6
            dynamics.ensemble,
            state.real,
            self._streams.imagine,
            np.int32(state.counters.fits),
            rollouts=rollouts_per_phase(config),
            how=self.imagination,
        )
        for _ in range(self.imagination.horizon):
            yield self._progress("imagining")
            rolling = phases.imagine_step(rolling, state.learner.policy, dynamics.ensemble, how=self.imagination)
        imagined, trust = phases.finish_imagining(state.imagined, rolling.rollout)  # line 7
        counters = state.counters._replace(fits=state.counters.fits + 1, modelled_at=state.counters.steps)
        self.state = state._replace(dynamics=dynamics, imagined=imagined, counters=counters)
        self._cycle |= trust_metrics(trust, scored=self.imagination.score is not None)
        self._took("imagine", started)

    def _judge_model(self, how: Imagination) -> None:
        """The model on the real steps since its last fit, which it has not seen."""
        state = self.state
        looked_at = window(self.config, state.real.capacity)
        fresh = fresh_rows(state.counters, looked_at)
        if not fresh:
            return
        assert state.dynamics is not None
        started = time.perf_counter()
        errors = judge_model(
            state.dynamics.ensemble,
            state.real,
            self._streams.judge,
            np.int32(state.counters.fits),
            window=looked_at,
            how=how,
        )
        self._cycle |= model_metrics(errors, fresh=fresh, score=self.config.mask.uncertainty)
        self._took("judge", started)

    def _fit_on(self, fit: Fit) -> Fit:
        """A slice of the fit; where a number in it is not finite, the same slice again without those batches."""
        slice_of = fit, self.state.real, np.int32(FIT_SLICE), self.config.model
        after = fit_slice(*slice_of)
        return after if fit_is_finite(after) else fit_slice_guarded(*slice_of)

    def _judged(self, dynamics: Dynamics, report: FitReport) -> Dynamics:
        """The fitted model, or the one before where no member of it can be judged."""
        assert self.state.dynamics is not None
        refused = bool(is_refused(report, self.config))
        self._cycle |= fit_metrics(report, refused=refused)
        if report.skipped:
            check_dynamics(np.asarray(faulty_dynamics(dynamics)), self._place)
        if refused:
            check_refused(self.state.dynamics, self.state.real, self._place)
        return self.state.dynamics if refused else dynamics

    @property
    def _place(self) -> Place:
        """Where the next update is."""
        return Place(self.step, self.state.counters.updates, self.config.seed)

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
            batch_size=self.learner.batch_size,
            real_share=config.replay.real_share,
        )
        place, skips = self._place, Skips()
        learner, losses, finite = self.learner.update_many(state.learner, batches, self.learner.how, key=key)
        if not finite:
            learner, losses, skips = self._without_faults(batches, key)
        updates = state.counters.updates + config.updates_per_step
        self.state = state._replace(
            learner=learner, counters=state.counters._replace(updates=updates, skips=skips.at_end)
        )
        self._losses.append(losses)
        self._took("learn", started)
        check_skips(skips, config, state.real, place)

    def _without_faults(self, batches: Transition, key: Key) -> tuple[LearnerState, Losses, Skips]:
        """The same updates again, without those whose numbers are not finite."""
        state, counters = self.state.learner, self.state.counters
        check_learner(self.learner, np.asarray(faulty_parts(state)), self._place)
        after, *told = self.learner.update_many_guarded(state, batches, self.learner.how, key=key)
        losses, faulty = jax.device_get(told)
        skips = skips_of(self.learner, losses, faulty, before=counters.skips)
        count_skips(self.learner.group, self._cycle, skips)
        return after, without_skipped(losses, faulty), skips

    def now(self) -> Progress:
        """Where the training is, before it goes on."""
        return Progress(self.step, "collecting", not self._updates_due(), None, None)

    def _progress(self, phase: Phase, *, ends_cycle: bool = False) -> Progress:
        if ends_cycle:
            check_learner(self.learner, np.asarray(faulty_parts(self.state.learner)), self._place)
        metrics = self.cycle_metrics() if ends_cycle else None
        ended, self._ended = self._ended, None
        return Progress(self.step, phase, not self._updates_due(), metrics, ended)

    def _took(self, phase: str, started: float) -> None:
        name = f"time/{phase}"
        self._cycle[name] = self._cycle.get(name, 0.0) + time.perf_counter() - started

    def unfinished(self) -> tuple[dict[str, Any], dict[str, Float[np.ndarray, "N"]]]:
        """What is known of the cycle under way, to be given to `take_up` where the training is continued."""
        losses = jax.tree.map(lambda *x: np.concatenate(x), *self._losses) if self._losses else None
        return dict(self._cycle), {} if losses is None else losses._asdict()

    def take_up(self, cycle: Mapping[str, Any], losses: Mapping[str, Any]) -> None:
        """Go on with the metrics of a cycle that was left unfinished."""
        lengths = {np.shape(values) for values in losses.values()}
        if len(lengths) > 1 or any(len(shape) != 1 for shape in lengths) or "step" in cycle:
            raise ValueError("losses or metrics that are not of a cycle")
        if any(not isinstance(value, int | float) for name, value in cycle.items() if name.startswith("time/")):
            raise ValueError("times that are no numbers")
        self._cycle = dict(cycle)
        self._losses = [losses_of(self.learner, losses)] if losses else []

    def cycle_metrics(self) -> Mapping[str, Any]:
        """What happened since the last call or the start of the cycle, as plain numbers."""
        metrics = {"step": self.step, "updates": self.state.counters.updates, **self._cycle}
        if self._losses:
            losses = jax.tree.map(lambda *x: np.concatenate(x), *self._losses)
            metrics |= loss_metrics(self.learner.group, losses) | self._cycle
            metrics |= watch_metrics(losses, np.asarray(reward_range(self.state.real)), self.config)
            metrics |= self._critics_judged(losses)
        self._cycle, self._losses = {}, []
        return metrics

    def _critics_judged(self, losses: Losses) -> dict[str, Any]:
        """The critics beside what followed the newest real steps."""
        state = self.state
        bonus = np.float32(mean_of_finite(entropy_bonus(losses)))
        returns = judge_critics(state.learner, state.real, bonus, learner=self.learner)
        return critic_metrics(returns, acted=acted(state.counters, self.config))


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
