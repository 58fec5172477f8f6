"""An injected failure at every write, sync and rename: what was there stays whole, and the error is clear."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from faults.row import Row
from faults.small import CONFIG, at_step
from m2ac.config import RunConfig
from m2ac.learners.acting import ActingPolicy
from m2ac.runs import checkpoint, disk
from m2ac.runs.directory import EvalRow, Logged, RunDirectory
from m2ac.runs.policy import FILE, load_policy, save_policy
from m2ac.settings import UserError

ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS)
INJECTED = ("open", "write", "fsync", "replace", "rename", "mkdir", "ftruncate")
PROPERTY = "an injected failure at every write, fsync and rename (ENOSPC, EIO, …): old checkpoint intact, clear error"
DEFAULT = 10_000
"""Every point there is; a smaller number takes that many, evenly."""

_ROW: EvalRow = {"step": 2, "episode": 0, "seed": 7, "return": -1.5, "length": 200, "seconds": 0.25}


class FailingOS:
    """The module `os`, whose nth call that changes the disk fails, or all from the nth on."""

    def __init__(self, fails_at: int, error: int, *, once: bool) -> None:
        self.calls, self.fails_at, self.error, self.once = 0, fails_at, error, once

    def __getattr__(self, name: str) -> Any:
        """The real function, or one that counts."""
        function: Any = getattr(os, name)
        return self._counted(function) if name in INJECTED else function

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if function is os.open and not args[1] & (os.O_WRONLY | os.O_RDWR):
                return function(*args, **kwargs)
            number, self.calls = self.calls, self.calls + 1
            if number == self.fails_at or (not self.once and number > self.fails_at):
                raise OSError(self.error, os.strerror(self.error))
            return function(*args, **kwargs)

        return call


def _save(run: RunDirectory) -> None:
    """What a run writes from one checkpoint to the next."""
    run.append_metrics({"step": 2})
    run.append_evals([_ROW])
    logged = run.logged()._asdict()
    checkpoint.save(checkpoint.new_name(run.checkpoints, 2), at_step(2), CONFIG, logged=logged)
    checkpoint.prune(run.checkpoints)
    save_policy(run.path / FILE, ActingPolicy(at_step(2).learner.policy))
    run.mark_done({"step": 2})
    checkpoint.save(run.path / "saved", at_step(2), CONFIG)  # as Agent.save does: over one that is there


def _prepared(path: Path) -> RunDirectory:
    run = RunDirectory.open(path, RunConfig(steps=50))
    run.append_metrics({"step": 1})
    run.append_evals([{**_ROW, "step": 1}])
    checkpoint.save(checkpoint.new_name(run.checkpoints, 1), at_step(1), CONFIG, logged=run.logged()._asdict())
    save_policy(run.path / FILE, ActingPolicy(at_step(1).learner.policy))
    checkpoint.save(run.path / "saved", at_step(1), CONFIG)
    return run


def _points(scratch: Path) -> int:
    """How many calls there are that could fail."""
    counting = FailingOS(-1, 0, once=True)
    run = _prepared(scratch / "counted")
    with mock.patch.object(disk, "os", counting):
        _save(run)
    run.close()
    return counting.calls


def run(n: int, scratch: Path) -> Row:
    """Let n of all points fail, once or for good."""
    cases = [(point, error, once) for point in range(_points(scratch)) for error in ERRORS for once in (True, False)]
    chosen = cases[:: max(1, len(cases) // n)]
    failures = []
    for number, (point, error, once) in enumerate(chosen):
        told = _one(scratch / str(number), point, error, once=once)
        if told is not None:
            failures.append(f"{os.strerror(error)} at call {point}{'' if once else ' and after'}: {told}")
    return Row(PROPERTY, len(chosen), len(chosen) - len(failures), failures)


def _one(path: Path, point: int, error: int, *, once: bool) -> str | None:
    directory = _prepared(path)
    failing = FailingOS(point, error, once=once)
    told = None
    try:
        with mock.patch.object(disk, "os", failing):
            _save(directory)
    except UserError as caught:
        text = str(caught)
        if os.strerror(error) not in text or str(path) not in text or "make room" not in text or "\n" in text:
            told = f"an unclear error: {text}"
    except Exception as caught:
        told = f"{type(caught).__name__}: {caught}"
    finally:
        directory.close()
    return told or _checked(path)


def _checked(path: Path) -> str | None:
    """Whether the run can go on from one of the two checkpoints, with logs that are not behind, and save again."""
    directory = RunDirectory.open(path, RunConfig(steps=50))
    try:
        warned: list[str] = []
        found = checkpoint.load_newest(directory.checkpoints, warn=warned.append)
        assert found is not None
        step = found.state.counters.steps
        if warned or checkpoint.fingerprint(found.state) != checkpoint.fingerprint(at_step(step)):
            return f"the checkpoint of step {step} is not what was saved: {warned}"
        load_policy(path / FILE)
        kept = checkpoint.load(path / "saved").state
        if checkpoint.fingerprint(kept) != checkpoint.fingerprint(at_step(kept.counters.steps)):
            return "what was saved over is neither the old nor the new"
        if not directory.cut_back(Logged(**found.manifest["logged"])):
            return "the logs are behind the checkpoint"
        _save(directory)
        left = [file.name for file in (*path.glob(".*"), *directory.checkpoints.glob(".*"))]
        return f"left behind: {left}" if left else None
    finally:
        directory.close()


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
