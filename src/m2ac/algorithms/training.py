"""Algorithm 1 as a loop: M2AC, with MBPO as the case that keeps everything and SAC as the case without a model."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from m2ac.algorithms import phases
from m2ac.algorithms.base import BaseTraining, Progress
from m2ac.algorithms.collecting import LONGEST_BLOCK, after, block_size, host_rows, must_begin_anew, step_world
from m2ac.algorithms.diagnostics import (
    acted,
    critic_metrics,
    fresh_rows,
    judge_critics,
    judge_model,
    model_metrics,
    window,
)
from m2ac.algorithms.metrics import episode_metrics, fit_metrics, trust_metrics
from m2ac.algorithms.numbers import check_dynamics, check_refused, check_state, is_refused, mean_of_finite
from m2ac.algorithms.rhythm import Rhythm
from m2ac.algorithms.state import State, init_state, rollouts_per_phase
from m2ac.algorithms.task_functions import what_is_wrong
from m2ac.config import MODELLED, AgentConfig
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
from m2ac.envs.world import EnvError, World
from m2ac.imagination.mask import Mask, Threshold, keep_all, rank_mask
from m2ac.imagination.rollout import Imagination
from m2ac.learners.acting import ActingPolicy
from m2ac.learners.choice import Losses, acting_policy, entropy_bonus
from m2ac.model_config import mask_rates
from m2ac.replay import Real
from m2ac.scaling import Scaling, no_scaling, scaling_of, usual_size
from m2ac.types import RewardFn, TerminationFn, Transition

ABSORBED_AT_ONCE = 250
"""Logged transitions stored together."""

FIT_SLICE = 250
"""Batches of a fit between two chances to stop: some seconds on a laptop."""


class Training(BaseTraining[State], Rhythm[Progress]):
    """A run of Algorithm 1, with MBPO as the case that keeps everything and SAC as the case without a model."""

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
        learns_termination = termination_fn is None
        if state is not None:
            check_state(state)
        super().__init__(
            config, state or init_state(config, world.obs_dim, world.action_dim, learns_termination=learns_termination)
        )
        self.world = world
        self._functions = termination_fn, reward_fn
        self.imagination = self._imagination()

    def _imagination(self) -> Imagination | None:
        """Algorithm 2 with the functions of the task, which know the environment's own observations."""
        if self.config.algo not in MODELLED:
            return None
        how = imagination(self.config, *self._functions)
        return how if self.state.scaling.idle else in_env_units(how, self.state.scaling)

    def acting_policy(self) -> ActingPolicy:
        """The current policy, for use outside of compiled code."""
        return acting_policy(self.config, self.learner.acting(self.state.learner), self.state.scaling)

    def absorb(self, rows: Transition) -> None:
        """Take over transitions that were made before, as if they had been made here; they count as no steps."""
        scaling = self.state.scaling
        obs, next_obs = (scaling.apply(np.asarray(each)) for each in (rows.obs, rows.next_obs))
        given: Any = rows._replace(obs=obs, next_obs=next_obs)  # type: ignore[arg-type]
        count = len(rows.reward)
        for start in range(0, count, ABSORBED_AT_ONCE):
            block = _block(given, start)
            taken = min(ABSORBED_AT_ONCE, count - start)
            self.state = self.state._replace(real=phases.store(self.state.real, block, taken))

    def _settle_scaling(self) -> None:
        """Before anything is learned from them, shift and scale observations whose units are far from 1."""
        state = self.state
        if state.scaling.settled:
            return
        scaling = settled_scaling(self.config, state.real)
        if self.config.scale_observations and (
            size := usual_size(np.asarray(state.real.reward)[: int(state.real.size)])
        ):
            self.world.notices.tell(
                "reward",
                f"rewards are of the size of {size:.2g}, and critics learn best from rewards of about 1; "
                f"divide them by that, for example with gymnasium.wrappers.TransformReward",
            )
        self.go_on_from(state._replace(scaling=scaling, real=phases.rescaled(state.real, scaling)))

    def go_on_from(self, state: State) -> None:
        """Take over what this training's state has become, here or together with other seeds."""
        # Only where it is new: functions made anew would be compiled anew.
        settles = state.scaling.settled and not self.state.scaling.settled
        self.state = state
        if settles and not state.scaling.idle:
            self.imagination = self._imagination()

    @property
    def _has_losses(self) -> bool:
        return bool(self._losses)

    @property
    def _settled(self) -> bool:
        return not self._updates_due()

    def rejoin(self) -> bool:
        """Bring the environment to the middle of the episode under way, by playing its stored actions again."""
        episode, real = self.state.episode, self.state.real
        if episode.length == 0:
            return True
        same = self.config.rejoin and episode.length <= real.capacity
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

    def _collect(self, steps: int) -> None:
        """Line 4 of Algorithm 1: act in the real environment, at random at first, and store what happened."""
        assert self.config.random_steps is not None
        started = time.perf_counter()
        room = block_size(steps, self.state.real.capacity)
        policy = None if self.step < self.config.random_steps else self.acting_policy()
        rows = host_rows((room,), self.world.obs_dim, self.world.action_dim)
        counters, episode, taken = self.state.counters, self.state.episode, 0
        if must_begin_anew(self.world, episode.length):
            episode = after(episode)
        try:
            for taken in range(min(steps, room)):
                episode, ended = step_world(
                    self.world,
                    episode,
                    rows,
                    taken,
                    policy,
                    scaling=self.state.scaling,
                    seed=self.config.seed,
                    step=counters.steps + taken,
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

    def _model(self) -> Iterator[Progress]:
        """Lines 5-7 of Algorithm 1: fit the ensemble, then imagine with it."""
        self._settle_scaling()
        state, config = self.state, self.config
        assert state.dynamics is not None
        assert state.imagined is not None
        assert self.imagination is not None
        self._judge_functions(self.imagination)
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
            state.imagined.border,
            self._streams.imagine,
            np.int32(state.counters.fits),
            rollouts=rollouts_per_phase(config),
            how=self.imagination,
        )
        for _ in range(self.imagination.horizon):
            yield self._progress("imagining")
            rolling = phases.imagine_step(rolling, state.learner.policy, dynamics.ensemble, how=self.imagination)
        imagined, trust = phases.finish_imagining(state.imagined, rolling)  # line 7
        counters = state.counters._replace(fits=state.counters.fits + 1, modelled_at=state.counters.steps)
        self.state = state._replace(dynamics=dynamics, imagined=imagined, counters=counters)
        self._cycle |= trust_metrics(trust, self.imagination)
        self._took("imagine", started)

    def _judge_functions(self, how: Imagination) -> None:
        """The task's functions on the newest real steps."""
        wrong = what_is_wrong(self.state.real, how)
        if wrong is not None:
            self.world.notices.tell("functions", wrong)

    def _judge_model(self, how: Imagination) -> None:
        """The model on the real steps since its last fit, which it has not seen."""
        state = self.state
        looked_at = window(self.config, state.real.capacity)
        fresh = fresh_rows(state.counters, looked_at)
        if not fresh:
            return
        assert state.dynamics is not None
        assert self.config.mask.uncertainty is not None
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

    def _learn(self) -> None:
        """Line 8 of Algorithm 1: the updates of one environment step."""
        self._settle_scaling()
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
        self._update(state.learner, batches, key)
        self._took("learn", started)

    def _judged_critics(self, losses: Losses) -> dict[str, Any]:
        """The critics beside what followed the newest real steps."""
        state = self.state
        bonus = np.float32(mean_of_finite(entropy_bonus(losses)))
        returns = judge_critics(state.learner, state.real, bonus, learner=self.learner)
        return critic_metrics(returns, acted=acted(state.counters, self.config))


def _block(rows: Any, start: int) -> Any:
    """Rows from there on that are stored together, filled up with zeros: one program stores them all."""
    cut = jax.tree.map(lambda x: x[start : start + ABSORBED_AT_ONCE], rows)
    return jax.tree.map(lambda x: np.pad(x, [(0, ABSORBED_AT_ONCE - len(x)), *[(0, 0)] * (x.ndim - 1)]), cut)


def settled_scaling(config: AgentConfig, real: Real) -> Scaling:
    """What the observations seen so far need, once and for all."""
    if not config.scale_observations:
        return no_scaling(real.observations.shape[-1], settled=True)
    return scaling_of(np.asarray(real.observations)[np.asarray(real.at)[: int(real.size)]])


def in_env_units(how: Imagination, scaling: Scaling) -> Imagination:
    """The same for observations as networks see them: the functions of the task know the environment's own."""

    def undone(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if function is None:
            return None
        return lambda obs, action, next_obs: function(scaling.undo(obs), action, scaling.undo(next_obs))

    return how._replace(termination_fn=undone(how.termination_fn), reward_fn=undone(how.reward_fn))


def imagination(config: AgentConfig, termination_fn: TerminationFn | None, reward_fn: RewardFn | None) -> Imagination:
    """The parts of Algorithm 2 that a configuration fixes."""
    assert config.horizon is not None
    assert config.mask.penalty is not None
    assert config.mask.stop is not None
    assert config.mask.uncertainty is not None
    mask: Mask | Threshold = rank_mask(mask_rates(config.mask.rate, config.horizon))
    if config.mask.keeps_all:
        mask = keep_all
    elif config.mask.rule == "threshold":
        mask = Threshold(config.mask.quantile, config.mask.factor)
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
