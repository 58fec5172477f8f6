"""Algorithm 1 whose real steps are made elsewhere, at their own pace."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from m2ac.algorithms import phases
from m2ac.algorithms.collecting import block_size, host_rows
from m2ac.algorithms.metrics import episode_metrics
from m2ac.algorithms.training import Training
from m2ac.algorithms.value_expansion import ValueExpansion
from m2ac.config import EXPANDING, AgentConfig
from m2ac.envs.world import Played
from m2ac.live.messages import Row


class Ended(Exception):  # noqa: N818
    """No step comes any more."""


class Inbox:
    """Steps that wait to be learned from; filled by one thread and emptied by another."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._to_save: int | None = None  # steps that had come when saving was asked for
        self.taken = 0
        self.while_idle: Callable[[], None] = lambda: None  # what is done about once a second where no step comes

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, row: Row) -> None:
        """One step more."""
        with self._changed:
            self._rows.append(row)
            self._changed.notify()

    def ask_to_save(self) -> None:
        """Have what has come until now stored, and then everything saved."""
        with self._changed:
            self._to_save = self.taken + len(self._rows)

    @property
    def save_wanted(self) -> bool:
        """Whether saving was asked for."""
        return self._to_save is not None

    @property
    def save_due(self) -> bool:
        """Whether saving was asked for and all that had come before is taken."""
        return self._to_save is not None and self.taken >= self._to_save

    def saved(self) -> None:
        """All that was taken is saved; a request that waits for more goes on waiting."""
        with self._changed:
            if self.save_due:
                self._to_save = None

    def close(self) -> None:
        """There will be no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def closed(self) -> bool:
        """Whether there will be no more."""
        return self._closed

    def _has_come(self) -> bool:
        """Whether there is a step, or will be none; waits a second for it."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._rows or self._closed, timeout=1.0))

    def take(self, at_most: int) -> list[Row]:
        """The oldest steps, at least one: waits for it; `Ended` where none is left and none will come."""
        while not self._has_come():
            self.while_idle()
        with self._changed:
            if not self._rows:
                raise Ended
            rows = [self._rows.popleft() for _ in range(min(at_most, len(self._rows)))]
            self.taken += len(rows)
            return rows


class Fed(Training):
    """A training that acts nowhere itself.

    Where steps come faster than updates can be made for them, what waits beyond a cycle's worth is stored at once, and
    of the updates due for it no more than a cycle's worth is made: a policy that is up to date is worth more than one
    that had every update.
    """

    inbox: Inbox

    def __init__(self, config: AgentConfig, *args: Any, inbox: Inbox, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.inbox = inbox
        self.let_go = 0
        self._total, self._length = 0.0, 0
        self._let_go()  # of a training taken up again: of what was let go before, no more than a cycle's worth is made

    def _let_go(self) -> None:
        self.let_go = max(self.let_go, self._overdue() - self._updates_per_cycle())

    def _overdue(self) -> int:
        assert self.config.updates_per_step is not None
        assert self.config.random_steps is not None
        steps = max(0, self.step - self.config.random_steps)
        made = max(0, self.counters.updates - (self.config.offline_updates or 0))  # those of the log are not of steps
        return max(0, steps * self.config.updates_per_step - made)

    @property
    def due(self) -> int:
        """Updates that the steps taken so far still call for, without those let go."""
        return max(0, self._overdue() - self.let_go)

    def _updates_due(self) -> bool:
        return self.due > 0

    def _collect(self, steps: int) -> None:
        """Line 4 of Algorithm 1, done by somebody else."""
        room = block_size(steps, self.state.real.capacity)
        self._store(self.inbox.take(min(steps, room)), room)
        behind = len(self.inbox) > self._every
        if behind or self.inbox.save_wanted:
            self.store_rest()
        self._let_go()

    def store_rest(self) -> None:
        """Keep what still waits, without learning from it."""
        while self.inbox:
            room = block_size(2, self.state.real.capacity)
            self._store(self.inbox.take(room), room)

    def _store(self, taken: list[Row], room: int) -> None:
        started = time.perf_counter()
        rows: Any = host_rows((room,), self.world.obs_dim, self.world.action_dim)
        scaling = self.state.scaling
        for i, row in enumerate(taken):
            rows.obs[i], rows.next_obs[i] = scaling.apply(row.obs), scaling.apply(row.next_obs)
            rows.action[i], rows.reward[i], rows.terminated[i] = row.action, row.reward, row.terminated
            self._total, self._length = self._total + row.reward, self._length + 1
            if row.terminated or row.truncated:
                self._ended = Played(0, self._total, self._length)
                self._cycle |= episode_metrics(self._ended)
                self._total, self._length = 0.0, 0
        counters = self.state.counters
        self.state = self.state._replace(
            real=phases.store(self.state.real, rows, len(taken)),
            counters=counters._replace(steps=counters.steps + len(taken)),
        )
        self._took("collect", started)


class FedExpansion(Fed, ValueExpansion):
    """The same for DDPG, MVE and STEVE."""


def fed_training(config: AgentConfig, *args: Any, **kwargs: Any) -> Fed:
    """The training of a resolved configuration."""
    return (FedExpansion if config.algo in EXPANDING else Fed)(config, *args, **kwargs)
