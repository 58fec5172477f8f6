"""Experience that was logged before, read from files as transitions; what is wrong is named by column and row."""

import csv
import hashlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from m2ac.envs.world import World
from m2ac.runs import disk
from m2ac.runs.directory import DATA, LARGEST_CONFIG
from m2ac.settings import ConfigError, perhaps
from m2ac.types import Transition

NAMES: dict[str, tuple[str, ...]] = {
    "obs": ("obs", "observation", "observations", "state", "states"),
    "action": ("action", "actions"),
    "reward": ("reward", "rewards"),
    "next_obs": ("next_obs", "next_observation", "next_observations", "next_state", "next_states"),
    "terminated": ("terminated", "termination", "terminations", "terminal", "terminals", "done"),
    "truncated": ("truncated", "truncation", "truncations", "timeout", "timeouts"),
}
"""What each part may be called; the first is ours. A part of several numbers has columns obs_0, obs_1, … in a table."""

_READ = {name for names in NAMES.values() for name in names}
OPTIONAL = ("next_obs", "truncated")
MINARI = "minari:"


class Experience(NamedTuple):
    """Transitions from files, in the order in which they stand there."""

    rows: Transition  # NumPy; observations in the environment's units, actions in [-1, 1]
    notes: tuple[str, ...]  # what was left out
    sources: tuple[dict[str, Any], ...]  # name, rows and digest of each file

    @property
    def size(self) -> int:
        """How many transitions there are."""
        return len(self.rows.reward)


class _Table(NamedTuple):
    """One source as arrays, not yet checked."""

    name: str
    parts: dict[str, NDArray[Any]]
    first_row: int = 0  # how the file counts
    notes: tuple[str, ...] = ()


class Past:
    """What a run begins with: its files are read for a new run, and not asked for where a checkpoint has the rows."""

    def __init__(self, sources: Sequence[str], world: World, run: str | os.PathLike[str] | None) -> None:
        self._sources, self._world, self._run = sources, world, run

    @cached_property
    def experience(self) -> Experience | None:
        """The transitions, None where there are no sources."""
        return read_experience(self._sources, self._world) if self._sources else None

    @property
    def size(self) -> int:
        """How many transitions there are, as the run directory remembers where it does."""
        if not self._sources:
            return 0
        remembered = None if self._run is None else _rows_on_record(Path(self._run) / DATA)
        if remembered is not None:
            return remembered
        return self.experience.size if self.experience is not None else 0


def _rows_on_record(path: Path) -> int | None:
    """None where a run has not begun, or its record is damaged: then its files tell."""
    try:
        rows = [source["rows"] for source in json.loads(disk.read(path, at_most=LARGEST_CONFIG))]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return sum(rows) if rows and all(type(count) is int and count > 0 for count in rows) else None


def read_experience(sources: Sequence[str], world: World) -> Experience:
    """All transitions of the files, which must be of this environment."""
    read: list[Transition] = []
    notes: list[str] = []
    told: list[dict[str, Any]] = []
    for source in sources:
        rows = 0
        for table in _tables(source):
            transitions, more = _transitions(table, world)
            read.append(transitions)
            rows += len(transitions.reward)
            notes += [*table.notes, *more]
        told.append({"source": source, "rows": rows, "sha256": _digest(source)})
        if not rows:
            raise ConfigError(f"--data {source} has no transition; give a file that has some")
    columns: Any = [np.concatenate(column) for column in zip(*read, strict=True)]
    return Experience(Transition(*columns), tuple(notes), tuple(told))


def _digest(source: str) -> str | None:
    if not os.path.isfile(source):
        return None
    digest = hashlib.sha256()
    with open(source, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _tables(source: str) -> Iterable[_Table]:
    """What a source holds, read by its kind; a Minari dataset has a table for every episode."""
    if source.startswith(MINARI):
        return _minari(source)
    path = Path(source)
    readers: dict[str, Callable[[Path], _Table]] = {
        ".npz": _npz,
        ".csv": _csv,
        ".parquet": _parquet,
    }
    if path.suffix not in readers:
        raise ConfigError(
            f"--data {source} must end in .npz, .csv or .parquet, or be {MINARI}DATASET; write it as one of these"
        )
    try:
        return [readers[path.suffix](path)]
    except OSError as error:
        raise ConfigError(f"cannot read --data {source}: {disk.reason(error)}; give another file") from error


def _npz(path: Path) -> _Table:
    try:
        with np.load(path, allow_pickle=False) as file:
            return _named({name: file[name] for name in file.files}, path)
    except (ValueError, zipfile.BadZipFile, EOFError, KeyError, TypeError) as error:
        raise ConfigError(f"--data {path} is damaged or holds objects: {error}; write plain arrays") from error


def _csv(path: Path) -> _Table:
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.reader(file)
        try:
            header = [name.strip() for name in next(reader, [])]
            twice = next((name for name in header if header.count(name) > 1 and _is_ours(name)), None)
            if twice is not None:
                raise ConfigError(f"--data {path} has two columns {twice}; remove or rename one")
            empty = 0
            columns: dict[str, list[float]] = {name: [] for name in header if _is_ours(name)}
            for number, line in enumerate(reader, 2):
                if not line:
                    empty = empty or number
                    continue
                if empty:  # not only at the end, where some programs leave one, so rows would be counted wrongly
                    raise ConfigError(f"--data {path} row {empty} is empty; remove it")
                if len(line) != len(header):
                    raise ConfigError(
                        f"--data {path} row {number} has {len(line)} columns, not {len(header)}; mend or remove it"
                    )
                for name, text in zip(header, line, strict=True):
                    if name in columns:
                        columns[name].append(_number(text, name, number, path))
        except csv.Error as error:
            raise ConfigError(f"--data {path} line {reader.line_num} is damaged: {error}; mend or remove it") from None
    others = {name: np.empty(0) for name in header if name not in columns}  # for the error that names what there is
    return _named(others | {name: np.array(column) for name, column in columns.items()}, path, first_row=2)


def _is_ours(name: str) -> bool:
    """Whether a column is read; others, such as a time, may hold anything."""
    return re.sub(r"_\d+$", "", name) in _READ


def _number(text: str, column: str, row: int, path: Path) -> float:
    word = {"true": "1", "false": "0"}.get(text.strip().lower(), text)
    try:
        return float(word)
    except ValueError:
        raise ConfigError(
            f"--data {path} column {column} row {row} is {text[:40]!r}, not a number; mend or remove the row"
        ) from None


def _parquet(path: Path) -> _Table:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ConfigError(f"--data {path} needs pyarrow; pip install 'm2ac[data]', or write it as .npz") from None
    import pyarrow

    try:
        table = parquet.read_table(path)
        columns = {name: _stacked(table.column(name).to_numpy()) for name in table.column_names}
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        raise ConfigError(f"--data {path} is damaged: {error}; write it again") from error
    return _named(columns, path)


def _stacked(column: NDArray[Any]) -> NDArray[Any]:
    """A column of lists as one array."""
    lists = column.dtype == object and len(column) > 0 and all(isinstance(each, np.ndarray) for each in column)
    return np.stack(list(column)) if lists else column


def _minari(source: str) -> Iterable[_Table]:
    try:
        import minari
    except ImportError:
        raise ConfigError(f"--data {source} needs Minari; pip install 'm2ac[data]', or export it as .npz") from None
    name = source.removeprefix(MINARI)
    try:
        dataset = minari.load_dataset(name)
        for episode in dataset.iterate_episodes():
            observations = np.asarray(episode.observations)
            yield _Table(
                f"{source} episode {episode.id}",
                {
                    "obs": observations[:-1],
                    "next_obs": observations[1:],
                    "action": np.asarray(episode.actions),
                    "reward": np.asarray(episode.rewards),
                    "terminated": np.asarray(episode.terminations),
                    "truncated": np.asarray(episode.truncations),
                },
            )
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ConfigError(f"cannot read --data {source}: {error}; see minari list local") from error


def _named(columns: dict[str, NDArray[Any]], path: Path, *, first_row: int = 0) -> _Table:
    """The parts by our names, columns such as obs_0 and obs_1 put together."""
    parts: dict[str, NDArray[Any]] = {}
    columns = {name: _of_one(column) for name, column in columns.items()}
    for part, names in NAMES.items():
        for name in names:
            if name in columns:
                parts[part] = columns[name]
            elif f"{name}_0" in columns:
                width = sum(column.startswith(f"{name}_") and column[len(name) + 1 :].isdigit() for column in columns)
                missing = [i for i in range(width) if f"{name}_{i}" not in columns]
                if missing:
                    raise ConfigError(f"--data {path} has no column {name}_{missing[0]}, but later ones; add it")
                parts[part] = np.stack([columns[f"{name}_{i}"] for i in range(width)], axis=1)
            if part in parts:
                break
        if part not in parts and part not in OPTIONAL:
            hint = perhaps(part, columns)
            several = "" if part in ("reward", "terminated") else f" or {part}_0"
            given = ", ".join(list(columns)[:20]) or "none"
            raise ConfigError(f"--data {path} has no column {part}{several}, but {given}.{hint} Name it so")
    notes: tuple[str, ...] = ()
    if parts["terminated"] is columns.get("done"):  # Gym's old name, which covers time-outs as well
        if "truncated" in parts and parts["truncated"].shape == parts["terminated"].shape:
            parts["terminated"] = np.where(parts["truncated"] == 1, 0, parts["terminated"])
        else:
            notes = (f"{path}: done is read as the end of the task; if it was also set by time-outs, add truncated",)
    return _Table(str(path), parts, first_row, notes)


def _of_one(column: NDArray[Any]) -> NDArray[Any]:
    """A column of lists of one number each as one of numbers."""
    return column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column


def _transitions(table: _Table, world: World) -> tuple[Transition, list[str]]:
    """The checked transitions of a table, and what was left out of it."""
    parts, first_row = dict(table.parts), table.first_row
    count = len(parts["reward"]) if parts["reward"].ndim else 0
    shapes = {"obs": (world.obs_dim,), "next_obs": (world.obs_dim,), "action": (world.action_dim,)}
    for name, array in parts.items():
        wanted = (count, *shapes.get(name, ()))
        given = array.reshape(array.shape[0], -1) if name in shapes and array.ndim > 2 else array
        if name in shapes and shapes[name] == (1,) and given.ndim == 1:
            given = given[:, None]
        if given.shape != wanted:
            raise ConfigError(f"--data {table.name} {name} has shape {given.shape}, not {wanted}; is it of this task?")
        parts[name] = _numbers(given, name, table.name, first_row)
    for name in ("terminated", "truncated"):
        if name in parts:
            parts[name] = _flags(parts[name], name, table.name, first_row)
    keep = np.ones(count, dtype=bool)
    if "next_obs" not in parts:
        if "truncated" not in parts:
            raise ConfigError(
                f"--data {table.name} has neither next_obs nor truncated, so where episodes were cut is unknown; "
                f"add truncated, all 0 if it is of one episode"
            )
        parts["next_obs"] = np.concatenate([parts["obs"][1:], parts["obs"][:1]])
        keep = ~(parts["terminated"] | parts["truncated"])
        keep[-1:] = False
    rows: Any = (
        parts["obs"].astype(np.float32),
        _actions(parts["action"], world, table.name, first_row),
        parts["reward"].astype(np.float32),
        parts["next_obs"].astype(np.float32),
        parts["terminated"],
    )
    notes = []
    if not keep.all():
        ends = int(np.sum(parts["terminated"] & ~keep))
        lost = f", {ends} of them where the task was over: without next_obs no such end is learned" if ends else ""
        out = int(np.sum(~keep))
        notes.append(f"{table.name}: {out} rows at the ends of episodes have no next observation, left out{lost}")
    return Transition(*(part[keep] for part in rows)), notes


def _numbers(array: NDArray[Any], name: str, source: str, first_row: int) -> NDArray[Any]:
    if array.dtype.kind not in "fiub":
        raise ConfigError(f"--data {source} {name} holds {array.dtype}, not numbers; convert it")
    bad = np.argwhere(~np.isfinite(array.astype(np.float32)))
    if len(bad):
        row, *column = (int(i) for i in bad[0])
        where = f"{name}_{column[0]}" if column else name
        value = array[tuple(bad[0])]
        raise ConfigError(
            f"--data {source} column {where} row {row + first_row} is {value}, not finite in float32; "
            f"mend or remove the row"
        )
    return array


def _flags(array: NDArray[Any], name: str, source: str, first_row: int) -> NDArray[np.bool_]:
    bad = np.flatnonzero((array != 0) & (array != 1))
    if len(bad):
        raise ConfigError(
            f"--data {source} column {name} row {bad[0] + first_row} is {array[bad[0]]}, not 0 or 1; "
            f"mend or remove the row"
        )
    return array.astype(bool)


def _actions(array: NDArray[Any], world: World, source: str, first_row: int) -> NDArray[np.float32]:
    """In [-1, 1]; what is clearly outside of the environment's bounds was logged in other units."""
    low, high = world.scale.low, world.scale.high
    bad = np.argwhere(world.scale.outside(array))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        raise ConfigError(
            f"--data {source} column action_{column} row {row + first_row} is {array[row, column]}, outside of the "
            f"environment's [{low[column]}, {high[column]}]; log actions in its units"
        )
    return world.scale.from_env(array)
