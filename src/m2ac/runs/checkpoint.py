"""The whole state of a training on disk: arrays in safetensors, the rest in a JSON manifest, nothing pickled.

A checkpoint is a directory. It is written under another name, synced, and renamed, so that what carries its final name
is whole.
"""

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from m2ac.algorithms.state import State, init_state
from m2ac.config import AgentConfig, ConfigError, RunConfig, from_dict, to_dict
from m2ac.learners.acting import ActingPolicy
from m2ac.runs.directory import dump_json

SCHEMA = 1
STATE, MANIFEST = "state.safetensors", "manifest.json"


class CheckpointError(Exception):
    """A checkpoint that cannot be used; the message names the file and what is wrong with it."""


def named_arrays(state: State) -> dict[str, np.ndarray]:
    """Every leaf of the state under its path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): np.ascontiguousarray(leaf) for path, leaf in leaves}


def fingerprint(state: State) -> str:
    """SHA-256 of the whole state."""
    digest = hashlib.sha256()
    for name, array in sorted(named_arrays(state).items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save(path: Path, state: State, config: AgentConfig, **extra: Any) -> None:
    """Write a checkpoint directory in one step that either happens or does not."""
    parent = path.parent
    parent.mkdir(parents=True, exist_ok=True)
    temporary = parent / f".{path.name}.{os.getpid()}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        save_file(named_arrays(state), temporary / STATE)
        manifest = {
            "format": "m2ac checkpoint",
            "schema": SCHEMA,
            "kind": type(config).__name__,
            "config": to_dict(config),
            "step": state.counters.steps,
            "obs_dim": int(state.real.rows.obs.shape[1]),
            "action_dim": int(state.real.rows.action.shape[1]),
            "capacity": int(state.real.rows.reward.shape[0]),
            "learns_termination": _learns_termination(state),
            "sha256": {STATE: _sha256(temporary / STATE)},
            **extra,
        }
        (temporary / MANIFEST).write_text(dump_json(manifest, indent=2), encoding="utf-8")
        for file in (temporary / STATE, temporary / MANIFEST, temporary):
            _sync(file)
        _replace(temporary, path)
        _sync(parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """The checked manifest of a checkpoint directory."""
    file = path / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a checkpoint: it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != "m2ac checkpoint":
        raise CheckpointError(f"{file} is not the manifest of an m2ac checkpoint")
    if manifest.get("schema") != SCHEMA:
        raise CheckpointError(f"{file} has schema {manifest.get('schema')!r}; this version of m2ac reads {SCHEMA}")
    return manifest


def load(path: Path) -> tuple[State, AgentConfig, dict[str, Any]]:
    """The state, its configuration and the manifest."""
    manifest = read_manifest(path)
    kind = RunConfig if manifest.get("kind") == "RunConfig" else AgentConfig
    try:
        config = from_dict(kind, manifest["config"])
        template = init_state(
            _with_capacity(config, int(manifest["capacity"])),
            int(manifest["obs_dim"]),
            int(manifest["action_dim"]),
            learns_termination=bool(manifest["learns_termination"]),
        )
        expected = manifest["sha256"][STATE]
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise CheckpointError(f"{path / MANIFEST} is damaged: {error!r}") from error
    file = path / STATE
    try:
        if _sha256(file) != expected:
            raise CheckpointError(f"{file} is damaged: its SHA-256 is not the one in {MANIFEST}")
        arrays = load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    return _filled(template, arrays, file), config, manifest


def newest(directory: Path) -> Path | None:
    """The last checkpoint of a run, by step."""
    found = sorted(p for p in directory.glob("step-*") if p.is_dir())
    return found[-1] if found else None


def checkpoint_name(step: int) -> str:
    """A name that sorts by step."""
    return f"step-{step:010d}"


def prune(directory: Path, *, keep: int = 3) -> None:
    """Delete all but the last few checkpoints."""
    for old in sorted(p for p in directory.glob("step-*") if p.is_dir())[:-keep]:
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
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return ActingPolicy(layers)


def _filled(template: State, arrays: dict[str, np.ndarray], file: Path) -> State:
    """The template with each leaf replaced by the array of its name."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    if set(names) != set(arrays):
        odd = sorted(set(names) ^ set(arrays))[0]
        raise CheckpointError(f"{file} does not fit its manifest: {odd} is in only one of them")

    def fill(name: str, leaf: Any) -> Any:
        array, expected = arrays[name], np.asarray(leaf)
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise CheckpointError(f"{file}: {name} is {array.dtype}{array.shape}, not {expected.dtype}{expected.shape}")
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
