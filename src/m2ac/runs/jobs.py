"""Many runs: what is to be done, how far each has come, and how it ended."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from m2ac.escaping import visible_line
from m2ac.runs.directory import eval_row

TAIL = 65_536
"""Bytes at the end of a log within which its last line is."""

LARGEST = 1e15
"""No run has as many steps or takes as many seconds."""

WRONG_INPUT = 2
"""Exit code of a run that no repetition will mend."""


class Job(NamedTuple):
    """One run as a command."""

    name: str
    arguments: tuple[str, ...]  # after m2ac, without the run directory
    directory: Path
    steps: int

    @property
    def done(self) -> bool:
        """Whether the run came to its end, now or earlier."""
        return (self.directory / "DONE").exists()

    @property
    def command(self) -> list[str]:
        """What is typed after `m2ac`."""
        return [*self.arguments, "--out", str(self.directory)]

    @property
    def log(self) -> Path:
        """What the run says, with those of the others: a run directory holds nothing but the run."""
        return self.directory.parent / "logs" / f"{self.directory.name}.log"


class Standing(NamedTuple):
    """How far a run has come, by its logs."""

    step: int
    seconds: float
    mean_return: float | None


def standing(job: Job) -> Standing:
    """As far as the logs tell, which are behind by a cycle at most."""
    row = _last_json(job.directory / "metrics.jsonl")
    step, seconds = int(_number(row.get("step"))), _number(row.get("seconds"))
    rows = []
    for line in _tail(job.directory / "evals.csv"):
        try:
            found = eval_row(line)
        except ValueError:  # the header, or what an interruption left
            continue
        if found["step"] < LARGEST:
            rows.append(found)
    last = [own["return"] for own in rows if own["step"] == rows[-1]["step"]]
    if rows:
        step, seconds = max(step, rows[-1]["step"]), max(seconds, rows[-1]["seconds"])
    return Standing(step, seconds, sum(last) / len(last) if last else None)


def _number(value: Any) -> float:
    """The value, 0 where it is no number that a run logs."""
    return float(value) if isinstance(value, int | float) and abs(value) < LARGEST else 0.0


def last_words(job: Job) -> str:
    """The last thing that a run said."""
    lines = [line.strip() for line in _tail(job.log) if line.strip()]
    return visible_line(lines[-1]) if lines else "nothing was said"


def _last_json(path: Path) -> dict[str, Any]:
    for line in reversed(_tail(path)):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            return row
    return {}


def _tail(path: Path) -> Sequence[str]:
    """The lines at the end of a file; the first of them may lack its beginning."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            return file.read(TAIL).decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []


class Outcome(NamedTuple):
    """How a job ended."""

    job: Job
    state: Literal["finished", "failed", "stopped"]
    attempts: int  # 0: it had been finished before
    said: str = ""  # why it failed


def verdict(
    job: Job, code: int, said: str, *, began_at: int, attempt: int, retries: int, stopped: bool
) -> Outcome | int:
    """How a run ended, or the number of the next attempt, which is 1 where it came further than it had been."""
    if job.done:  # which a run writes last
        return Outcome(job, "finished", attempt)
    if stopped:
        return Outcome(job, "stopped", attempt)
    following = 1 if standing(job).step > began_at else attempt + 1
    if code == WRONG_INPUT or following > retries + 1:
        return Outcome(job, "failed", attempt, said)
    return following
