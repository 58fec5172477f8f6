"""Hidden code in the files of a run: a short form of the campaign, and that the campaign notices code that runs."""

import json
from pathlib import Path

import leaky_cases
import pytest

from faults import payloads
from faults.boxed import judge_all
from m2ac.cli import main
from m2ac.cli.parsing import confirmed_env
from m2ac.runs.environment import git_state
from m2ac.settings import ConfigError


def test_no_payload_runs(tmp_path: Path) -> None:
    row = payloads.run(12, tmp_path)
    assert row.failures == []
    assert (row.property, row.tried, row.held) == (payloads.PROPERTY, 12, 12)


def test_there_are_enough_payloads_and_each_has_a_name_of_its_own() -> None:
    assert payloads.DEFAULT >= 60
    assert len(payloads.CASES) >= payloads.DEFAULT
    assert len({case.name for case in payloads.CASES}) == len(payloads.CASES)
    tried = " ".join(case.name for case in payloads.CASES[: payloads.DEFAULT])
    for file in payloads.FILES:
        assert file in tried


def test_the_campaign_notices_each_thing_that_must_not_happen_and_goes_on(tmp_path: Path) -> None:
    verdicts = judge_all("leaky_cases", range(len(leaky_cases.CASES)), tmp_path, seconds=3, needs_run=False)
    assert (verdicts[0], verdicts[-1]) == (None, None)
    for verdict, (_, said) in zip(verdicts[1:-1], leaky_cases.LEAKS, strict=True):
        assert verdict is not None
        assert said in verdict


def test_a_payload_would_run_if_it_were_unpickled(tmp_path: Path) -> None:
    import pickle

    marker = tmp_path / "ran"
    pickle.loads(payloads.WHOLE_FILES["a pickle of protocol 4"](marker))
    assert marker.exists()


# A file that names a module of code


def test_a_module_named_by_a_file_alone_is_not_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"env": "some_module_of_code:Id-v0"}))
    for args in (["eval", str(tmp_path)], ["train", "--config", str(tmp_path / "config.json")]):
        assert main(args) == 2
        said = capsys.readouterr().err
        assert "'some_module_of_code:Id-v0', for which a module of code would be imported" in said
        assert said.endswith("if you trust it, add --env some_module_of_code:Id-v0\n")


def test_a_module_that_the_command_names_too_is_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"env": "no_such_module:Id-v0"}))
    assert (
        main(["train", "--config", str(config), "--env", "no_such_module:Id-v0", "--out", str(tmp_path / "run")]) == 2
    )
    assert 'cannot import the module "no_such_module"' in capsys.readouterr().err
    assert confirmed_env("a:b-v0", "a:b-v0", where="the run") == "a:b-v0"


def test_what_needs_no_new_module_needs_no_confirmation() -> None:
    for env in ("Pendulum-v1", "m2ac/Hopper-v0", "sys:Id-v0"):
        assert confirmed_env(env, None, where="the run") == env


def test_another_environment_than_the_runs_is_refused_and_a_name_is_quoted_for_the_shell() -> None:
    with pytest.raises(ConfigError, match=r"the run has the environment 'A-v0', got --env 'B-v0'; leave it out"):
        confirmed_env("A-v0", "B-v0", where="the run")
    with pytest.raises(ConfigError, match=r"add --env 'x; rm -rf ~:Id-v0'$"):
        confirmed_env("x; rm -rf ~:Id-v0", None, where="the run")


def test_a_huge_file_of_settings_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", "/dev/zero"]) == 2
    assert "has more than 1048576 bytes; give the config.json of a run" in capsys.readouterr().err


def test_a_repository_with_filters_of_its_own_still_tells_its_commit(tmp_path: Path) -> None:
    import subprocess

    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    for command in (
        ["init", "-q"],
        [*identity, "commit", "-q", "--allow-empty", "-m", "m"],
        ["config", "filter.lfs.clean", "false"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    state = git_state(tmp_path)
    assert state is not None
    assert (len(state["commit"]), state["dirty"]) == (40, None)


def test_tensorboard_refuses_a_link_in_its_place(tmp_path: Path) -> None:
    from m2ac.runs.tensorboard import TensorBoard

    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tensorboard").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"must be a directory and no link; delete it, or use --no-tensorboard"):
        TensorBoard(tmp_path / "tensorboard")
