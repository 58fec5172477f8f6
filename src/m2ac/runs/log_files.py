"""Files of logged experience as columns, each under the name that it has there; what is for which part is told here."""

import csv
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from m2ac.envs.notices import brief
from m2ac.runs import disk
from m2ac.settings import ConfigError, check

NAMES: dict[str, tuple[str, ...]] = {
    "obs": ("obs", "observation", "observations", "state", "states"),
    "action": ("action", "actions"),
    "reward": ("reward", "rewards"),
    "next_obs": ("next_obs", "next_observation", "next_observations", "next_state", "next_states"),
    "terminated": ("terminated", "termination", "terminations", "terminal", "terminals", "done"),
    "truncated": ("truncated", "truncation", "truncations", "timeout", "timeouts"),
}
"""What each part may be called; the first is ours."""

SEVERAL = ("obs", "action", "next_obs")
"""Parts of several numbers, which have columns obs_0, obs_1, … in a table."""

MINARI = "minari:"
SEPARATORS = ";\t| "
"""What stands between the columns of a table that somebody else calls CSV."""

_WHOLE = {name for names in NAMES.values() for name in names}
_ENTRIES = {name for part in SEVERAL for name in NAMES[part]}


class Columns(NamedTuple):
    """What one source holds, not yet checked."""

    source: str
    read: dict[str, NDArray[Any]]
    others: tuple[str, ...] = ()  # names of columns that have no meaning here and may hold anything
    first_row: int = 0  # how the file counts


def columns_of(source: str) -> Iterable[Columns]:
    """What a source holds, read by its kind; a Minari dataset has columns for every episode."""
    if source.startswith(MINARI):
        return _minari(source)
    path = Path(source)
    readers: dict[str, Callable[[Path], Columns]] = {".npz": _npz, ".csv": _csv, ".parquet": _parquet}
    if path.suffix not in readers:
        raise ConfigError(
            f"--data {source} must end in .npz, .csv or .parquet, or be {MINARI}DATASET; write it as one of these"
        )
    try:
        check(not path.is_file() or path.stat().st_size > 0, f"--data {path} is empty; give a file with transitions")
        return [readers[path.suffix](path)]
    except OSError as error:
        raise ConfigError(f"cannot read --data {source}: {disk.reason(error)}; give another file") from error


def _is_ours(name: str) -> bool:
    """Whether a column is read."""
    return name in _WHOLE or re.sub(r"_\d+$", "", name) in _ENTRIES


def _columns(path: Path, names: Sequence[str], read: dict[str, NDArray[Any]], *, first_row: int = 0) -> Columns:
    return Columns(str(path), read, tuple(name for name in names if name not in read), first_row)


def _npz(path: Path) -> Columns:
    try:
        with np.load(path, allow_pickle=False) as file:
            return _columns(path, file.files, {name: file[name] for name in file.files if _is_ours(name)})
    except (ValueError, zipfile.BadZipFile, EOFError, KeyError, TypeError) as error:
        raise ConfigError(f"--data {path} is damaged or holds objects: {error}; write plain arrays") from error


def _csv(path: Path) -> Columns:
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.reader(file)
        try:
            header = _header(next(reader, []), path)
            empty = 0
            columns: dict[str, list[float]] = {name: [] for name in _once(header, path)}
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
    return _columns(path, header, {name: np.array(column) for name, column in columns.items()}, first_row=2)


def _header(line: list[str], path: Path) -> list[str]:
    """The names of a table's columns."""
    header = [name.strip() for name in line]
    check(any(header), f"--data {path} row 1 is empty; it must name the columns")
    other = next((mark for mark in SEPARATORS if mark in header[0]), None) if len(header) == 1 else None
    check(other is None, f"--data {path}: the separator seems to be {other!r}, it must be ','; write it with commas")
    return header


def _once(names: Sequence[str], path: Path) -> list[str]:
    """Those names that are read, none of which may be there twice."""
    ours = [name for name in names if _is_ours(name)]
    twice = next((name for name in ours if ours.count(name) > 1), None)
    check(twice is None, f"--data {path} has two columns {twice}; remove or rename one")
    return ours


def _number(text: str, column: str, row: int, path: Path) -> float:
    word = {"true": "1", "false": "0"}.get(text.strip().lower(), text)
    try:
        return float(word)
    except ValueError:
        raise ConfigError(
            f"--data {path} column {column} row {row} is {text[:40]!r}, not a number; mend or remove the row"
        ) from None


def _parquet(path: Path) -> Columns:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ConfigError(f"--data {path} needs pyarrow; pip install 'm2ac[data]', or write it as .npz") from None
    import pyarrow

    try:
        table = parquet.read_table(path)
        names = table.column_names
        return _columns(path, names, {n: _stacked(table.column(n).to_numpy(), n, path) for n in _once(names, path)})
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        raise ConfigError(f"--data {path} is damaged: {error}; write it again") from error


def _stacked(column: NDArray[Any], name: str, path: Path) -> NDArray[Any]:
    """A column of lists as one array."""
    if column.dtype != object or not len(column) or not isinstance(column[0], np.ndarray):
        return column
    for row, cell in enumerate(column):
        if np.shape(cell) != column[0].shape:
            raise ConfigError(
                f"--data {path} column {name} row {row} is {brief(cell)}, not a list of {len(column[0])} numbers; "
                f"mend or remove the row"
            )
    return np.stack(list(column))


def _minari(source: str) -> Iterable[Columns]:
    try:
        import minari
    except ImportError:
        raise ConfigError(f"--data {source} needs Minari; pip install 'm2ac[data]', or export it as .npz") from None
    name = source.removeprefix(MINARI)
    try:
        dataset = minari.load_dataset(name)
        for episode in dataset.iterate_episodes():
            observations = np.asarray(episode.observations)
            yield Columns(
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
