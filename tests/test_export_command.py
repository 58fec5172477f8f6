"""`m2ac export`: all files of an export or none, what is refused, what is printed."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_policies import a_policy, a_run

from m2ac.cli import main
from m2ac.deploy import stablehlo
from m2ac.deploy.formats import FILES
from m2ac.runs import disk
from m2ac.runs.policy import Evaluated, save_policy

ALL = tuple(FILES)


# All or nothing


def listing(folder: Path) -> dict[str, bytes]:
    """Every file below, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("earlier", [False, True])
def test_a_mismatch_ends_with_code_1_and_leaves_what_was_there(
    earlier: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path / "run")
    if earlier:
        assert main(["export", str(run), "--formats", "numpy"]) == 0
    before = listing(tmp_path)
    right = stablehlo.acting

    def off(data: bytes) -> Callable[[Any], Any]:
        act = right(data)
        return lambda obs: act(obs) + np.float32(1e-3)

    monkeypatch.setattr(stablehlo, "acting", off)
    capsys.readouterr()
    assert main(["export", str(run), "--formats", "numpy", "stablehlo"]) == 1
    assert "the stablehlo policy differs from the agent" in one_line(capsys)
    assert listing(tmp_path) == before


def test_a_disk_that_fails_amid_the_files_leaves_the_earlier_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path / "run")
    assert main(["export", str(run), "--formats", "numpy"]) == 0
    before = listing(tmp_path)
    write = disk.write_new

    def fails(path: Path, pieces: Any) -> None:
        if path.name == "README.md":
            raise OSError(28, "No space left on device")
        write(path, pieces)

    monkeypatch.setattr(disk, "write_new", fails)
    capsys.readouterr()
    assert main(["export", str(run), "--formats", "numpy"]) == 1
    assert "No space left on device; make room there" in one_line(capsys)
    assert listing(tmp_path) == before


def test_an_export_replaces_all_of_an_earlier_one(tmp_path: Path) -> None:
    run, out = a_run(tmp_path / "run"), tmp_path / "deep" / "out"
    assert main(["export", str(run), "--out", str(out), "--formats", "numpy", "stablehlo"]) == 0
    (out / "__pycache__").mkdir()
    assert main(["export", str(run), "--out", str(out), "--formats", "numpy"]) == 0
    assert {path.name for path in out.iterdir()} == {"README.md", "export.json", "policy.npz", "policy.py"}
    assert [path.name for path in out.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("theirs", ["notes.txt", "export.json", "policy.npz"])
def test_a_directory_of_the_user_is_left_alone(theirs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = a_run(tmp_path / "run"), tmp_path / "out"
    out.mkdir()
    (out / theirs).write_text("mine")
    assert main(["export", str(run), "--out", str(out)]) == 2
    assert "holds other things than an export" in one_line(capsys)
    assert listing(out) == {theirs: b"mine"}


def test_the_best_policy_is_exported_with_its_step_and_score(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    save_policy(run / "best_policy.safetensors", a_policy(sizes=(3, 1)), Evaluated(200, -2.0))
    assert main(["export", str(run), "--formats", "numpy", "--best"]) == 0
    record = json.loads((run / "export" / "export.json").read_text())
    assert (record["step"], record["mean_return"]) == (200, -2.0)
    assert "Its evaluation, the best of the run, at step 200" in (run / "export" / "README.md").read_text()


# What is refused


def test_a_run_without_an_evaluation_has_no_best_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(a_run(tmp_path / "run")), "--best"]) == 1
    assert "has no best_policy.safetensors: no evaluation has ended in it yet, or none since" in one_line(capsys)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--formats", "onx"], ['no format "onx"', 'Perhaps you meant "onnx"?']),
        (["--formats", "zip"], ['no format "zip"', "numpy, stablehlo, onnx"]),
        (["--formats"], ["at least one of numpy, stablehlo, onnx"]),
        (["--fromats", "numpy"], ["--formats"]),
    ],
)
def test_a_wrong_wish_ends_with_code_2_and_one_line(
    args: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path / "run")
    assert main(["export", str(run), *args]) == 2
    said = one_line(capsys)
    assert [word for word in words if word not in said] == []
    assert not (run / "export").exists()


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize("spoil", [Path.unlink, damaged])
def test_a_run_without_a_whole_policy_ends_with_code_1_and_one_line(
    spoil: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path / "run")
    spoil(run / "policy.safetensors")
    assert main(["export", str(run)]) == 1
    assert "policy.safetensors cannot be read" in one_line(capsys)
    assert not (run / "export").exists()


def test_a_policy_of_another_task_and_a_directory_that_is_no_run_are_refused_with_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(a_run(tmp_path / "run", sizes=(5, 2)))]) == 2
    assert "5 observations and 2 actions, but Pendulum-v1 has 3 and 1" in one_line(capsys)
    assert main(["export", str(tmp_path)]) == 2
    assert "is not a run directory" in one_line(capsys)


def test_a_run_whose_environment_is_code_is_not_exported_unless_the_user_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(a_run(tmp_path / "run", "nowhere_at_all:Id-v0"))]) == 2
    assert "add --env nowhere_at_all:Id-v0" in one_line(capsys)


def test_without_the_extra_onnx_is_refused_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", str(a_run(tmp_path / "run")), "--formats", "onnx"]) == 1
    assert "pip install 'm2ac[onnx]'" in one_line(capsys)


def test_what_is_printed_tells_the_difference_and_the_time_of_each_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(a_run(tmp_path / "run")), "--formats", *ALL]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(ALL)
    assert "largest difference 0.0e+00 of the action range, 0.0e+00 at extremes" in lines[0]
    assert all(re.search(r"one observation: median \d+ µs, 99% \d+ µs$", line) for line in lines)
    assert last == f"export: {tmp_path / 'run' / 'export'} (README.md says how to use it)"


def test_the_help_names_the_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--help"]) == 0
    said = capsys.readouterr().out
    assert [
        word for word in ("RUN", "--out", "--formats", "numpy", "stablehlo", "m2ac[onnx]") if word not in said
    ] == []
