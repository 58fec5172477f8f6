"""A run's files on disk.

A line of a log counts once its newline is written: what an interruption left half-written at the end is never read.
"""

import csv
import fcntl
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypedDict, TypeVar

from m2ac.config import ASKED, RunConfig
from m2ac.runs.environment import describe_environment
from m2ac.settings import ConfigError, from_dict, to_dict

EvalRow = TypedDict(
    "EvalRow", {"step": int, "episode": int, "seed": int, "return": float, "length": int, "seconds": float}
)
"""One evaluation episode, a row of `evals.csv`."""

T = TypeVar("T")

EVAL_COLUMNS = ("step", "episode", "seed", "return", "length", "seconds")
MAY_DIFFER = ("out", "tensorboard", "checkpoint_minutes", "step_timeout")
"""Settings that do not change what a run computes."""

_ANOTHER = "choose another --out or delete the directory"


def default_out(config: RunConfig) -> str:
    """`runs/ENV-ALGO[-hH]-sSEED`, with whatever could trouble a file system replaced by a dash."""
    horizon = "" if config.horizon is None else f"-h{config.horizon}"
    name = f"{config.env}-{config.algo}{horizon}-s{config.seed}"
    return "runs/" + re.sub(r"[^A-Za-z0-9._-]", "-", name)


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

    @classmethod
    def open(cls, path: str | os.PathLike[str], config: RunConfig, *, asked: RunConfig | None = None) -> "RunDirectory":
        """Start a run in `path`, or continue the one that is there, which must have the same configuration.

        `asked` is the configuration before the task's values were filled in; it is kept for `--config`.
        """
        run = cls(Path(path), config)
        stored = run.path / "config.json"
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            if stored.exists():
                _must_equal(run.path, _read_config(run.path), config)
            else:
                run._must_be_empty()
                values = to_dict(config) | ({ASKED: to_dict(asked)} if asked is not None else {})
                write_atomically(stored, dump_json(values, indent=2))
            run.checkpoints.mkdir(exist_ok=True)
            run._record_environment()
        except OSError as error:
            raise ConfigError(
                f"cannot write the run directory {str(path)!r}: {error.strerror or error}; choose another --out"
            ) from error
        return run

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "RunDirectory":
        """A run that exists already."""
        return cls(Path(path), _read_config(Path(path)))

    def hold(self) -> None:
        """Keep other processes from training here; the system lets go when this process ends, however it ends."""
        self._lock = _locked(self.path / "lock")

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
        write_atomically(self.path / "DONE", dump_json(summary, indent=2))

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """One line of `metrics.jsonl`; needs a "step", by which a resumed run cuts the file back."""
        values = plain(metrics)
        if not isinstance(values.get("step"), int):
            raise ValueError(f'metrics need a whole number "step", got {values}')
        _append(self.metrics, dump_json(values))

    def append_evals(self, rows: Iterable[EvalRow]) -> None:
        """One line of `evals.csv` for each evaluation episode."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        by_name: Iterable[Mapping[str, Any]] = rows
        writer.writerows([row[column] for column in EVAL_COLUMNS] for row in by_name)
        _append(self.evals, text.getvalue(), header=",".join(EVAL_COLUMNS) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every complete line of `metrics.jsonl`."""
        return [_parsed(self.metrics, n, line, _metrics_row) for n, line in enumerate(_lines(self.metrics), 1)]

    def read_evals(self) -> list[EvalRow]:
        """Every complete row of `evals.csv`."""
        return [_parsed(self.evals, n, line, _eval_row) for n, line in enumerate(_lines(self.evals)[1:], 2)]

    def cut_back(self, step: int) -> None:
        """Forget what was logged after `step`; a finished run of which something is forgotten is finished no more."""
        metrics = zip(_lines(self.metrics), self.read_metrics(), strict=True)
        header, rows = _lines(self.evals)[:1], zip(_lines(self.evals)[1:], self.read_evals(), strict=True)
        changed = self._rewrite(self.metrics, [line for line, row in metrics if row["step"] <= step])
        changed |= self._rewrite(self.evals, header + [line for line, row in rows if row["step"] <= step])
        if changed:
            (self.path / "DONE").unlink(missing_ok=True)

    @staticmethod
    def _rewrite(path: Path, lines: Sequence[str]) -> bool:
        text = "".join(lines)
        changed = path.exists() and path.read_bytes() != text.encode()
        if changed:
            write_atomically(path, text)
        return changed

    def _must_be_empty(self) -> None:
        found = [file.name for file in (self.metrics, self.evals, self.path / "DONE") if file.exists()]
        if found:
            raise ConfigError(f"{str(self.path)!r} has {' and '.join(found)} but no config.json; {_ANOTHER}")

    def _record_environment(self) -> None:
        """A run continued elsewhere keeps the earlier places on record: its numbers depend on all of them."""
        file = self.path / "environment.json"
        now = plain(describe_environment())
        try:
            before = json.loads(file.read_text(encoding="utf-8"))
            earlier = before.pop("earlier", [])
        except (FileNotFoundError, ValueError, AttributeError, TypeError):
            before, earlier = now, []
        write_atomically(
            file, dump_json({**now, "earlier": [*earlier, before] if before != now else earlier}, indent=2)
        )


def plain(value: Any) -> Any:
    """The value as JSON knows it: arrays become lists, NaN and infinities become None."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no place in JSON: {value!r}")


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """Strict ASCII JSON that ends with a newline."""
    return json.dumps(plain(value), indent=indent, allow_nan=False) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` in one step: a reader or a crash sees the old text or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _locked(path: Path) -> IO[bytes]:
    """The open file that keeps other processes out."""
    file = open(path, "ab")  # noqa: SIM115  (it stays open for as long as the run)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigError(
            f"another process is training in {str(path.parent)!r}; wait for it, stop it, or choose another --out"
        ) from None
    return file


def _append(path: Path, text: str, *, header: str = "") -> None:
    with path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":  # an interruption tore the last line; what follows must not grow onto it
                end = file.truncate(path.read_bytes().rfind(b"\n") + 1)
        file.write(((header if end == 0 else "") + text).encode())
        file.flush()


def _lines(path: Path) -> list[str]:
    """Complete lines with their newlines; split at \\n alone, since str.splitlines knows a dozen other separators."""
    if not path.exists():
        return []
    data = path.read_bytes()
    complete = data[: data.rfind(b"\n") + 1].decode("utf-8", errors="replace")
    return [line + "\n" for line in complete.split("\n")[:-1]]


def _parsed(path: Path, number: int, line: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(line)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} line {number} cannot be read ({error}): {line.strip()[:80]!r}; delete it") from error


def _metrics_row(line: str) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise ValueError('no whole number "step"')
    return row


def _eval_row(line: str) -> EvalRow:
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
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"{str(path)!r} is not a run directory: it has no config.json; give a directory that m2ac train has written"
        ) from None
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot read {str(file)!r}: {error}; restore the file or {_ANOTHER}") from error
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{str(file)!r} is not valid JSON: {error}; restore the file or {_ANOTHER}") from error
    try:
        if isinstance(values, dict):
            values.pop(ASKED, None)
        return from_dict(RunConfig, values)
    except ConfigError as error:
        raise ConfigError(f"{str(file)!r} does not fit this version of m2ac: {error}; {_ANOTHER}") from error


def _must_equal(path: Path, stored: RunConfig, wanted: RunConfig) -> None:
    old, new = _flat(plain(to_dict(stored))), _flat(plain(to_dict(wanted)))
    differing = [name for name in new if old[name] != new[name] and name not in MAY_DIFFER]
    if differing:
        each = ", ".join(f"{name} is {old[name]!r} there and {new[name]!r} here" for name in differing)
        raise ConfigError(f"{str(path)!r} holds a run with other settings: {each}; {_ANOTHER}")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat
