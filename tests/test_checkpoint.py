"""Checkpoints: nothing is left out, nothing foreign is overwritten, a bad one is named and passed over."""

import json
import os
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy
from tiny import tiny

import m2ac
from m2ac.algorithms.phases import store
from m2ac.algorithms.state import State, init_state
from m2ac.config import AgentConfig
from m2ac.learners.acting import ActingPolicy
from m2ac.resolving import resolve
from m2ac.runs import checkpoint
from m2ac.runs.checkpoint import CheckpointError, fingerprint
from m2ac.runs.disk import DiskError
from m2ac.runs.policy import PolicyError, load_policy, save_policy
from m2ac.runs.tensors import write_tensors
from m2ac.settings import override
from m2ac.types import Transition

CONFIG = resolve(override(AgentConfig(seed=1), tiny("m2ac")), {}, action_dim=2, steps=60)


@pytest.fixture(scope="module")
def state() -> State:
    return init_state(CONFIG, 3, 2, learns_termination=True)


def test_the_fingerprint_changes_with_every_leaf(state: State) -> None:
    leaves, structure = jax.tree.flatten(state)
    seen = {fingerprint(state)}
    for i, leaf in enumerate(leaves):
        array = np.array(leaf)
        flat = array.reshape(-1)
        if flat.size:
            flat[-1] = not flat[-1] if array.dtype == bool else flat[-1] + 1
        changed: list[Any] = [*leaves[:i], array, *leaves[i + 1 :]]
        seen.add(fingerprint(jax.tree.unflatten(structure, changed)))
    assert len(seen) == 1 + len(leaves)


def test_every_leaf_comes_back_with_its_type_and_shape(state: State, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "a", state, CONFIG, note="kept")
    found = checkpoint.load(tmp_path / "a")
    assert fingerprint(found.state) == fingerprint(state)
    assert (found.config, found.manifest["note"], found.path) == (CONFIG, "kept", tmp_path / "a")
    for before, after in zip(jax.tree.leaves(state), jax.tree.leaves(found.state), strict=True):
        assert np.shape(before) == np.shape(after)
        assert isinstance(after, jax.Array) == isinstance(before, jax.Array)
    assert type(found.state.counters.steps) is int
    assert type(found.state.episode.total) is float


def advanced(state: State, steps: int) -> State:
    return state._replace(counters=state.counters._replace(steps=steps))


def test_saving_again_replaces_the_checkpoint_and_leaves_nothing_else(state: State, tmp_path: Path) -> None:
    for steps in (1, 2):
        checkpoint.save(tmp_path / "a", advanced(state, steps), CONFIG)
    assert checkpoint.load(tmp_path / "a").state.counters.steps == 2
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    (tmp_path / "empty").mkdir()
    checkpoint.save(tmp_path / "empty", state, CONFIG)
    checkpoint.load(tmp_path / "empty")


def test_saving_never_replaces_what_is_not_a_checkpoint(state: State, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "file").write_text("more work")
    for name in ("thesis", "file"):
        with pytest.raises(CheckpointError, match=f"{name} exists and is not a checkpoint; choose another place"):
            checkpoint.save(tmp_path / name, state, CONFIG)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    with pytest.raises(DiskError, match=r"cannot write .*x: .*; make room there or choose another place"):
        checkpoint.save(tmp_path / "file" / "x", state, CONFIG)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "thesis"]


def test_the_working_directory_is_not_replaced(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes").write_text("mine")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="exists and is not a checkpoint"):
        checkpoint.save(Path(), state, CONFIG)


def test_pruning_keeps_the_last_three_and_clears_what_interrupted_saves_left(tmp_path: Path) -> None:
    for step in (1, 20, 3, 1000, 400, 1000):
        checkpoint.new_name(tmp_path, step).mkdir()
    (tmp_path / ".step-0000000003.77.tmp").mkdir()
    (tmp_path / ".step-0000000003.77.old").mkdir()
    for _ in range(2):
        checkpoint.prune(tmp_path)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["step-0000000400", "step-0000001000", "step-0000001000.1"]


def test_a_checkpoint_of_the_same_step_comes_after_the_one_before(tmp_path: Path) -> None:
    for _ in range(11):
        checkpoint.new_name(tmp_path, 5).mkdir()
    assert checkpoint.new_name(tmp_path, 5).name == "step-0000000005.11"
    assert checkpoint.new_name(tmp_path, 12_345_678_901).name == "step-12345678901"
    (tmp_path / "step-12345678901").mkdir()
    checkpoint.prune(tmp_path, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-0000000005.10", "step-12345678901"]


def test_a_link_among_the_checkpoints_is_neither_read_nor_followed_when_pruning(state: State, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "checkpoints"
    checkpoint.save(outside, state, CONFIG)
    inside.mkdir()
    (inside / "step-0000000009").symlink_to(outside)
    assert checkpoint.load_newest(inside, warn=print) is None
    for step in range(5):
        checkpoint.new_name(inside, step).mkdir()
    checkpoint.prune(inside)
    checkpoint.load(outside)


def with_rows(state: State, count: int) -> State:
    """The state after that many steps of one episode."""
    obs = np.arange(3 * (count + 1), dtype=np.float32).reshape(count + 1, 3)
    action = np.ones((count, 2), np.float32)
    rows = Transition(obs[:-1], action, np.ones(count, np.float32), obs[1:], np.zeros(count, dtype=bool))
    return state._replace(real=store(jax.tree.map(jax.numpy.copy, state.real), rows, count))


def test_only_the_rows_that_were_written_are_saved_and_each_observation_once(state: State, tmp_path: Path) -> None:
    for count in (0, 20, 60):
        written = with_rows(state, count) if count else state
        path = tmp_path / str(count)
        checkpoint.save(path, written, CONFIG)
        assert fingerprint(checkpoint.load(path).state) == fingerprint(written)
        saved = safetensors.numpy.load_file(path / checkpoint.STATE)
        assert saved[".real.reward"].shape == (count,)
        slots = {0: 0, 20: 21, 60: state.real.slots}[count]  # full: the whole ring, whose order matters
        assert saved[".real.observations"].shape == (slots, 3)


def resealed(path: Path, **changes: Any) -> None:
    """Change a manifest as an attacker would, who knows how to make a digest."""
    manifest = json.loads((path / checkpoint.MANIFEST).read_text())
    del manifest["digest"]
    (path / checkpoint.MANIFEST).write_text(checkpoint._sealed(manifest | changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"capacity": 10**30}, "damaged"),
        ({"capacity": 10**9}, "damaged"),
        ({"slots": 0}, "damaged"),
        ({"slots": 31}, "sizes that cannot be"),
        ({"obs_dim": 4}, "does not fit its manifest"),
        ({"obs_dim": -1}, "damaged"),
        ({"learns_termination": False}, "does not fit its manifest"),
        ({"bytes": {checkpoint.STATE: 7}}, "bytes, not 7"),
        ({"bytes": {}}, "damaged"),
        ({"sha256": {checkpoint.STATE: "0" * 64}}, "SHA-256"),
        ({"sha256": {"../../etc/passwd": "0" * 64}}, "damaged"),
        ({"schema": 1}, "has schema '1'; this version of m2ac reads 3 to 5; use the version that wrote it"),
        ({"schema": "9" * 10_000}, "has schema"),
        ({"config": {"env": "x", "stepz": 3}}, "damaged"),
        ({"config": []}, "damaged"),
        ({"kind": "RunConfig"}, None),
    ],
)
def test_a_manifest_that_lies_is_refused(state: State, tmp_path: Path, changes: Any, reason: str | None) -> None:
    checkpoint.save(tmp_path / "a", state, CONFIG)
    resealed(tmp_path / "a", **changes)
    if reason is None:  # a run's configuration has defaults for what an agent's lacks
        assert fingerprint(checkpoint.load(tmp_path / "a").state) == fingerprint(state)
        return
    with pytest.raises(CheckpointError, match=reason) as told:
        checkpoint.load(tmp_path / "a")
    assert len(str(told.value)) < 600 + 2 * len(str(tmp_path))


def test_a_byte_changed_anywhere_in_the_manifest_is_noticed(state: State, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "a", state, CONFIG)
    file = tmp_path / "a" / checkpoint.MANIFEST
    whole = file.read_bytes()
    for place in range(0, len(whole), 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError):
            checkpoint.load(tmp_path / "a")


def test_arrays_that_are_not_finite_are_neither_saved_nor_loaded(state: State, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "a", state, CONFIG)
    broken = state._replace(learner=state.learner._replace(log_temperature=jax.numpy.float32(np.nan)))
    with pytest.raises(CheckpointError, match=r"\.learner\.log_temperature is nan, so .* is not written"):
        checkpoint.save(tmp_path / "a", broken, CONFIG)
    assert fingerprint(checkpoint.load(tmp_path / "a").state) == fingerprint(state)
    arrays = safetensors.numpy.load_file(tmp_path / "a" / checkpoint.STATE)
    arrays[".learner.log_temperature"] = np.float32(np.inf)[None].reshape(())
    (tmp_path / "a" / checkpoint.STATE).unlink()
    size, sha256 = write_tensors(tmp_path / "a" / checkpoint.STATE, arrays)
    resealed(tmp_path / "a", bytes={checkpoint.STATE: size}, sha256={checkpoint.STATE: sha256})
    with pytest.raises(CheckpointError, match="log_temperature is inf"):
        checkpoint.load(tmp_path / "a")


def test_a_pipe_or_a_link_in_the_place_of_a_file_is_refused_at_once(state: State, tmp_path: Path) -> None:
    for name in (checkpoint.STATE, checkpoint.MANIFEST):
        checkpoint.save(tmp_path / name, state, CONFIG)
        (tmp_path / name / name).unlink()
        os.mkfifo(tmp_path / name / name)
        with pytest.raises(CheckpointError, match="not a regular file"):
            checkpoint.load(tmp_path / name)
        (tmp_path / name / name).unlink()
        (tmp_path / name / name).symlink_to("/dev/zero")
        with pytest.raises(CheckpointError, match=f"{name}.*cannot be read"):
            checkpoint.load(tmp_path / name)


def test_what_was_being_replaced_when_the_power_went_is_found(state: State, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "a[1]", state, CONFIG)
    (tmp_path / "a[1]").rename(tmp_path / ".a[1].77.old")
    assert fingerprint(checkpoint.load(tmp_path / "a[1]").state) == fingerprint(state)


def test_the_newest_usable_checkpoint_is_taken_and_a_bad_one_named(state: State, tmp_path: Path) -> None:
    said: list[str] = []
    assert checkpoint.load_newest(tmp_path, warn=said.append) is None
    for step in (1, 2):
        checkpoint.save(checkpoint.new_name(tmp_path, step), advanced(state, step), CONFIG)
    newest = checkpoint.load_newest(tmp_path, warn=said.append)
    assert newest is not None
    assert newest.state.counters.steps == 2
    assert said == []
    (newest.path / checkpoint.STATE).write_bytes(b"short")
    older = checkpoint.load_newest(tmp_path, warn=said.append)
    assert older is not None
    assert older.state.counters.steps == 1
    assert len(said) == 1
    assert re.search(r"step-0000000002/state.safetensors is damaged.*using .*step-0000000001 instead", said[0])
    (older.path / checkpoint.MANIFEST).unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used: .*step-0000000002.*delete the run"):
        checkpoint.load_newest(tmp_path, warn=said.append)


def test_a_policy_comes_back_and_a_bad_file_is_named(tmp_path: Path) -> None:
    policy = ActingPolicy([(np.ones((3, 2), np.float32), np.zeros(2, np.float32))])
    save_policy(tmp_path / "p", policy)
    obs = np.array([0.1, 0.2, 0.3], np.float32)
    np.testing.assert_array_equal(load_policy(tmp_path / "p")(obs), policy(obs))
    assert [p.name for p in tmp_path.iterdir()] == ["p"]
    (tmp_path / "p").write_bytes(b"nonsense")
    for name in ("p", "q"):
        with pytest.raises(PolicyError, match=f"/{name} (cannot be read|is damaged)"):
            load_policy(tmp_path / name)
    save_policy(tmp_path / "none", ActingPolicy([]))
    with pytest.raises(PolicyError, match="holds no policy"):
        load_policy(tmp_path / "none")
    layers = [(np.ones((3, 2), np.float32), np.zeros(2, np.float32)), (np.ones((3, 2), np.float32), np.zeros(2))]
    save_policy(tmp_path / "odd", ActingPolicy(layers))
    with pytest.raises(PolicyError, match="layer 1 does not fit the one before"):
        load_policy(tmp_path / "odd")


def test_no_source_file_runs_what_it_reads() -> None:
    forbidden = re.compile(r"\b(c?pickle|dill|joblib|marshal|shelve|allow_pickle(?!=False))\b|(?<![\w.])(eval|exec)\(")
    sources = list(Path(m2ac.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    for source in sources:
        code = "\n".join(line.split("#")[0] for line in source.read_text(encoding="utf-8").splitlines())
        assert not forbidden.search(code), source
