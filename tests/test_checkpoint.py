"""Checkpoints: nothing is left out, nothing foreign is overwritten, a bad one is named and passed over."""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tiny import TINY

import m2ac
from m2ac.algorithms.state import State, init_state
from m2ac.config import AgentConfig, resolve
from m2ac.learners.acting import ActingPolicy
from m2ac.runs import checkpoint
from m2ac.runs.checkpoint import CheckpointError, fingerprint
from m2ac.settings import override

CONFIG = resolve(override(AgentConfig(seed=1), TINY), {}, action_dim=2, steps=60)


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
    with pytest.raises(CheckpointError, match=r"cannot write .*x: .*; make room there or choose another place"):
        checkpoint.save(tmp_path / "file" / "x", state, CONFIG)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "thesis"]


def test_the_working_directory_is_not_replaced(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes").write_text("mine")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="exists and is not a checkpoint"):
        checkpoint.save(Path(), state, CONFIG)


def test_pruning_keeps_the_last_three_and_clears_what_interrupted_saves_left(tmp_path: Path) -> None:
    for step in (1, 20, 3, 1000, 400):
        (tmp_path / checkpoint.checkpoint_name(step)).mkdir()
    (tmp_path / ".step-0000000003.77.tmp").mkdir()
    (tmp_path / ".step-0000000003.77.old").mkdir()
    checkpoint.prune(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-0000000020", "step-0000000400", "step-0000001000"]
    checkpoint.prune(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_the_newest_usable_checkpoint_is_taken_and_a_bad_one_named(state: State, tmp_path: Path) -> None:
    said: list[str] = []
    assert checkpoint.load_newest(tmp_path, warn=said.append) is None
    for step in (1, 2):
        checkpoint.save(tmp_path / checkpoint.checkpoint_name(step), advanced(state, step), CONFIG)
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
    checkpoint.save_policy(tmp_path / "p", policy)
    obs = np.array([0.1, 0.2, 0.3], np.float32)
    np.testing.assert_array_equal(checkpoint.load_policy(tmp_path / "p")(obs), policy(obs))
    assert [p.name for p in tmp_path.iterdir()] == ["p"]
    (tmp_path / "p").write_bytes(b"nonsense")
    for name in ("p", "q"):
        with pytest.raises(CheckpointError, match=f"/{name} cannot be read"):
            checkpoint.load_policy(tmp_path / name)
    checkpoint.save_policy(tmp_path / "none", ActingPolicy([]))
    with pytest.raises(CheckpointError, match="holds no policy"):
        checkpoint.load_policy(tmp_path / "none")


def test_no_source_file_runs_what_it_reads() -> None:
    forbidden = re.compile(r"\b(c?pickle|dill|joblib|marshal|shelve|allow_pickle)\b|(?<![\w.])(eval|exec)\(")
    sources = list(Path(m2ac.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    for source in sources:
        code = "\n".join(line.split("#")[0] for line in source.read_text(encoding="utf-8").splitlines())
        assert not forbidden.search(code), source
