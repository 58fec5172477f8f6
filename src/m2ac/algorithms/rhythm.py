"""How the lines of Algorithm 1 follow each other: the same order for one seed and for several together."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from m2ac.algorithms.base import Phase
from m2ac.algorithms.state import Counters
from m2ac.config import MODELLED, AgentConfig

P = TypeVar("P")
"""What is yielded at every point where a training can be looked at, evaluated, saved or left."""


class Rhythm(ABC, Generic[P]):
    """Algorithm 1 over lines that a subclass knows how to do."""

    config: AgentConfig

    @property
    @abstractmethod
    def counters(self) -> Counters:
        """How far the training is."""

    @property
    def step(self) -> int:
        """Environment steps taken."""
        return self.counters.steps

    def run(self, until: int) -> Iterator[P]:
        """Train until that many environment steps are taken and the updates due for them are done."""
        assert self.config.random_steps is not None
        if self._left_when_an_offline_cycle_was_over():
            yield self._progress("learning", ends_cycle=True)
        while self._offline_left():
            yield from self._offline()
            yield self._progress("learning", ends_cycle=True)
        while self.step < min(self.config.random_steps, until):
            self._collect(min(self.config.random_steps, until) - self.step)
            yield self._progress("exploring")
        if self.step < self.config.random_steps:
            return
        if self._left_when_a_cycle_was_over(until):
            yield self._progress("learning", ends_cycle=True)
        cycle = {"epoch": self._epoch, "mbpo": self._interleaved}[self.config.rhythm]
        while self.step < until or self._updates_due():
            yield from cycle(until)
            yield self._progress("learning", ends_cycle=True)

    def _offline_left(self) -> int:
        """Updates from logged experience alone that are still to be made before the first step."""
        return max(0, (self.config.offline_updates or 0) - self.counters.updates) if self.step == 0 else 0

    def _updates_per_cycle(self) -> int:
        assert self.config.updates_per_step is not None
        return self._every * self.config.updates_per_step

    def _offline(self) -> Iterator[P]:
        """Lines 5-8 of Algorithm 1 without line 4: as many updates as a cycle has, on what there is."""
        cycle, of_cycle = divmod(self.counters.updates, self._updates_per_cycle())
        if self.counters.fits <= cycle if self._modelled else self._model_due():
            yield from self._model()
        end = self.counters.updates + min(self._updates_per_cycle() - of_cycle, self._offline_left())
        while self.counters.updates < end:
            self._learn()
            yield self._progress("learning")

    def _left_when_an_offline_cycle_was_over(self) -> bool:
        """Whether a training was left after the last update of such a cycle and before its metrics were told."""
        over = not self._offline_left() or self.counters.updates % self._updates_per_cycle() == 0
        return self.step == 0 and self._has_losses and over

    def _epoch(self, until: int) -> Iterator[P]:
        """Lines 4-8 of Algorithm 1, to the letter; the random steps are the collection of the first epoch."""
        end = min(self._end_of_epoch(), until)
        while self.step < end:
            self._collect(end - self.step)  # line 4
            yield self._progress("collecting")
        if self._model_due():
            yield from self._model()  # lines 5-7
        while self._updates_due():
            self._learn()  # line 8
            yield self._progress("learning")

    def _interleaved(self, until: int) -> Iterator[P]:
        """The same lines in MBPO's rhythm: model first, then updates after every single step of the cycle."""
        if self._model_due():
            yield from self._model()  # lines 5-7
        end = min(self.counters.modelled_at + self._every if self._modelled else self._next_turn(), until)
        yield from self._catch_up()
        while self.step < end:
            self._collect(1)  # line 4
            yield from self._catch_up()
            yield self._progress("learning")

    def _catch_up(self) -> Iterator[P]:
        """The updates due for the steps taken: of one step, unless they come from elsewhere or were left before."""
        while self._updates_due():
            self._learn()  # line 8
            if self._updates_due():
                yield self._progress("learning")

    def _end_of_epoch(self) -> int:
        """The step up to which the epoch collects: this one where its steps are there and wait to be learned from."""
        return self.step if self._is_turn() and self._updates_due() else self._next_turn()

    def _is_turn(self) -> bool:
        """Whether cycles that follow each other from the random steps on meet at this step."""
        assert self.config.random_steps is not None
        return (self.step - self.config.random_steps) % self._every == 0

    def _next_turn(self) -> int:
        """The next such step: it follows from the counters alone, wherever a training was left."""
        assert self.config.random_steps is not None
        return self.step + self._every - (self.step - self.config.random_steps) % self._every

    def _left_when_a_cycle_was_over(self, until: int) -> bool:
        """Whether a training was left after the last update of a cycle and before its metrics were told."""
        counters = self.counters
        if not self._has_losses or self._updates_due():
            return False
        if self.config.rhythm == "epoch" or counters.steps >= until:
            return True
        return counters.steps - counters.modelled_at >= self._every if self._modelled else self._is_turn()

    @property
    @abstractmethod
    def _has_losses(self) -> bool:
        """Whether updates were made whose metrics are still to be told."""

    @property
    def _every(self) -> int:
        assert self.config.model_every is not None
        return self.config.model_every

    @property
    def _modelled(self) -> bool:
        return self.config.algo in MODELLED

    def _model_due(self) -> bool:
        counters = self.counters
        if not self._modelled:
            return False
        if self.config.rhythm == "epoch":
            return counters.modelled_at != counters.steps
        return counters.modelled_at < 0 or counters.steps - counters.modelled_at >= self._every

    def _updates_due(self) -> bool:
        """Whether the steps already taken still have to be learned from."""
        assert self.config.updates_per_step is not None
        assert self.config.random_steps is not None
        learned = self.step - self.config.random_steps + (self._every if self.config.rhythm == "epoch" else 0)
        return learned * self.config.updates_per_step > self.counters.updates - (self.config.offline_updates or 0)

    @abstractmethod
    def _collect(self, steps: int) -> None:
        """Line 4 of Algorithm 1: act in the real environment, for at most that many steps and at least one."""

    @abstractmethod
    def _model(self) -> Iterator[P]:
        """Lines 5-7 of Algorithm 1: fit the ensemble, then imagine with it."""

    @abstractmethod
    def _learn(self) -> None:
        """Line 8 of Algorithm 1: the updates of one environment step."""

    @abstractmethod
    def _progress(self, phase: Phase, *, ends_cycle: bool = False) -> P:
        """What is to be told at this point; at the end of a cycle, its metrics too."""
