"""Many runs on this machine, one per core: failed ones are tried again from their checkpoint, finished ones left alone.

Nothing is kept here that the run directories do not have: whoever is killed, the same command goes on.
"""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from m2ac.runs.board import Board
from m2ac.runs.jobs import Job, Outcome, last_words, standing
from m2ac.runs.stopping import Stop, stopping

POLL = 0.2
WRONG_INPUT = 2
"""Exit code of a run that no repetition will mend."""

WORKER = (sys.executable, "-m", "m2ac.cli.worker")


class _Running(NamedTuple):
    job: Job
    process: subprocess.Popen[bytes]
    core: int
    attempt: int
    began_at: int  # the step that it was at


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def run_all(jobs: Sequence[Job], *, workers: int, retries: int, board: Board) -> list[Outcome]:
    """Start or continue every job that is not done, as many at once as there are workers.

    A job that fails is tried again, at most `retries` times in a row without having come any further. A signal is
    passed on, so that every run is saved before this returns.
    """
    cores = usable_cores()
    free = deque(cores[i % len(cores)] for i in range(workers))
    waiting = deque((job, 1) for job in jobs if not job.done)
    running: list[_Running] = []
    outcomes = [Outcome(job, "finished", 0) for job in jobs if job.done]
    with stopping() as stop:
        try:
            while (waiting and stop.signal is None) or running:
                while waiting and free and stop.signal is None:
                    running.append(_start(*waiting.popleft(), core=free.popleft()))
                board.show([each.job for each in running], [job for job, _ in waiting], outcomes)
                time.sleep(POLL)
                if stop.signal is not None:
                    _stop(running, board)
                for each in [each for each in running if each.process.poll() is not None]:
                    running.remove(each)
                    free.append(each.core)
                    again = _ended(each, stop, retries, outcomes, board)
                    if again is not None:
                        waiting.append(again)
        finally:
            for each in running:  # of an error here; they save and end
                each.process.terminate()
    outcomes += [Outcome(job, "stopped", 0) for job, _ in waiting]
    board.show([], [], outcomes)
    return outcomes


def _start(job: Job, attempt: int, *, core: int) -> _Running:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with open(job.log, "ab") as log:
        process = subprocess.Popen(
            [*WORKER, "--core", str(core), *job.command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for us, who pass it on once
        )
    return _Running(job, process, core, attempt, standing(job).step)


def _stop(running: Sequence[_Running], board: Board) -> None:
    """Ask every run to save and end, and wait until all have; a second signal, to us, ends the waiting."""
    board.message(f"stopping: {len(running)} runs are saved and continued by the same command")
    for each in running:
        each.process.send_signal(signal.SIGTERM)
    for each in running:
        each.process.wait()


def _ended(each: _Running, stop: Stop, retries: int, outcomes: list[Outcome], board: Board) -> tuple[Job, int] | None:
    """Note how a job ended; the job where it is to be tried again."""
    job, code = each.job, each.process.returncode
    if code == 0 and job.done:
        outcomes.append(Outcome(job, "finished", each.attempt))
        return None
    if stop.signal is not None:
        outcomes.append(Outcome(job, "stopped", each.attempt))
        return None
    said = last_words(job) if code > 0 else f"killed by {signal.Signals(-code).name}"
    came_further = standing(job).step > each.began_at
    attempt = 1 if came_further else each.attempt + 1
    if code == WRONG_INPUT or attempt > retries + 1:
        board.message(f"failed: {job.name}: {said}")
        outcomes.append(Outcome(job, "failed", each.attempt, said))
        return None
    board.message(f"trying {job.name} again: {said}")
    return job, attempt
