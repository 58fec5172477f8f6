"""Which of many runs wait and how the others ended: kept alike wherever they are made."""

import json
import os
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from m2ac.runs import disk
from m2ac.runs.board import Board
from m2ac.runs.directory import LARGEST_CONFIG
from m2ac.runs.jobs import Job, Outcome, standing, verdict
from m2ac.settings import check


class Attempt(NamedTuple):
    """A run that is made, or made again."""

    job: Job
    number: int
    began_at: int  # the step that it was at


class Ended(NamedTuple):
    """How all of them ended, and the signal by which they were asked to."""

    outcomes: list[Outcome]
    signal: int | None


class Book:
    """Of runs that are to be made; those that are finished already are left alone."""

    def __init__(self, jobs: Sequence[Job], *, retries: int, board: Board) -> None:
        done = [job for job in jobs if job.done]
        for job in done:
            _must_be_as_long(job)
        self._waiting = deque((job, 1) for job in jobs if job not in done)
        self._outcomes = [Outcome(job, "finished", 0) for job in done]
        self._retries, self._board = retries, board

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def next(self) -> Attempt:
        """The run that has waited for longest."""
        job, number = self._waiting.popleft()
        return Attempt(job, number, standing(job).step)

    def show(self, running: Sequence[Job]) -> None:
        """Put it on the board."""
        self._board.show(running, [job for job, _ in self._waiting], self._outcomes)

    def ended(self, attempt: Attempt, code: int, said: str, *, stopped: bool) -> None:
        """Note how an attempt ended; the run may wait for another one then."""
        job, number, began_at = attempt
        outcome = verdict(job, code, said, began_at=began_at, attempt=number, retries=self._retries, stopped=stopped)
        if isinstance(outcome, int):
            self._waiting.append((job, outcome))
            self._board.message(f"trying {job.name} again: {said}")
            return
        self._outcomes.append(outcome)
        if outcome.state == "failed":  # that one has finished is on the board
            self._board.message(f"failed: {job.name}: {said}")

    def close(self, signal: int | None) -> Ended:
        """The end: what waits still is not made any more."""
        self._outcomes += [Outcome(job, "stopped", 0) for job, _ in self._waiting]
        self._waiting.clear()
        self.show([])
        return Ended(self._outcomes, signal)


def _must_be_as_long(job: Job) -> None:
    """Refuse a finished run of another scale: the name does not tell them apart."""
    try:
        steps = json.loads(disk.read(job.directory / "config.json", at_most=LARGEST_CONFIG))["steps"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # which the report tells
        return
    place = os.fspath(job.directory)
    check(steps == job.steps, f"{place!r} holds a finished run of {steps} steps, not {job.steps}; give another --out")
