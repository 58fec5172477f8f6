"""Run directories read for a report: whatever is damaged or half written in one of them, the others are shown."""

import dataclasses
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from m2ac.config import ASKED, AgentConfig, RunConfig
from m2ac.envs import find_task
from m2ac.report.records import Record
from m2ac.resolving import as_written, resolve
from m2ac.runs import disk
from m2ac.runs.directory import LARGEST_CONFIG, MAY_DIFFER, RunDirectory
from m2ac.settings import ConfigError, check, flat, from_dict, to_dict

FILM = "film.webp"
LARGEST_FILM = 32 * 2**20
LARGEST_LOG = 2**28
"""Bytes; those of the paper's longest runs have some millions."""

NAMED = ("env", "algo", "horizon", "seed", "steps", *MAY_DIFFER)
"""Settings that a record has fields of its own for, or that change nothing."""

SOME = 1000
"""Steps of a run whose file names none, for what follows from them."""

WATCHING = ("eval_every", "eval_episodes", "final_episodes")
"""Settings that change what is known of a run, but not the run."""


def find_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The run directories among the paths and below them, each once, in the order of their names."""
    found: dict[Path, Path] = {}
    for given in map(Path, paths):
        if not given.is_dir():
            raise ConfigError(f"{str(given)!r} is not a directory; give run directories or what holds some")
        for folder, below, files in os.walk(given):
            below.sort()
            if "config.json" in files:
                below.clear()  # a run has no run inside
                found.setdefault(Path(folder).resolve(), Path(folder))
    return list(found.values())


def collect(paths: Iterable[str | os.PathLike[str]], *, warn: Callable[[str], None]) -> list[Record]:
    """Every run among the paths and below them; one that cannot be read is told of and left out."""
    runs = find_runs(paths)
    root = Path(os.path.commonpath([run.resolve().parent for run in runs])) if runs else Path()
    records = []
    for run in runs:
        try:
            records.append(read_record(run, name=str(run.resolve().relative_to(root))))
        except ConfigError as error:
            warn(f"left out: {error}")
    return _told_apart(records)


def _told_apart(records: Sequence[Record]) -> list[Record]:
    """The records without settings that all runs of their algorithm share: named once, they set nothing apart.

    Where runs have everything in common but the number of steps, that is among the settings: scores after different
    numbers of steps have no mean.
    """
    by_algo: dict[str, list[Record]] = {}
    lengths: dict[tuple[Any, ...], set[int]] = {}
    for record in records:
        by_algo.setdefault(record.algo, []).append(record)
        lengths.setdefault(_but_for_steps(record), set()).add(record.steps)
    shared = {
        algo: set.intersection(*(set(record.settings.split()) for record in own)) if len(own) > 1 else set()
        for algo, own in by_algo.items()
    }
    found = []
    for record in records:
        words = record.settings.split()
        own = [word for word in words if word not in shared[record.algo]]
        if len(lengths[_but_for_steps(record)]) > 1:
            own.append(f"steps={record.steps}")
        in_common = " ".join(word for word in words if word in shared[record.algo])
        found.append(dataclasses.replace(record, settings=" ".join(own), shared=in_common))
    return found


def _but_for_steps(record: Record) -> tuple[Any, ...]:
    return record.env, record.algo, record.horizon, record.settings


def read_record(path: Path, *, name: str | None = None) -> Record:
    """One run directory, as far as it has come."""
    run = RunDirectory.read(path)
    config = run.config
    for log in (run.metrics, run.evals):
        _check_size(log)
    apart = _apart(_json(path / "config.json").get(ASKED), config)
    return Record(
        name=name or path.name,
        env=config.env,
        algo=config.algo,
        horizon=config.horizon,
        seed=config.seed,
        steps=config.steps or 0,
        settings=" ".join(f"{n}={_shown(value)}" for n, value in apart.items() if n not in WATCHING),
        state="finished" if run.done else "unfinished",
        config={n: value for n, value in to_dict(config).items() if n != "out"},
        environment=_json(path / "environment.json"),
        command=_command(config, apart),
        evals=[dict(row) for row in run.read_evals()],
        metrics=run.read_metrics(),
        folder=path.resolve().parent,
        film=_film(path / FILM),
    )


def _apart(asked: Any, config: RunConfig) -> dict[str, Any]:
    """The settings by dotted name that were asked for and are not what such a run has anyway."""
    try:
        given = from_dict(RunConfig, as_written(asked)) if isinstance(asked, Mapping) else config
    except ConfigError:
        given = config
    # Not a whole run, whose steps may be too few for what is usual, such as PPO's rollout.
    plain = AgentConfig(algo=config.algo, horizon=given.horizon)
    usual = flat(to_dict(resolve(plain, _task_values(config.env), action_dim=1, steps=config.steps or SOME)))
    default, wanted, came_to = (flat(to_dict(each)) for each in (RunConfig(), given, config))
    return {
        name: value
        for name, value in wanted.items()
        if name not in NAMED and value != default[name] and came_to[name] != usual.get(name)
    }


def _task_values(env: str) -> Mapping[str, Any]:
    """What the task sets; nothing where only a module of the user's, which a report does not import, knows it."""
    try:
        return {} if ":" in env else find_task(env).defaults
    except ConfigError:  # it is not installed here
        return {}


def _command(config: RunConfig, apart: Mapping[str, Any]) -> str:
    horizon = {} if config.horizon is None else {"horizon": config.horizon}
    named = {"env": config.env, "algo": config.algo, **horizon, "seed": config.seed, "steps": config.steps}
    words = ["m2ac", "train"]
    default = flat(to_dict(RunConfig()))
    for name, value in (named | dict(apart)).items():
        option = "--" + name.replace("_", "-")
        if isinstance(default[name], bool):  # a switch; what may be None as well takes a word
            group, dot, last = option[2:].rpartition(".")
            words.append(option if value else f"--{group}{dot}no-{last}")
        else:
            words += [option, *(map(str, value) if isinstance(value, list | tuple) else [str(value)])]
    return shlex.join(words)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else re.sub(r"\s", "_", str(value))


def _json(path: Path) -> dict[str, Any]:
    """What the file holds, nothing where that cannot be read: it is told beside the numbers, not computed with."""
    try:
        values = json.loads(disk.read(path, at_most=LARGEST_CONFIG))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _check_size(log: Path) -> None:
    """Refuse a log that no run writes, before it fills the memory."""
    try:
        size = log.lstat().st_size
    except OSError:  # there is none yet, or none any more
        return
    check(size <= LARGEST_LOG, f"{str(log)!r} has {size} bytes, more than {LARGEST_LOG}; it is none of m2ac's")


def _film(path: Path) -> bytes | None:
    """The film, where there is a WebP of bearable size."""
    try:
        data = disk.read(path, at_most=LARGEST_FILM)
    except OSError:
        return None
    return data if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
