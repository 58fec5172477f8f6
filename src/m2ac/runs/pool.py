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
from m2ac.runs.book import Attempt, Book, Ended
from m2ac.runs.jobs import Job, last_words
from m2ac.runs.stopping import stopping

POLL = 0.2


def worker() -> list[str]:
    """What starts a command as one of many that end with this process."""
    return [sys.executable, "-m", "m2ac.cli.worker", "--parent", str(os.getpid())]


class _Running(NamedTuple):
    attempt: Attempt
    process: subprocess.Popen[bytes]
    core: int


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def run_all(jobs: Sequence[Job], *, workers: int, retries: int, board: Board) -> Ended:
    """Start or continue every job that is not done, as many at once as there are workers.

    A job that fails is tried again, at most `retries` times in a row without having come any further. A signal is
    passed on, so that every run is saved before this returns.
    """
    cores = usable_cores()
    free = deque(cores[i % len(cores)] for i in range(workers))
    book = Book(jobs, retries=retries, board=board)
    running: list[_Running] = []
    with stopping() as stop:
        try:
            while (book and stop.signal is None) or running:
                while book and free and stop.signal is None:
                    running.append(_start(book.next(), core=free.popleft()))
                book.show([each.attempt.job for each in running])
                time.sleep(POLL)
                if stop.signal is not None:
                    board.message(f"stopping: {len(running)} runs are saved and continued by the same command")
                    _stop(running)
                for each in [each for each in running if each.process.poll() is not None]:
                    running.remove(each)
                    free.append(each.core)
                    code = each.process.returncode
                    said = last_words(each.attempt.job) if code >= 0 else f"killed by {_name(-code)}"
                    book.ended(each.attempt, code, said, stopped=stop.signal is not None)
        finally:
            _stop(running)  # some are left where an error leads here
    return book.close(stop.signal)


def _start(attempt: Attempt, *, core: int) -> _Running:
    job = attempt.job
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with open(job.log, "ab") as log:
        process = subprocess.Popen(
            [*worker(), "--core", str(core), *job.command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for us, who pass it on once
        )
    return _Running(attempt, process, core)


def _name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _stop(running: Sequence[_Running]) -> None:
    """Ask every run to save and end, and wait until all have; a second signal, to us, ends the waiting.

    Without the wait our own end would be their second signal, at which a run does not save any more.
    """
    for each in running:
        each.process.send_signal(signal.SIGTERM)
    for each in running:
        each.process.wait()
