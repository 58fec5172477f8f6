"""The whole state of a training on disk: arrays in safetensors, the rest in a JSON manifest, nothing pickled.

A checkpoint is a directory. It is written under another name, synced, and renamed, so that what carries its final name
is whole. What is read is checked before it is used: the manifest against its own digest, the arrays against the SHA-256
in the manifest and against the shapes that follow from the configuration.
"""

import glob
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from m2ac.algorithms.state import AnyState, OnPolicyState, State, rollout_position, state_shapes
from m2ac.config import AgentConfig, RunConfig
from m2ac.finite import first_faulty
from m2ac.learner_config import PPOConfig
from m2ac.learners.choice import learner_of
from m2ac.replay import Real, first_slots
from m2ac.resolving import as_written
from m2ac.runs import disk
from m2ac.runs.disk import dump_json
from m2ac.runs.environment import versions
from m2ac.runs.tensors import TensorsError, read_tensors, write_tensors
from m2ac.settings import UserError, from_dict, to_dict

FORMAT, SCHEMA = "m2ac checkpoint", 5
BEFORE_SCALING, BEFORE_SCALED_TARGETS = 3, 4
"""The schemas before observations could be scaled, and before the model's targets could, which are read as well."""
STATE, LOSSES, MANIFEST = "state.safetensors", "losses.safetensors", "manifest.json"
LARGEST_MANIFEST = 2**20
LARGEST_STATE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
"""Bytes that a state may take: what was never written is not in the file, so a small one can ask for any memory."""

LARGEST_LOSSES = 2**30
_NAME = re.compile(r"step-(\d{10,})(?:\.(\d+))?")
_ANOTHER = "load another one, or train again"
_WHERE = "give a directory written by save, or a run directory"
_ROOM = "make room there or choose another place"
_ROWS = ("at", "action", "reward", "terminated")  # of D_env, in which a row has one entry each


class CheckpointError(UserError):
    """A checkpoint that cannot be used; the message names the file and what is wrong with it."""


class Checkpoint(NamedTuple):
    """What a checkpoint directory holds."""

    path: Path
    state: AnyState
    config: AgentConfig
    manifest: dict[str, Any]
    losses: dict[str, np.ndarray]  # of the updates of a cycle that is not finished yet


def named_arrays(state: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Every leaf of the state under its path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf, order="C") for path, leaf in leaves}


def fingerprint(state: AnyState) -> str:
    """SHA-256 of the whole state."""
    digest = hashlib.sha256()
    for name, array in sorted(named_arrays(state).items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save(
    path: Path, state: AnyState, config: AgentConfig, *, losses: Mapping[str, np.ndarray] | None = None, **extra: Any
) -> None:
    """Write a checkpoint directory in one step that either happens or does not; `extra` is kept in the manifest."""
    path = path.absolute()
    _must_be_replaceable(path)
    arrays = named_arrays(state)
    arrays |= {name: arrays[name][:count] for name, count in _written_rows(state.real).items()}
    fault = first_faulty(arrays)
    if fault is not None:
        raise CheckpointError(f"{fault[0]} is {fault[1]}, so {path} is not written; an earlier one is kept")
    temporary = disk.hidden(path, "tmp")
    with disk.writing(path, _ROOM):
        try:
            disk.new_directory(temporary)
            written = {STATE: write_tensors(temporary / STATE, arrays)}
            if losses:
                written[LOSSES] = write_tensors(temporary / LOSSES, losses)
            manifest = {
                "format": FORMAT,
                "schema": SCHEMA,
                "kind": type(config).__name__,
                "config": to_dict(config),
                "versions": versions(),
                "step": state.counters.steps,
                "updates": state.counters.updates,
                "obs_dim": int(state.real.observations.shape[1]),
                "action_dim": int(state.real.action.shape[1]),
                "capacity": state.real.capacity,
                "slots": state.real.slots,
                "learns_termination": _learns_termination(state),
                "bytes": {name: size for name, (size, _) in written.items()},
                "sha256": {name: sha256 for name, (_, sha256) in written.items()},
                **extra,
            }
            disk.write_new(temporary / MANIFEST, [_sealed(manifest).encode()])
            disk.sync_directory(temporary)
            disk.put_in_place(temporary, path)
        finally:
            disk.remove_tree(temporary)


def _written_rows(real: Real) -> dict[str, int]:
    """How many entries of each array of D_env were ever written: the rest is zeros."""
    size = int(real.size)
    full = size == real.capacity
    slots = real.slots if full else int(real.last) + 1 if size else 0
    return {f".real.{name}": size for name in _ROWS} | {".real.observations": slots}


def _sealed(manifest: dict[str, Any]) -> str:
    """The manifest's text with a digest of itself, by which a damaged one is known."""
    return dump_json({**manifest, "digest": hashlib.sha256(dump_json(manifest).encode()).hexdigest()}, indent=2)


def _must_be_replaceable(path: Path) -> None:
    """Saving replaces a checkpoint or an empty directory, and never anything else that a user may have there."""
    if not path.is_symlink() and not path.exists():
        return
    if path.is_dir() and not path.is_symlink() and (not any(path.iterdir()) or _is_checkpoint(path)):
        return
    raise CheckpointError(f"{path} exists and is not a checkpoint; choose another place")


def _is_checkpoint(path: Path) -> bool:
    try:
        manifest = json.loads(disk.read(path / MANIFEST, at_most=LARGEST_MANIFEST))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def read_manifest(path: Path) -> dict[str, Any]:
    """The checked manifest of a checkpoint directory."""
    file = path / MANIFEST
    try:
        text = disk.read(file, at_most=LARGEST_MANIFEST).decode()
        manifest = json.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{path} is not a checkpoint: it has no {MANIFEST}; {_WHERE}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}; {_ANOTHER}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{file} is not the manifest of an m2ac checkpoint; {_WHERE}")
    if manifest.get("schema") not in (SCHEMA, BEFORE_SCALED_TARGETS, BEFORE_SCALING):
        raise CheckpointError(
            f"{file} has schema {str(manifest.get('schema'))[:20]!r}; this version of m2ac reads {BEFORE_SCALING} to "
            f"{SCHEMA}; use the version that wrote it"
        )
    try:
        whole = _sealed({name: value for name, value in manifest.items() if name != "digest"}) == text
    except RecursionError:
        whole = False
    if not whole:
        raise CheckpointError(f"{file} is damaged: its digest is not that of its content; {_ANOTHER}")
    return manifest


def load(path: Path) -> Checkpoint:
    """The state, its configuration and the manifest, all of it checked."""
    path = _or_replaced(path)
    manifest = read_manifest(path)
    kind = RunConfig if manifest.get("kind") == "RunConfig" else AgentConfig
    try:
        config = from_dict(kind, as_written(manifest["config"]))
        shapes = _shapes(
            replace(config, seed=0, replay=replace(config.replay, capacity=manifest["capacity"])),
            *(int(manifest[name]) for name in ("obs_dim", "action_dim", "slots")),
            learns_termination=manifest["learns_termination"] is True,
        )
        written = {name: (int(size), str(manifest["sha256"][name])) for name, size in manifest["bytes"].items()}
        if STATE not in written:
            raise ValueError(f"no {STATE}")
    except Exception as error:  # a manifest can be wrong in any way; nothing but plain values has been touched
        raise CheckpointError(f"{path / MANIFEST} is damaged ({str(error)[:200]!r}); {_ANOTHER}") from error
    arrays = _read(path / STATE, *written[STATE], at_most=_bytes(shapes))
    if isinstance(shapes, State):
        arrays |= _unscaled(shapes, manifest["schema"])
    state = _filled(shapes, arrays, path / STATE)
    if not _is_possible(state, config):
        raise CheckpointError(f"{path / STATE} is damaged: its counters do not fit together; {_ANOTHER}")
    losses = _read(path / LOSSES, *written[LOSSES], at_most=LARGEST_LOSSES) if LOSSES in written else {}
    kinds = {(array.ndim, array.size, array.dtype.name) for array in losses.values()}
    names = set(learner_of(config).losses._fields)
    if losses and (set(losses) != names or kinds != {(1, losses["value"].size, "float32")}):
        raise CheckpointError(f"{path / LOSSES} is damaged: it does not hold the losses of a cycle; {_ANOTHER}")
    return Checkpoint(path, state, config, manifest, losses)


def _unscaled(shapes: State, schema: int) -> dict[str, np.ndarray]:
    """What a state of an earlier schema has not, because nothing was scaled then."""
    arrays: dict[str, np.ndarray] = {}
    if schema <= BEFORE_SCALING:
        arrays |= named_arrays(shapes.scaling, ".scaling")
    if schema <= BEFORE_SCALED_TARGETS and shapes.dynamics is not None:
        targets = shapes.dynamics.ensemble.target_mean
        arrays[".dynamics.ensemble.target_mean"] = np.zeros(targets.shape, targets.dtype)
        arrays[".dynamics.ensemble.target_std"] = np.ones(targets.shape, targets.dtype)
    return arrays


def _read(file: Path, size: int, sha256: str, *, at_most: int) -> dict[str, np.ndarray]:
    try:
        return read_tensors(file, at_most=at_most, size=size, sha256=sha256, finite=file.name != LOSSES)
    except TensorsError as error:
        raise CheckpointError(f"{file} {error}; {_ANOTHER}") from error


def _is_possible(state: AnyState, config: AgentConfig) -> bool:
    """Whether the counters and places are such as a training has."""
    if isinstance(state, OnPolicyState) and not _is_possible_rollout(state, config.ppo):
        return False
    counters, real = state.counters, state.real
    episode = state.episode if isinstance(state, State) else state.episodes
    size, cursor, last = int(real.size), int(real.cursor), int(real.last)
    counts = np.concatenate(
        [np.array(counters._replace(modelled_at=0)), np.ravel(episode.number), np.ravel(episode.length)]
    )
    counted = bool(np.all((counts >= 0) & (counts < 2**31)))
    ring = 0 <= size <= real.capacity and 0 <= cursor < real.capacity and 0 <= last < real.slots
    slots = np.asarray(real.at)
    imagined = state.imagined if isinstance(state, State) else None
    kept = imagined is None or bool(np.all(np.asarray([*imagined.counts, imagined.border.phases]) >= 0))
    return (
        counted
        and -1 <= counters.modelled_at <= counters.steps
        and ring
        and kept
        and bool(np.all((slots >= 0) & (slots < real.slots)))
    )


def _is_possible_rollout(state: OnPolicyState, config: PPOConfig) -> bool:
    """Whether the rollout under way and its episodes are in the buffer."""
    steps, size = state.counters.steps, int(state.real.size)
    return (
        0 <= rollout_position(state.counters, config) <= config.rollout <= state.real.capacity
        and min(steps, config.rollout) <= size <= steps
        and bool(np.all(state.episodes.length <= steps))
    )


def _or_replaced(path: Path) -> Path:
    """The checkpoint that was being replaced when the power went, where its successor has no name yet."""
    if path.name and not path.exists():
        for old in sorted(path.parent.glob(f".{glob.escape(path.name)}.*.old")):
            if _is_checkpoint(old):
                return old
    return path


@cache
def _shapes(config: AgentConfig, obs_dim: int, action_dim: int, slots: int, *, learns_termination: bool) -> AnyState:
    capacity = config.replay.capacity
    assert capacity is not None
    if not (0 < obs_dim <= 10**6 and 0 < action_dim <= 10**6 and first_slots(capacity) <= slots <= 2 * capacity):
        raise ValueError("sizes that cannot be")
    shapes = state_shapes(config, obs_dim, action_dim, learns_termination=learns_termination, slots=slots)
    if _bytes(shapes) > LARGEST_STATE:
        raise ValueError(f"a state of {_bytes(shapes)} bytes, more than {LARGEST_STATE}")
    return shapes


def _bytes(shapes: AnyState) -> int:
    return sum(int(np.prod(np.shape(leaf), dtype=object)) * _dtype(leaf).itemsize for leaf in jax.tree.leaves(shapes))


def _dtype(leaf: Any) -> np.dtype[Any]:
    return np.dtype(leaf.dtype) if hasattr(leaf, "dtype") else np.asarray(leaf).dtype


def load_newest(directory: Path, *, warn: Callable[[str], object]) -> Checkpoint | None:
    """The newest checkpoint of a run that can be used, None where there is none; the bad ones are told to `warn`."""
    bad: list[CheckpointError] = []
    for path in reversed(_in_order(directory)):
        try:
            found = load(path)
        except CheckpointError as error:
            bad.append(error)
            continue
        for error in bad:
            warn(f"{error}; using {found.path} instead")
        return found
    if bad:
        raise CheckpointError(f"no checkpoint in {directory} can be used: {bad[0]}; delete the run to start again")
    return None


def _in_order(directory: Path) -> list[Path]:
    """The checkpoints of a run, the newest last; a link is none of them."""
    found = [(_NAME.fullmatch(path.name), path) for path in directory.glob("step-*")]
    numbered = [
        (int(match[1]), int(match[2] or 0), path)
        for match, path in found
        if match is not None and path.is_dir() and not path.is_symlink()
    ]
    return [path for _, _, path in sorted(numbered)]


def steps_saved(directory: Path) -> int | None:
    """The step of the newest checkpoint, by its name; None where there is none."""
    names = [_NAME.fullmatch(path.name) for path in _in_order(directory)]
    return max((int(name[1]) for name in names if name is not None), default=None)


def has_learned(directory: Path) -> bool:
    """Whether updates were made before the newest checkpoint whose manifest can be read; no array is looked at."""
    for path in reversed(_in_order(directory)):
        try:
            updates = read_manifest(path).get("updates")
        except CheckpointError:
            continue
        return isinstance(updates, int) and updates > 0
    return False


def new_name(directory: Path, step: int) -> Path:
    """A name that no checkpoint has yet and that comes after all others of that step or an earlier one."""
    first = directory / f"step-{step:010d}"
    same = [path.name for path in _in_order(directory) if path.name.split(".")[0] == first.name]
    if not same:
        return first
    match = _NAME.fullmatch(same[-1])
    assert match is not None
    return directory / f"{first.name}.{int(match[2] or 0) + 1}"


def set_aside(directory: Path, *, newer_than: Path) -> list[Path]:
    """Rename the checkpoints after the one that is used, which are damaged: the run makes those steps anew."""
    names = [path.name for path in _in_order(directory)]
    after = names[names.index(newer_than.name) + 1 :] if newer_than.name in names else []
    return [(directory / name).rename(directory / f"damaged-{name}") for name in after]


def prune(directory: Path, *, keep: int = 3) -> None:
    """Delete all but the last few checkpoints, and what interrupted saves left behind."""
    for old in (*_in_order(directory)[:-keep], *directory.glob(".step-*.tmp"), *directory.glob(".step-*.old")):
        disk.remove_tree(old)


def _filled(shapes: AnyState, arrays: dict[str, np.ndarray], file: Path) -> AnyState:
    """Every leaf from the array of its name; the rows of D_env that were never written are zeros."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(shapes)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    if set(names) != set(arrays):
        odd = sorted(set(names) ^ set(arrays))[0]
        raise CheckpointError(f"{file} does not fit its manifest: {odd[:80]} is in only one of them; {_ANOTHER}")
    rows = {f".real.{name}": arrays[".real.at"].shape[:1] for name in _ROWS}
    rows[".real.observations"] = arrays[".real.observations"].shape[:1]

    def fill(name: str, leaf: Any) -> Any:
        array, shape = arrays[name], np.shape(leaf)
        expected = (*rows[name], *shape[1:]) if name in rows else shape
        too_many = name in rows and expected[:1] > shape[:1]
        if array.shape != expected or array.dtype != _dtype(leaf) or too_many:
            raise CheckpointError(
                f"{file} does not fit its manifest: {name} is {array.dtype}{array.shape}, not {shape}; {_ANOTHER}"
            )
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return np.array(array) if isinstance(leaf, np.ndarray) else type(leaf)(array)
        if array.shape != shape:
            array = np.concatenate([array, np.zeros((shape[0] - len(array), *shape[1:]), array.dtype)])
        return jax.numpy.array(array)

    return jax.tree.unflatten(structure, [fill(name, leaf) for name, (_, leaf) in zip(names, leaves, strict=True)])


def _learns_termination(state: AnyState) -> bool:
    if not isinstance(state, State) or state.dynamics is None:
        return False
    params = state.dynamics.ensemble.params
    return bool(params.members[0][-1].bias.shape[0] > 2 * params.max_log_variance.shape[0])
