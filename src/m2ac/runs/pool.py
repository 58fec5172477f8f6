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

from m2ac.runs.board import Board, tell_of
from m2ac.runs.jobs import Job, Outcome, last_words, standing, verdict
from m2ac.runs.stopping import stopping

POLL = 0.2


def worker() -> list[str]:
    """What starts a command as one of many."""
    return [sys.executable, "-m", "m2ac.cli.worker"]


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
                    code = each.process.returncode
                    said = last_words(each.job) if code >= 0 else f"killed by {signal.Signals(-code).name}"
                    told = {"began_at": each.began_at, "attempt": each.attempt, "retries": retries}
                    outcome = verdict(each.job, code, said, **told, stopped=stop.signal is not None)
                    if isinstance(outcome, Outcome):
                        outcomes.append(outcome)
                    else:
                        waiting.append((each.job, outcome))
                    tell_of(outcome, each.job, said, board)
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
            [*worker(), "--core", str(core), *job.command],
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
