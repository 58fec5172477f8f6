"""A run's files on disk.

A line of a log counts once its newline is written: what an interruption left half-written at the end is never read.
"""

import csv
import errno
import fcntl
import hashlib
import io
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple, TypedDict, TypeVar

from m2ac.config import ASKED, LIVE, RunConfig
from m2ac.resolving import MOST_ROWS, as_written
from m2ac.runs import disk
from m2ac.runs.disk import dump_json, plain
from m2ac.runs.environment import describe_environment
from m2ac.settings import ConfigError, check, flat, from_dict, override, to_dict

EvalRow = TypedDict(
    "EvalRow", {"step": int, "episode": int, "seed": int, "return": float, "length": int, "seconds": float}
)
"""One evaluation episode, a row of `evals.csv`."""

T = TypeVar("T")

EVAL_COLUMNS = ("step", "episode", "seed", "return", "length", "seconds")
MAY_DIFFER = ("out", "tensorboard", "checkpoint_every", "checkpoint_minutes", "step_timeout", "rejoin")
"""Settings that do not change what a run computes."""

OF_LENGTH = {"steps", "replay.capacity", "random_steps", "world.pretrain"}
"""Settings that follow from the number of steps where they are not given."""

LARGEST_CONFIG = 2**20
"""Bytes of a configuration or of what is known of a machine; ours have some thousand."""

OF_A_RUN = ("metrics.jsonl", "evals.csv", "DONE")
OF_OTHERS = ("export.json", "manifest.json")
"""What an export and a checkpoint are known by, where no run is to be begun."""

DATA = "data.json"
"""What logged experience a run began with."""

ROOM = "make room there, then the same command continues"
LONGEST_NAME = 120
"""Characters of an environment's name in that of a run directory."""

_ANOTHER = "choose another --out or delete the directory"


def default_out(config: RunConfig) -> str:
    """`runs/ENV-ALGO[-hH]-sSEED`, with whatever could trouble a file system or a shell replaced by a dash."""
    horizon = "" if config.horizon is None else f"-h{config.horizon}"
    env = re.sub(r"[^A-Za-z0-9._-]", "-", config.env)
    if len(env) > LONGEST_NAME:  # told apart by all of it, although a file system takes no more
        env = f"{env[:LONGEST_NAME]}-{hashlib.sha256(config.env.encode(errors='backslashreplace')).hexdigest()[:12]}"
    # Neither hidden nor like an option.
    return f"runs/{re.sub('^[.-]', '_', env)}-{config.algo}{horizon}-s{config.seed}"


class Logged(NamedTuple):
    """How many lines the logs of a run have."""

    metrics: int
    evals: int  # the header not counted


class RunDirectory:
    """The files of one run; made by `open` or `read`."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config
        self.metrics = path / "metrics.jsonl"
        self.evals = path / "evals.csv"
        self.checkpoints = path / "checkpoints"
        self.learning_curve = path / "learning_curve.png"
        self._lock: IO[bytes] | None = None
        self._logged = Logged(0, 0)
        self.differences: list[str] = []  # between this machine and the one that the run was on before

    @classmethod
    def open(cls, path: str | os.PathLike[str], config: RunConfig, *, asked: RunConfig | None = None) -> "RunDirectory":
        """Start a run in `path`, or continue the one that is there, which must have the same configuration.

        Until it is closed, other processes are kept out; the system sees to that, however this one ends.
        `asked` is the configuration before the task's values were filled in; it is kept for `--config`.
        """
        run = cls(Path(path), config)
        with run._opening(asked):
            for left in run.path.glob(".*.tmp"):  # by a process that was killed
                disk.remove_tree(left)
            run._check_or_write_config(asked, write=True)  # again: another process may have been here meanwhile
            if run.checkpoints.is_symlink():
                raise OSError(errno.ELOOP, "")
            run.checkpoints.mkdir(exist_ok=True)
            run._record_environment()
        return run

    @classmethod
    def try_open(cls, path: str | os.PathLike[str], config: RunConfig, *, asked: RunConfig) -> None:
        """Refuse what `open` would refuse, on behalf of another process that is going to open it."""
        run = cls(Path(path), config)
        with run._opening(asked):
            run.close()

    @contextmanager
    def _opening(self, asked: RunConfig | None) -> Iterator[None]:
        """The directory made, compared and locked; what goes wrong is told in one line."""
        continued = False
        try:
            continued = (self.path / "config.json").exists()
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_or_write_config(asked, write=False)
            self._lock = _locked(self.path / "lock")
            yield
        except (OSError, ValueError) as error:  # a ValueError of a zero byte
            told = disk.reason(error) if isinstance(error, OSError) else error
            where = f"cannot write the run directory {str(self.path)!r}"
            if continued:
                raise disk.DiskError(f"{where}: {told}; {ROOM}") from error
            raise ConfigError(f"{where}: {told}; choose another --out") from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "RunDirectory":
        """A run that exists already."""
        return cls(Path(path), _read_config(Path(path)))

    def close(self) -> None:
        """Let another process continue the run."""
        if self._lock is not None:
            self._lock.close()

    @property
    def done(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "DONE").exists()

    def mark_done(self, summary: Mapping[str, Any]) -> None:
        """Declare the run finished; `DONE` holds the summary."""
        with disk.writing(self.path, ROOM):
            disk.write_atomically(self.path / "DONE", dump_json(summary, indent=2))

    def record_data(self, sources: Sequence[Mapping[str, Any]]) -> None:
        """What logged experience the run began with."""
        with disk.writing(self.path, ROOM):
            disk.write_atomically(self.path / DATA, dump_json([dict(source) for source in sources], indent=2))

    def remove(self, name: str) -> None:
        """Delete a file that a run which begins again has not made yet."""
        with disk.writing(self.path, ROOM):
            (self.path / name).unlink(missing_ok=True)

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """One line of `metrics.jsonl`; needs a "step", by which a resumed run cuts the file back."""
        values = plain(metrics)
        if not isinstance(values.get("step"), int):
            raise ValueError(f'metrics need a whole number "step", got {values}')
        with disk.writing(self.metrics, ROOM):
            disk.append(self.metrics, dump_json(values))
        self._logged = self._logged._replace(metrics=self._logged.metrics + 1)

    def append_evals(self, rows: Iterable[EvalRow]) -> None:
        """One line of `evals.csv` for each evaluation episode."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        by_name: Iterable[Mapping[str, Any]] = rows
        writer.writerows([row[column] for column in EVAL_COLUMNS] for row in by_name)
        with disk.writing(self.evals, ROOM):
            disk.append(self.evals, text.getvalue(), header=",".join(EVAL_COLUMNS) + "\n")
        self._logged = self._logged._replace(evals=self._logged.evals + text.getvalue().count("\n"))

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every complete line of `metrics.jsonl`."""
        return [_parsed(self.metrics, n, line, _metrics_row) for n, line in enumerate(_lines(self.metrics), 1)]

    def read_evals(self) -> list[EvalRow]:
        """Every complete row of `evals.csv`."""
        return [_parsed(self.evals, n, line, eval_row) for n, line in enumerate(_lines(self.evals)[1:], 2)]

    def logged(self) -> Logged:
        """How many lines the logs have, on the disk and not only on their way to it."""
        with disk.writing(self.path, ROOM):
            for log in (self.metrics, self.evals):
                disk.sync(log)
        return self._logged

    def cut_back(self, to: Logged) -> bool:
        """Forget what was logged after a checkpoint; False where the logs have lost some of what they had then."""
        metrics, evals = _lines(self.metrics), _lines(self.evals)
        header, rows = evals[:1], evals[1:]
        with disk.writing(self.path, ROOM):
            self._rewrite(self.metrics, metrics[: to.metrics])
            self._rewrite(self.evals, header + rows[: to.evals])
        self._logged = Logged(len(metrics[: to.metrics]), len(rows[: to.evals]))
        return self._logged == to

    @staticmethod
    def _rewrite(path: Path, lines: Sequence[str]) -> None:
        text = "".join(lines)
        if path.exists() and _content(path) != text.encode():
            disk.write_atomically(path, text)

    def _check_or_write_config(self, asked: RunConfig | None, *, write: bool) -> None:
        stored = self.path / "config.json"
        if stored.is_symlink() or stored.exists():
            _must_equal(self.path, _read_config(self.path), self.config, asked or self.config)
            return
        self._must_be_empty()
        if write:
            values = to_dict(self.config) | ({ASKED: to_dict(asked)} if asked is not None else {})
            disk.write_atomically(stored, dump_json(values, indent=2))

    def _must_be_empty(self) -> None:
        found = [name for name in OF_A_RUN + OF_OTHERS if (self.path / name).exists()]
        if found:
            raise ConfigError(f"{str(self.path)!r} has {' and '.join(found)} but no config.json; {_ANOTHER}")

    def _record_environment(self) -> None:
        """A run continued elsewhere keeps the earlier places on record: its numbers depend on all of them."""
        file = self.path / "environment.json"
        now = plain(describe_environment())
        try:
            before = json.loads(disk.read(file, at_most=LARGEST_CONFIG))
            earlier = [*before.pop("earlier", [])]
            text = dump_json({**now, "earlier": [*earlier, before] if before != now else earlier}, indent=2)
            self.differences = _differences(before, now)
        except (OSError, ValueError, RecursionError, AttributeError, TypeError):
            text = dump_json({**now, "earlier": []}, indent=2)
        disk.write_atomically(file, text)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What decides the last digits of a product and is not what it was."""
    told = [
        f"{what} was {before.get(name)!r} and is {now[name]!r}"
        for name, what in (("cpu", "the processor"), ("cores_usable", "the number of usable cores"))
        if before.get(name) != now[name]
    ]
    packages = before.get("packages") or {}
    return told + [
        f"{name} was {packages.get(name)} and is {version}"
        for name, version in now["packages"].items()
        if packages.get(name) != version
    ]


def _locked(path: Path) -> IO[bytes]:
    """The open file that keeps other processes out."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    file = os.fdopen(descriptor, "rb")  # it stays open for as long as the run
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigError(
            f"another process is training in {str(path.parent)!r}; wait for it, stop it, or choose another --out"
        ) from None
    return file


def _lines(path: Path) -> list[str]:
    """Complete lines with their newlines; split at \\n alone, since str.splitlines knows a dozen other separators."""
    if not path.exists():
        return []
    data = _content(path)
    complete = data[: data.rfind(b"\n") + 1].decode("utf-8", errors="replace")
    return [line + "\n" for line in complete.split("\n")[:-1]]


def _content(path: Path) -> bytes:
    try:
        return disk.read(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {disk.reason(error)}; {_ANOTHER}") from error


def _parsed(path: Path, number: int, line: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(line)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} line {number} cannot be read ({error}): {line.strip()[:80]!r}; delete it") from error


def _metrics_row(line: str) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise ValueError('no whole number "step"')
    return row


def eval_row(line: str) -> EvalRow:
    """A line of `evals.csv`."""
    step, episode, seed, value, length, seconds = line.split(",")
    return {
        "step": int(step),
        "episode": int(episode),
        "seed": int(seed),
        "return": float(value),
        "length": int(length),
        "seconds": float(seconds),
    }


def _read_config(path: Path) -> RunConfig:
    file = path / "config.json"
    try:
        text = disk.read(file, at_most=LARGEST_CONFIG)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"{str(path)!r} is not a run directory: it has no config.json; give a directory that m2ac train has written"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot read {str(file)!r}: {disk.reason(error)}; restore it or {_ANOTHER}") from error
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{str(file)!r} is not valid JSON: {error}; restore the file or {_ANOTHER}") from error
    try:
        if isinstance(values, dict):
            values.pop(ASKED, None)
        return from_dict(RunConfig, as_written(values))
    except ConfigError as error:
        raise ConfigError(f"{str(file)!r} does not fit this version of m2ac: {error}; {_ANOTHER}") from error


def longer(config: RunConfig, steps: int) -> RunConfig:
    """The settings of a run that goes on to that many steps in all; a buffer that held every step goes on to do so."""
    before, capacity = config.steps or 0, config.replay.capacity
    check(
        steps >= before,
        f"steps must be at least the {before} of the run {config.out!r}, got {steps}; a run cannot be made shorter",
    )
    if capacity is not None and capacity >= before:
        capacity = max(capacity, min(capacity + steps - before, MOST_ROWS))
    return override(config, {"steps": steps, "replay": {"capacity": capacity}})


def lengthen(path: str | os.PathLike[str], config: RunConfig) -> None:
    """Give a run, also a finished one, the settings that `longer` made of its own.

    What it came to is kept as DONE-STEPS. Killed anywhere in here, the run is either the old one or the new one, and
    the same call finishes what it began.
    """
    directory = Path(path)
    before = _read_config(directory)
    if before.steps == config.steps:
        return
    asked = json.loads(disk.read(directory / "config.json", at_most=LARGEST_CONFIG)).get(ASKED)
    values = to_dict(replace(config, out=before.out)) | (
        {ASKED: asked | {"steps": config.steps}} if isinstance(asked, dict) else {}
    )
    with disk.writing(directory, ROOM), _locked(directory / "lock"):
        if (directory / "DONE").exists():
            (directory / "DONE").replace(directory / f"DONE-{before.steps}")
        disk.write_atomically(directory / "config.json", dump_json(values, indent=2))


def _must_equal(path: Path, stored: RunConfig, wanted: RunConfig, asked: RunConfig) -> None:
    old, new, given = (flat(plain(to_dict(each))) for each in (stored, wanted, asked))
    differing = [name for name in new if old[name] != new[name] and name not in MAY_DIFFER]
    if not differing:
        return
    each = ", ".join(f"{name} is {old[name]!r} there and {new[name]!r} here" for name in differing)
    env = f" --env {shlex.quote(stored.env)}" if ":" in stored.env else ""  # no file alone imports a module
    resume, way_on = f"m2ac resume {shlex.quote(str(path))}{env}", ""
    if all(given[name] is None for name in differing):  # what was left open came to something else in its version
        settings = ", ".join(f"{name}={old[name]!r}" for name in differing)
        way_on = f"set {settings} to go on with it, or " if stored.env == LIVE else f"{resume} goes on with it, or "
    elif {"steps"} <= set(differing) <= OF_LENGTH and new["steps"] > old["steps"] and stored.env != LIVE:
        way_on = f"{resume} --steps {new['steps']} goes on with it, or "
    raise ConfigError(f"{str(path)!r} holds a run with other settings: {each}; {way_on}{_ANOTHER}")
