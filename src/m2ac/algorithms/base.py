"""What every training has: a state to go on from, updates whose numbers are watched, the metrics of a cycle.

A training yields its progress at every point where it can be looked at, evaluated, saved or left; it prints nothing and
writes nothing.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Float

from m2ac.algorithms.metrics import count_skips, loss_metrics
from m2ac.algorithms.numbers import Place, Skips, check_learner, check_skips, skips_of, without_skipped
from m2ac.algorithms.state import Counters, OnPolicyState, State
from m2ac.algorithms.watch import reward_range, watch_metrics
from m2ac.config import AgentConfig
from m2ac.envs.world import Played
from m2ac.learners.acting import ActingPolicy
from m2ac.learners.choice import LearnerState, Losses, acting_policy, learner_of, losses_of
from m2ac.learners.updating import faulty_parts
from m2ac.replay import first_slots, grow_real
from m2ac.resolving import MOST_ROWS
from m2ac.types import Key

Phase = Literal["exploring", "collecting", "fitting", "imagining", "learning"]

S = TypeVar("S", State, OnPolicyState)


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


class BaseTraining(ABC, Generic[S]):
    """A training, resumable from its state at every yield."""

    state: S

    def __init__(self, config: AgentConfig, state: S) -> None:
        """`config` must be resolved."""
        self.config = config
        self.state = state
        self.learner = learner_of(config)
        self._streams = streams(config.seed)
        self._cycle: dict[str, Any] = {}
        self._losses: list[Losses] = []
        self._ended: Played | None = None

    @abstractmethod
    def rejoin(self) -> bool:
        """Bring the real world to the middle of what is under way, by playing its stored actions again.

        False where it went another way this time, failed, or must not be (`rejoin`): then a new episode begins.
        """

    @property
    @abstractmethod
    def _settled(self) -> bool:
        """Whether every update due for the steps taken is done."""

    @property
    def counters(self) -> Counters:
        """How far the training is."""
        return self.state.counters

    @property
    def step(self) -> int:
        """Environment steps taken."""
        return self.counters.steps

    @property
    def is_new(self) -> bool:
        """Whether nothing has happened yet."""
        return self.counters == Counters() and not int(self.state.real.size)

    def acting_policy(self) -> ActingPolicy:
        """The current policy, for use outside of compiled code."""
        return acting_policy(self.config, self.learner.acting(self.state.learner))

    def make_room(self, steps: int, *, slots: int = 0) -> None:
        """Let the real buffer hold that many transitions, in all, and at least that many observations."""
        real = self.state.real
        if steps > real.capacity or slots > real.slots:
            capacity = max(steps, real.capacity)
            self.state = self.state._replace(
                real=grow_real(real, capacity, slots=max(slots, real.slots, first_slots(capacity)))
            )

    def make_room_for(self, steps: int) -> None:
        """Let the real buffer hold what it has and that many steps more, as far as rows are kept."""
        real = self.state.real
        needed = min(int(real.size) + steps, MOST_ROWS)
        if needed > real.capacity:
            # At least twice as much: every size is a shape, for which all that reads the buffer is compiled again.
            self.make_room(max(needed, min(2 * real.capacity, MOST_ROWS)))

    @property
    def _place(self) -> Place:
        """Where the next update is."""
        return Place(self.step, self.state.counters.updates, self.config.seed)

    def _update(self, learner: LearnerState, batches: Any, key: Key) -> None:
        """One update of the learner per batch, without those whose numbers are not finite."""
        state, place, skips = self.state, self._place, Skips()
        after, losses, finite = self.learner.update_many(learner, batches, self.learner.how, key=key)
        if not finite:
            after, losses, skips = self._without_faults(learner, batches, key)
        counters = state.counters
        updates = counters.updates + len(losses.value)
        self.state = state._replace(learner=after, counters=counters._replace(updates=updates, skips=skips.at_end))
        self._losses.append(losses)
        check_skips(skips, self.learner, self.config, state.real, place)

    def _without_faults(self, learner: LearnerState, batches: Any, key: Key) -> tuple[LearnerState, Losses, Skips]:
        """The same updates again, without those whose numbers are not finite."""
        check_learner(self.learner, np.asarray(faulty_parts(learner)), self._place)
        after, *told = self.learner.update_many_guarded(learner, batches, self.learner.how, key=key)
        losses, faulty = jax.device_get(told)
        skips = skips_of(self.learner, losses, faulty, before=self.counters.skips)
        count_skips(self.learner.group, self._cycle, skips)
        return after, without_skipped(losses, faulty), skips

    def now(self) -> Progress:
        """Where the training is, before it goes on."""
        return Progress(self.step, "collecting", self._settled, None, None)

    def _progress(self, phase: Phase, *, ends_cycle: bool = False) -> Progress:
        if ends_cycle:
            check_learner(self.learner, np.asarray(faulty_parts(self.state.learner)), self._place)
        metrics = self.cycle_metrics() if ends_cycle else None
        ended, self._ended = self._ended, None
        return Progress(self.step, phase, self._settled, metrics, ended)

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
            metrics |= watch_metrics(losses, np.asarray(reward_range(self.state.real)), self.learner)
            metrics |= self._judged_critics(losses)
        self._cycle, self._losses = {}, []
        return metrics

    @abstractmethod
    def _judged_critics(self, losses: Losses) -> dict[str, Any]:
        """What the critics are worth, as plain numbers."""
