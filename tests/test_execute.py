"""A run that is stopped, or whose disk fails, goes on as if nothing had been."""

import errno
import io
import os
import shutil
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import gymnasium as gym
import numpy as np
import pytest
from tiny import tiny

from m2ac.config import RunConfig
from m2ac.envs.world import World
from m2ac.runs import checkpoint, disk
from m2ac.runs.directory import RunDirectory, longer
from m2ac.runs.execute import execute
from m2ac.runs.policy import BEST, read_evaluated
from m2ac.runs.tensorboard import TensorBoard
from m2ac.settings import UserError, override


class Doorbell(gym.Env[Any, Any]):
    """Someone rings in the middle of an evaluation, as often as `rings` says; its resets have odd seeds."""

    observation_space = gym.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    rings: ClassVar[int] = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.evaluating = 0, seed % 2 == 1
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.evaluating and self.steps == 3 and Doorbell.rings > 0:
            Doorbell.rings -= 1
            signal.raise_signal(signal.SIGTERM)
        obs = self.np_random.normal(size=2).astype(np.float32)
        return obs, float(action[0]), False, self.steps == 10, {}


gym.register("Doorbell-v0", entry_point=Doorbell)

SETTINGS = {**tiny("sac"), "algo": "sac", "env": "Doorbell-v0", "steps": 60, "random_steps": 20, "eval_every": 10}
SETTINGS |= {"eval_episodes": 1, "final_episodes": 1, "model_every": 15, "tensorboard": False}


def run(out: Path, **more: Any) -> Any:
    said = io.StringIO()
    return execute(override(RunConfig(), {**SETTINGS, "out": str(out), **more}), stream=said)


def left_by(out: Path) -> tuple[str, list[Any], list[Any]]:
    found = checkpoint.load_newest(out / "checkpoints", warn=print)
    assert found is not None
    directory = RunDirectory.read(out)
    evals = [{**row, "seconds": 0} for row in directory.read_evals()]
    told = [{k: v for k, v in row.items() if "/" not in k or k.startswith("sac/")} for row in directory.read_metrics()]
    return checkpoint.fingerprint(found.state), evals, [{**row, "seconds": 0} for row in told]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Any], list[Any]]:
    out = tmp_path_factory.mktemp("whole") / "run"
    assert run(out).finished
    return left_by(out)


def test_a_run_stopped_again_and_again_in_its_evaluations_plays_them_of_the_same_policies(
    whole: Any, tmp_path: Path
) -> None:
    stops = 0
    while True:
        Doorbell.rings = 2 if stops == 0 else 1 if stops < 8 else 0  # twice in the first evaluation
        ended = run(tmp_path / "run")
        Doorbell.rings = 0
        if ended.finished:
            break
        stops += 1
        assert ended.signal == signal.SIGTERM
    assert stops == 8
    assert left_by(tmp_path / "run") == whole


class Full:
    """The module `os` on a disk that fails at the nth write, and at no other."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __getattr__(self, name: str) -> Any:
        return self.write if name == "write" else getattr(os, name)

    def write(self, descriptor: int, data: Any) -> int:
        self.at -= 1
        if self.at == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data)


def test_a_finished_run_made_longer_is_the_longer_run(whole: Any, tmp_path: Path) -> None:
    """Of SAC to the last bit: nothing that it draws depends on how many steps are to come."""
    assert run(tmp_path, steps=50).finished  # a whole number of cycles, or the metrics of one come in two parts
    summary = (tmp_path / "DONE").read_bytes()
    more = longer(replace(RunDirectory.read(tmp_path).config, out=str(tmp_path)), 60)
    assert (more.steps, more.replay.capacity) == (60, 60)
    assert execute(more, stream=io.StringIO(), lengthens=True).step == 60
    assert (tmp_path / "DONE-50").read_bytes() == summary
    assert left_by(tmp_path) == whole


def test_the_best_policy_is_that_of_the_best_evaluation_also_where_the_log_no_longer_has_it(tmp_path: Path) -> None:
    """The last evaluation of a finished run is cut when it goes on to more steps; its policy is still the best."""
    play, scores = World.play, iter([1.0, 3.0, 2.0, 0.0, 9.0, 5.0])

    def as_told(*args: Any) -> Any:
        return play(*args)._replace(total=next(scores))

    with mock.patch.object(World, "play", as_told):
        assert run(tmp_path, steps=55).finished
        assert read_evaluated(tmp_path / BEST) == (55, 9.0)
        best = (tmp_path / BEST).read_bytes()
        more = longer(replace(RunDirectory.read(tmp_path).config, out=str(tmp_path)), 60)
        assert execute(more, stream=io.StringIO(), lengthens=True).step == 60
    assert [row["return"] for row in RunDirectory.read(tmp_path).read_evals()] == [1.0, 3.0, 2.0, 0.0, 5.0]
    assert (tmp_path / BEST).read_bytes() == best


def test_a_run_that_begins_again_has_no_best_policy_of_its_first_life(tmp_path: Path) -> None:
    assert run(tmp_path).finished
    (tmp_path / "DONE").unlink()
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / BEST).write_bytes(b"damaged")
    Doorbell.rings = 1
    assert not run(tmp_path).finished
    Doorbell.rings = 0
    assert not (tmp_path / BEST).exists()
    assert run(tmp_path).finished
    found = read_evaluated(tmp_path / BEST)
    assert found is not None
    assert found.mean_return == max(row["return"] for row in RunDirectory.read(tmp_path).read_evals())


def test_a_finished_run_that_cannot_go_on_is_left_as_it_is(tmp_path: Path) -> None:
    assert run(tmp_path, steps=50).finished
    more = longer(replace(RunDirectory.read(tmp_path).config, out=str(tmp_path)), 60)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(UserError, match="no environment"):
        execute(replace(more, env="NowhereAtAll-v0"), stream=io.StringIO(), lengthens=True)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(UserError, match="has no checkpoint to go on from; train a new one with another --out"):
        execute(more, stream=io.StringIO(), lengthens=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_run_whose_disk_was_full_once_ends_as_if_it_had_not_been(whole: Any, tmp_path: Path) -> None:
    fails, at = 0, 1
    while True:
        out = tmp_path / str(at)
        told = None
        try:
            with mock.patch.object(disk, "os", Full(at)):
                run(out, checkpoint_every=20)
        except UserError as error:
            told = str(error)
        if told is None:
            break
        fails += 1
        remedy = "make room there" if at > 1 else "choose another --out"  # the first is of a run that is none yet
        assert f"No space left on device; {remedy}" in told
        assert run(out, checkpoint_every=20).finished
        assert left_by(out) == whole, at
        at += 23
    assert fails > 3


def test_a_full_disk_ends_the_curves_and_not_the_run(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "tb")
    board.write(1, {"a": 1.0})
    board._writer.file_writer.event_writer._worker.is_alive = lambda: False
    with pytest.warns(UserWarning, match=r"cannot write .*tb: the disk may be full; the run goes on without Tensor"):
        board.write(2, {"a": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        board.write(3, {"a": 1.0})
        board.close()


def test_another_machine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = RunDirectory.open(tmp_path / "run", RunConfig())
    first.close()
    assert first.differences == []
    monkeypatch.setattr("m2ac.runs.environment.cpu_model", lambda: "abacus")
    second = RunDirectory.open(tmp_path / "run", RunConfig())
    second.close()
    (told,) = second.differences
    assert told.startswith("the processor was ")
    assert told.endswith(" and is 'abacus'")


def test_a_damaged_newer_checkpoint_is_put_out_of_the_way(tmp_path: Path) -> None:
    out = tmp_path / "run"
    Doorbell.rings = 0
    run(out, checkpoint_every=15)
    (out / "DONE").unlink()
    newest = sorted((out / "checkpoints").iterdir())[-1]
    (newest / checkpoint.STATE).write_bytes(b"short")
    assert run(out, checkpoint_every=15).finished
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert names[0] == f"damaged-{newest.name}"
    assert names[-1] == newest.name
