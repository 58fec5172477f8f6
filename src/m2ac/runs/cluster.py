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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from m2ac.runs.board import Board
from m2ac.runs.book import Attempt, Book, Ended
from m2ac.runs.jobs import Job, last_words
from m2ac.runs.pool import worker
from m2ac.runs.stopping import stopping
from m2ac.runs.store import Store
from m2ac.settings import ConfigError, UserError, check

LOSSES = 20
"""How often a run may lose its node."""

POLL = 0.5


class Needs(NamedTuple):
    """What a run takes of a node."""

    cpus: float = 1.0
    gpus: float = 0.0


def run_on_ray(
    jobs: Sequence[Job], *, address: str, needs: Needs, retries: int, board: Board, store: str | None = None
) -> Ended:
    """Start or continue every job that is not done, as many at once as the cluster has room for.

    Run directories are paths that every node sees. With a `store`, a URL for fsspec, they are kept there instead, and
    the jobs' directories here receive all but the checkpoints.
    """
    kept = None if store is None else _first_brought(jobs, store)
    book = Book(jobs, retries=retries, board=board)
    ray = _connected(address)
    try:
        task = _task(ray, needs, board)
        start = partial(task.remote, store=store, with_gpu=needs.gpus > 0)
        return _until_all_ended(ray, start, book, board, kept)
    finally:
        ray.shutdown()


def _first_brought(jobs: Sequence[Job], url: str) -> Store:
    """The store, after what it has of the runs has taken their places here."""
    for job in jobs:
        own = (job.directory / "checkpoints").exists()  # which no copy has
        place = f"the run at {url!r}"
        check(not own, f"{str(job.directory)!r} holds a run that was made here, not {place}; move it away first")
    store = Store(url)
    try:
        for job in jobs:
            store.fetch(job.name, job.directory, checkpoints=False)
    except Exception as error:  # of the network or the permissions, by whatever name
        raise UserError(f"cannot read {url!r}: {type(error).__name__}: {error}; mend that or give another") from error
    return store


def _task(ray: Any, needs: Needs, board: Board) -> Any:
    wanted = {"CPU": needs.cpus, "GPU": needs.gpus}
    try:
        task = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus, max_retries=LOSSES)(_train)
    except ValueError as error:
        raise ConfigError(f"Ray refuses --cpus {needs.cpus:g} --gpus {needs.gpus:g}: {error}; give others") from None
    has = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(node.get(name, 0) >= count for name, count in wanted.items()) for node in has):
        board.message(
            f"no node has {needs.cpus:g} cores and {needs.gpus:g} GPUs; runs wait until one joins the cluster"
        )
    return task


def _connected(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError("--ray needs Ray; pip install 'm2ac[ray]', or leave it out to run here") from None
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
        if int(port) > 65535:
            raise ValueError("a port is 65535 at most")
        socket.create_connection((host, int(port)), timeout=10).close()


def _until_all_ended(ray: Any, start: Callable[..., Any], book: Book, board: Board, kept: Store | None) -> Ended:
    under: dict[Any, Attempt] = {}
    with stopping() as stop:
        while (book and stop.signal is None) or under:
            while book and stop.signal is None:
                attempt = book.next()
                job = attempt.job
                under[start(job.name, job.arguments, str(job.directory.resolve()))] = attempt
            book.show([each.job for each in under.values()])
            if stop.signal is not None:
                board.message(f"stopping: {len(under)} runs are saved and continued by the same command")
                for reference in under:
                    ray.cancel(reference, recursive=False)
            ended, _ = ray.wait(list(under), num_returns=len(under), timeout=None if stop.signal else POLL)
            for reference in ended:
                attempt = under.pop(reference)
                job = attempt.job
                code, said = _result(ray, reference)
                try:
                    if kept is not None:
                        kept.fetch(job.name, job.directory, checkpoints=False)
                except Exception as error:  # of the network, by whatever name; another attempt finds it finished
                    said = f"cannot be brought here: {type(error).__name__}: {error}"
                book.ended(attempt, code, said, stopped=stop.signal is not None)
    return book.close(stop.signal)


def _result(ray: Any, reference: Any) -> tuple[int, str]:
    """The exit code and the last words of a run, or what became of its task."""
    try:
        code, said = ray.get(reference)
    except ray.exceptions.TaskCancelledError:
        return 1, "cancelled"
    except ray.exceptions.RayError as error:
        return 1, str(error).strip().splitlines()[-1]
    return code, said


def _train(
    name: str, arguments: Sequence[str], directory: str, *, store: str | None, with_gpu: bool
) -> tuple[int, str]:
    """On a node: one run to its end; the exit code and the last words."""
    # Ray hides no GPU from a task that asks for none, and JAX takes most of the memory of the first that it sees.
    surroundings = os.environ | ({} if with_gpu else {"JAX_PLATFORMS": "cpu"})
    if store is None:
        return _in_process(Job(name, tuple(arguments), Path(directory), 0), surroundings)
    with tempfile.TemporaryDirectory(prefix="m2ac-") as folder:
        job = Job(name, tuple(arguments), Path(folder) / name, 0)
        with Store(store).mirrored(name, job.directory):
            return _in_process(job, surroundings)


def _in_process(job: Job, surroundings: Mapping[str, str]) -> tuple[int, str]:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with open(job.log, "ab") as log:
        process = subprocess.Popen(
            [*worker(), *job.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=surroundings
        )
    try:
        process.wait()
    except BaseException:  # cancelled: the run is saved
        process.terminate()
        process.wait()
        raise
    return process.returncode, last_words(job)
