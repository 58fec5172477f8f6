"""Experience that was logged before, as transitions of an environment; what is wrong is named by column and row."""

import hashlib
import json
import math
import numbers
import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from m2ac.envs.notices import brief
from m2ac.envs.world import World
from m2ac.runs import disk
from m2ac.runs.directory import DATA, LARGEST_CONFIG
from m2ac.runs.log_files import NAMES, SEVERAL, Columns, columns_of
from m2ac.settings import ConfigError, check, perhaps
from m2ac.types import Transition

OPTIONAL = ("next_obs", "truncated")


class Experience(NamedTuple):
    """Transitions from files, in the order in which they stand there."""

    rows: Transition  # NumPy; observations in the environment's units, actions in [-1, 1]
    notes: tuple[str, ...]  # what was left out, and what is odd
    sources: tuple[dict[str, Any], ...]  # name, rows and digest of each file

    @property
    def size(self) -> int:
        """How many transitions there are."""
        return len(self.rows.reward)


class _Checked(NamedTuple):
    """The transitions of one source."""

    rows: Transition
    notes: tuple[str, ...]
    outside: str | None  # of the declared bounds, which is told once


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
    read: list[_Checked] = []
    told: list[dict[str, Any]] = []
    for source in sources:
        tables = [_transitions(columns, world) for columns in columns_of(source)]
        rows = sum(len(table.rows.reward) for table in tables)
        check(rows > 0, f"--data {source} has no transition; give a file that has some")
        digest = _digest(source)
        same = next((t["source"] for t in told if (t["sha256"] or t["source"]) == (digest or source)), None)
        check(same is None, f"--data {source} holds the same as {same}; leave one of them out")
        told.append({"source": source, "rows": rows, "sha256": digest})
        read += tables
    columns: Any = [np.concatenate(column) for column in zip(*(table.rows for table in read), strict=True)]
    notes = [note for table in read for note in table.notes]
    notes += [table.outside for table in read if table.outside is not None][:1]
    return Experience(Transition(*columns), tuple(notes), tuple(told))


def _digest(source: str) -> str | None:
    if not os.path.isfile(source):
        return None
    digest = hashlib.sha256()
    with open(source, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _called(columns: Columns, part: str) -> str | None:
    """The name under which a part is there."""
    several = part in SEVERAL
    return next((n for n in NAMES[part] if n in columns.read or (several and _entries(columns, n))), None)


def _entries(columns: Columns, name: str) -> dict[int, str]:
    """Columns such as obs_0 and obs_1, by their numbers."""
    found = {column: re.fullmatch(rf"{name}_(\d+)", column) for column in columns.read}
    return {int(match[1]): column for column, match in found.items() if match}


def _spread(name: str, width: int) -> str:
    """The names of the columns of a part: obs_0 … obs_3."""
    return ", ".join(f"{name}_{i}" for i in range(width)) if width < 3 else f"{name}_0 … {name}_{width - 1}"


def _parts(columns: Columns, widths: dict[str, int]) -> dict[str, NDArray[Any]]:
    """Finite numbers by our names, columns such as obs_0 and obs_1 put together."""
    parts = {}
    for part in NAMES:
        name = _called(columns, part)
        if name is None:
            check(part in OPTIONAL, _missing(columns, part, widths))
        elif name in columns.read:
            parts[part] = _numbers(columns, name)
        else:
            parts[part] = _put_together(columns, name, widths[part])
    return parts


def _missing(columns: Columns, part: str, widths: dict[str, int]) -> str:
    """What is said where a part is not there."""
    whole = columns.source.endswith(".npz")
    named = {p: (f"{p} (N, {widths[p]})" if whole else _spread(p, widths[p])) if p in widths else p for p in NAMES}
    if part == "terminated":
        remedy = "add a column terminated, all 0 if the task never ends by itself"
    elif columns.others:
        all_names = ", ".join(f"{name} (if any)" if p in OPTIONAL else name for p, name in named.items())
        remedy = f"rename your columns ({', '.join(columns.others[:20])}) to {all_names}, see docs/data.md"
    else:
        remedy = "add it, see docs/data.md"
    hint = "" if part in widths else perhaps(part, columns.others)
    name = part if part not in widths or whole else f"{part}_0"
    return f"--data {columns.source} has no column {name}; {remedy}{'.' if hint else ''}{hint}"


def _put_together(columns: Columns, name: str, width: int) -> NDArray[Any]:
    """Columns such as obs_0 and obs_1 as one part."""
    entries, source, wanted = _entries(columns, name), f"--data {columns.source}", _spread(name, width)
    check(
        set(entries) != set(range(1, width + 1)),
        f"{source} has no column {name}_0: columns count from 0, so {name}_1 is {name}_0 here; rename them to {wanted}",
    )
    for i in range(width):
        check(i in entries, f"{source} has no column {name}_{i}; this environment has {wanted}, so is it of this task?")
    last = max(entries)
    check(last < width, f"{source} has a column {name}_{last}, but this environment only {wanted}; is it of this task?")
    arrays = [_numbers(columns, entries[i]) for i in range(width)]
    for i, array in enumerate(arrays):
        check(
            array.shape == arrays[0].shape,
            f"{source} {name}_{i} has shape {array.shape}, but {name}_0 {arrays[0].shape}; write columns of one length",
        )
    return np.stack(arrays, axis=1)


def _fitted(columns: Columns, world: World) -> dict[str, NDArray[Any]]:
    """The parts, as long and as wide as they must be, flags as such."""
    widths = {"obs": world.obs_dim, "next_obs": world.obs_dim, "action": world.action_dim}
    parts, where = _parts(columns, widths), f"--data {columns.source}"
    count = len(parts["reward"])
    for name, array in parts.items():
        given, wanted = math.prod(array.shape[1:]), widths.get(name, 1)
        check(len(array) == count, f"{where} {name} has {len(array)} rows, reward has {count}; mend the file")
        check(given == wanted, f"{where} {name} has rows of {given}, not of {wanted} numbers; is it of this task?")
        parts[name] = array.reshape(count, wanted) if name in widths else array
    for name in ("terminated", "truncated"):
        if name in parts:
            parts[name] = _flags(columns, name, parts[name])
    return parts


def _transitions(columns: Columns, world: World) -> _Checked:
    """The checked transitions of a source, and what was left out of it."""
    source, notes = columns.source, []
    parts = _fitted(columns, world)
    if _called(columns, "terminated") == "done":  # Gym's old name, which covers time-outs as well
        if "truncated" in parts:
            parts["terminated"] &= ~parts["truncated"]
        else:
            notes = [f"{source}: done is read as the end of the task; if it was also set by time-outs, add truncated"]
    keep = np.ones(len(parts["reward"]), dtype=bool)
    if "next_obs" not in parts:
        check(
            "truncated" in parts,
            f"--data {source} has neither next_obs nor truncated, so where episodes were cut is unknown; "
            f"add truncated, all 0 if it is of one episode",
        )
        parts["next_obs"] = np.concatenate([parts["obs"][1:], parts["obs"][:1]])
        keep = ~(parts["terminated"] | parts["truncated"])
        keep[-1:] = False
    rows: Any = (
        parts["obs"].astype(np.float32),
        _actions(columns, parts["action"], world),
        parts["reward"].astype(np.float32),
        parts["next_obs"].astype(np.float32),
        parts["terminated"],
    )
    if not keep.all():
        ends = int(np.sum(parts["terminated"] & ~keep))
        lost = f", {ends} of them where the task was over: without next_obs no such end is learned" if ends else ""
        out = int(np.sum(~keep))
        notes.append(f"{source}: {out} rows at the ends of episodes have no next observation, left out{lost}")
    kept = Transition(*(part[keep] for part in rows))
    return _Checked(kept, tuple(notes), _outside(columns, parts, world))


def _place(columns: Columns, name: str, array: NDArray[Any], index: NDArray[np.intp]) -> str:
    """Where a value is, and which; entries of a part have columns of their own."""
    row, *entry = (int(i) for i in index)
    value = array[tuple(index)]
    shown = str(value) if isinstance(value, np.number) else brief(np.asarray(value).tolist())
    return f"{columns.source} column {'_'.join(map(str, [name, *entry]))} row {row + columns.first_row} is {shown}"


def _refuse(bad: NDArray[np.bool_], columns: Columns, name: str, array: NDArray[Any], wanted: str) -> None:
    """Name the first value that is not what is wanted."""
    for index in np.argwhere(bad)[:1]:
        raise ConfigError(f"--data {_place(columns, name, array, index)}, not {wanted}; mend or remove the row")


_is_number = np.vectorize(lambda value: isinstance(value, numbers.Real), otypes=[bool])


def _numbers(columns: Columns, name: str) -> NDArray[Any]:
    """A column as finite numbers, one or more for every transition."""
    array = columns.read[name]
    check(array.ndim > 0, f"--data {columns.source} {name} is a single value; write one for every transition")
    width = math.prod(array.shape[1:])
    array = array.reshape((len(array), width) if width != 1 else len(array))
    if array.dtype.kind not in "fiub":
        _refuse(~_is_number(array), columns, name, array, "a number")
        array = array.astype(np.float64)
    with np.errstate(over="ignore"):
        finite = np.isfinite(array.astype(np.float32))
    _refuse(~finite, columns, name, array, "finite in float32")
    return array


def _flags(columns: Columns, name: str, array: NDArray[Any]) -> NDArray[np.bool_]:
    _refuse((array != 0) & (array != 1), columns, name, array, "0 or 1")
    return array.astype(bool)


def _actions(columns: Columns, array: NDArray[Any], world: World) -> NDArray[np.float32]:
    """In [-1, 1]; what is clearly outside of the environment's bounds was logged in other units."""
    low, high = world.scale.low, world.scale.high
    for index in np.argwhere(world.scale.outside(array))[:1]:
        raise ConfigError(
            f"--data {_place(columns, 'action', array, index)}, outside of the environment's "
            f"[{low[index[1]]}, {high[index[1]]}]; log actions in its units"
        )
    return world.scale.from_env(array)


def _outside(columns: Columns, parts: dict[str, NDArray[Any]], world: World) -> str | None:
    """What is said of the first observation that is outside of the environment's declared bounds."""
    for name in ("obs", "next_obs"):
        index = None if world.bounds is None else world.bounds.outside(parts[name])
        if index is not None and world.bounds is not None:
            low, high = world.bounds.low[index[1]], world.bounds.high[index[1]]
            return (
                f"{_place(columns, name, parts[name], index)}, outside of the environment's declared "
                f"[{low:g}, {high:g}]; learning goes on with it, but is the log in the environment's units?"
            )
    return None
