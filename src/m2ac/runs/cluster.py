"""Many runs on a Ray cluster: each is a task of Ray's core that starts the same command as any other run.

A task that was lost with its node is started again by Ray on another, where the run goes on from its checkpoint in the
directory that all nodes see. Only this module knows Ray. Ray pickles what goes between its own processes; nothing of a
run does.
"""

import logging
import os
import socket
import subprocess
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from m2ac.runs.board import Board, tell_of
from m2ac.runs.jobs import Job, Outcome, last_words, standing, verdict
from m2ac.runs.pool import worker
from m2ac.runs.stopping import stopping
from m2ac.runs.store import Store
from m2ac.settings import ConfigError, UserError

LOSSES = 20
"""How often a run may lose its node."""

POLL = 0.5


class Needs(NamedTuple):
    """What a run takes of a node."""

    cpus: float = 1.0
    gpus: float = 0.0


class _Under(NamedTuple):
    job: Job
    attempt: int
    began_at: int


def run_on_ray(
    jobs: Sequence[Job], *, address: str, needs: Needs, retries: int, board: Board, store: str | None = None
) -> list[Outcome]:
    """Start or continue every job that is not done, as many at once as the cluster has room for.

    Run directories are paths that every node sees. With a `store`, a URL for fsspec, they are kept there instead, and
    the jobs' directories here receive all but the checkpoints.
    """
    ray = _connected(address)
    try:
        kept = Store(store) if store is not None else None
        if kept is not None:
            for job in jobs:
                kept.fetch(job.name, job.directory, checkpoints=False)
        task = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus, max_retries=LOSSES)(_train)
        return _until_all_ended(ray, task, jobs, retries, board, store, kept)
    finally:
        ray.shutdown()


def _connected(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError("--ray needs Ray; pip install 'm2ac[ray]', or leave it out to run here") from None
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a run without a GPU sees none
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"cannot reach a Ray cluster at {address!r}: {error}; start one with ray start --head"
        ) from None
    return ray


def _knock(address: str) -> None:
    """Fail where nobody listens; Ray itself would wait for a minute and then end this process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto":
        if not (host and port.isdigit()):
            raise ValueError("it is neither auto nor HOST:PORT")
        socket.create_connection((host, int(port)), timeout=10).close()


def _until_all_ended(
    ray: Any, task: Any, jobs: Sequence[Job], retries: int, board: Board, store: str | None, kept: Store | None
) -> list[Outcome]:
    waiting = deque((job, 1) for job in jobs if not job.done)
    outcomes = [Outcome(job, "finished", 0) for job in jobs if job.done]
    under: dict[Any, _Under] = {}
    with stopping() as stop:
        while (waiting and stop.signal is None) or under:
            while waiting and stop.signal is None:
                job, attempt = waiting.popleft()
                directory = str(job.directory.resolve())
                reference = task.remote(job.name, job.arguments, directory, store)
                under[reference] = _Under(job, attempt, standing(job).step)
            board.show([each.job for each in under.values()], [], outcomes)
            if stop.signal is not None:
                board.message(f"stopping: {len(under)} runs are saved and continued by the same command")
                for reference in under:
                    ray.cancel(reference, recursive=False)
            ended, _ = ray.wait(list(under), num_returns=len(under), timeout=None if stop.signal else POLL)
            for reference in ended:
                each = under.pop(reference)
                if kept is not None:
                    kept.fetch(each.job.name, each.job.directory, checkpoints=False)
                code, said = _result(ray, reference)
                told = {"began_at": each.began_at, "attempt": each.attempt, "retries": retries}
                outcome = verdict(each.job, code, said, **told, stopped=stop.signal is not None)
                if isinstance(outcome, Outcome):
                    outcomes.append(outcome)
                else:
                    waiting.append((each.job, outcome))
                tell_of(outcome, each.job, said, board)
    board.show([], [], outcomes)
    return outcomes


def _result(ray: Any, reference: Any) -> tuple[int, str]:
    """The exit code and the last words of a run, or what became of its task."""
    try:
        code, said = ray.get(reference)
    except ray.exceptions.TaskCancelledError:
        return 1, "cancelled"
    except ray.exceptions.RayError as error:
        return 1, str(error).strip().splitlines()[-1]
    return code, said


def _train(name: str, arguments: Sequence[str], directory: str, store: str | None) -> tuple[int, str]:
    """On a node: one run to its end; the exit code and the last words."""
    if store is None:
        return _in_process(Job(name, tuple(arguments), Path(directory), 0))
    with tempfile.TemporaryDirectory(prefix="m2ac-") as folder:
        job = Job(name, tuple(arguments), Path(folder) / name, 0)
        with Store(store).mirrored(name, job.directory):
            return _in_process(job)


def _in_process(job: Job) -> tuple[int, str]:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with open(job.log, "ab") as log:
        process = subprocess.Popen([*worker(), *job.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        process.wait()
    except BaseException:  # cancelled: the run is saved
        process.terminate()
        process.wait()
        raise
    return process.returncode, last_words(job)
