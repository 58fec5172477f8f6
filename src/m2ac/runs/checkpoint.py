"""The whole state of a training on disk: arrays in safetensors, the rest in a JSON manifest, nothing pickled.

A checkpoint is a directory. It is written under another name, synced, and renamed, so that what carries its final name
is whole.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from m2ac.algorithms.state import State, init_state
from m2ac.config import AgentConfig, RunConfig
from m2ac.learners.acting import ActingPolicy
from m2ac.runs.directory import dump_json
from m2ac.settings import ConfigError, UserError, from_dict, to_dict

FORMAT, SCHEMA = "m2ac checkpoint", 2
STATE, MANIFEST = "state.safetensors", "manifest.json"
_ANOTHER = "load another one, or train again"
_WHERE = "give a directory written by save, or a run directory"


class CheckpointError(UserError):
    """A checkpoint that cannot be used; the message names the file and what is wrong with it."""


class Checkpoint(NamedTuple):
    """What a checkpoint directory holds."""

    path: Path
    state: State
    config: AgentConfig
    manifest: dict[str, Any]


def named_arrays(state: State) -> dict[str, np.ndarray]:
    """Every leaf of the state under its path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf, order="C") for path, leaf in leaves}


def fingerprint(state: State) -> str:
    """SHA-256 of the whole state."""
    digest = hashlib.sha256()
    for name, array in sorted(named_arrays(state).items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save(path: Path, state: State, config: AgentConfig, **extra: Any) -> None:
    """Write a checkpoint directory in one step that either happens or does not."""
    path = path.absolute()
    _must_be_replaceable(path)
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save_file(named_arrays(state), temporary / STATE)
        manifest = {
            "format": FORMAT,
            "schema": SCHEMA,
            "kind": type(config).__name__,
            "config": to_dict(config),
            "step": state.counters.steps,
            "obs_dim": int(state.real.observations.shape[1]),
            "action_dim": int(state.real.action.shape[1]),
            "capacity": state.real.capacity,
            "slots": state.real.slots,
            "learns_termination": _learns_termination(state),
            "sha256": {STATE: _sha256(temporary / STATE)},
            **extra,
        }
        (temporary / MANIFEST).write_text(dump_json(manifest, indent=2), encoding="utf-8")
        for file in (temporary / STATE, temporary / MANIFEST, temporary):
            _sync(file)
        _replace(temporary, path)
        _sync(path.parent)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write {path}: {error}; make room there or choose another place") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _must_be_replaceable(path: Path) -> None:
    """Saving replaces a checkpoint or an empty directory, and never anything else that a user may have there."""
    if not path.exists() or (path.is_dir() and (not any(path.iterdir()) or _is_checkpoint(path))):
        return
    raise CheckpointError(f"{path} exists and is not a checkpoint; choose another place")


def _is_checkpoint(path: Path) -> bool:
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def read_manifest(path: Path) -> dict[str, Any]:
    """The checked manifest of a checkpoint directory."""
    file = path / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a checkpoint: it has no {MANIFEST}; {_WHERE}") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}; {_ANOTHER}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{file} is not the manifest of an m2ac checkpoint; {_WHERE}")
    if manifest.get("schema") != SCHEMA:
        raise CheckpointError(
            f"{file} has schema {manifest.get('schema')!r}; this version of m2ac reads {SCHEMA}; "
            f"use the version that wrote it"
        )
    return manifest


def load(path: Path) -> Checkpoint:
    """The state, its configuration and the manifest, all of it checked."""
    manifest = read_manifest(path)
    kind = RunConfig if manifest.get("kind") == "RunConfig" else AgentConfig
    try:
        config = from_dict(kind, manifest["config"])
        template = init_state(
            _with_capacity(config, int(manifest["capacity"])),
            int(manifest["obs_dim"]),
            int(manifest["action_dim"]),
            learns_termination=bool(manifest["learns_termination"]),
            slots=int(manifest["slots"]),
        )
        expected = manifest["sha256"][STATE]
    except (AssertionError, KeyError, TypeError, ValueError, ConfigError) as error:
        raise CheckpointError(f"{path / MANIFEST} is damaged ({error!r}); {_ANOTHER}") from error
    file = path / STATE
    try:
        if _sha256(file) != expected:
            raise CheckpointError(f"{file} is damaged: its SHA-256 is not the one in {MANIFEST}; {_ANOTHER}")
        arrays = load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}; {_ANOTHER}") from error
    return Checkpoint(path, _filled(template, arrays, file), config, manifest)


def load_newest(directory: Path, *, warn: Callable[[str], object]) -> Checkpoint | None:
    """The newest checkpoint of a run that can be used, None where there is none; the bad ones are told to `warn`."""
    bad: list[CheckpointError] = []
    for path in reversed(_by_step(directory)):
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


def _by_step(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("step-*") if path.is_dir())


def checkpoint_name(step: int) -> str:
    """A name that sorts by step."""
    return f"step-{step:010d}"


def prune(directory: Path, *, keep: int = 3) -> None:
    """Delete all but the last few checkpoints, and what interrupted saves left behind."""
    for old in (*_by_step(directory)[:-keep], *directory.glob(".step-*.tmp"), *directory.glob(".step-*.old")):
        shutil.rmtree(old)


def save_policy(path: Path, policy: ActingPolicy) -> None:
    """The policy alone: weights and biases, layer by layer."""
    arrays: dict[str, np.ndarray] = {}
    for i, (weight, bias) in enumerate(policy.layers):
        arrays |= {f"{i}.weight": weight, f"{i}.bias": bias}
    temporary = path.with_name(f".{path.name}.tmp")
    save_file(arrays, temporary)
    _sync(temporary)
    temporary.replace(path)


def load_policy(path: Path) -> ActingPolicy:
    """The inverse of `save_policy`."""
    try:
        arrays = load_file(path)
        layers = [(arrays[f"{i}.weight"], arrays[f"{i}.bias"]) for i in range(len(arrays) // 2)]
    except (OSError, SafetensorError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}; continue the training, which writes it") from error
    if not layers:
        raise CheckpointError(f"{path} holds no policy; continue the training, which writes it")
    return ActingPolicy(layers)


def _filled(template: State, arrays: dict[str, np.ndarray], file: Path) -> State:
    """The template with each leaf replaced by the array of its name."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    if set(names) != set(arrays):
        odd = sorted(set(names) ^ set(arrays))[0]
        raise CheckpointError(f"{file} does not fit its manifest: {odd} is in only one of them; {_ANOTHER}")

    def fill(name: str, leaf: Any) -> Any:
        array, expected = arrays[name], np.asarray(leaf)
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise CheckpointError(
                f"{file}: {name} is {array.dtype}{array.shape}, not {expected.dtype}{expected.shape}; {_ANOTHER}"
            )
        if isinstance(leaf, jax.Array):
            return jax.numpy.asarray(array)
        return array if isinstance(leaf, np.ndarray) else type(leaf)(array)

    return jax.tree.unflatten(structure, [fill(name, leaf) for name, (_, leaf) in zip(names, leaves, strict=True)])


def _learns_termination(state: State) -> bool:
    if state.dynamics is None:
        return False
    params = state.dynamics.ensemble.params
    return bool(params.members[0][-1].bias.shape[0] > 2 * params.max_log_variance.shape[0])


def _with_capacity(config: AgentConfig, capacity: int) -> AgentConfig:
    return replace(config, replay=replace(config.replay, capacity=capacity))


def _sha256(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(new: Path, path: Path) -> None:
    """Put `new` in the place of `path`, which may exist."""
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    if path.exists():
        os.rename(path, old)
    os.rename(new, path)
    shutil.rmtree(old, ignore_errors=True)
