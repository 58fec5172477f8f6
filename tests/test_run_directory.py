"""A run's files: what is written is read back, and nothing half-written ever is."""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from m2ac.config import LIVE, RunConfig
from m2ac.model_config import MaskConfig, ModelConfig
from m2ac.runs.directory import EvalRow, Logged, RunDirectory, default_out, lengthen, longer
from m2ac.runs.disk import DiskError, plain
from m2ac.runs.environment import cpu_model, git_state
from m2ac.runs.tensorboard import TensorBoard
from m2ac.settings import ConfigError, override, to_dict


def row(step: int, value: float = -1.5) -> EvalRow:
    return {"step": step, "episode": 0, "seed": 7, "return": value, "length": 200, "seconds": 0.25}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    made = RunDirectory.open(tmp_path / "run", RunConfig(steps=3000))
    yield made
    made.close()


def test_a_new_run_has_its_configuration_its_environment_and_a_place_for_checkpoints(run: RunDirectory):
    assert json.loads((run.path / "config.json").read_text())["steps"] == 3000
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["python"] == sys.version.split()[0]
    assert environment["packages"]["numpy"] == np.__version__
    assert set(environment["packages"]) == {*("m2ac", "jax", "jaxlib", "numpy", "optax", "gymnasium", "mujoco")}
    assert environment["command"] == [Path(sys.argv[0]).name, *sys.argv[1:]]
    assert environment["cores"] == os.cpu_count()
    assert environment["earlier"] == []
    assert run.checkpoints.is_dir()
    assert RunDirectory.read(run.path).config == RunConfig(steps=3000)


def test_two_generations_of_processors_that_share_a_name_are_told_apart(tmp_path: Path):
    core = "processor\t: 0\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: AMD EPYC\n\n"
    older, newer, arm = tmp_path / "older", tmp_path / "newer", tmp_path / "arm"
    older.write_text(core.format(23, 49) * 2)
    newer.write_text(core.format(26, 2) * 2)
    arm.write_text("processor\t: 0\nCPU part\t: 0xd0c\n")
    assert cpu_model(older) == "AMD EPYC, family 23, model 49"
    assert cpu_model(newer) == "AMD EPYC, family 26, model 2"
    assert cpu_model(arm) == cpu_model(tmp_path / "none") == (platform.processor() or None)


def test_opening_again_elsewhere_and_without_tensorboard_is_the_same_run(run: RunDirectory):
    run.close()
    again = RunDirectory.open(run.path, RunConfig(steps=3000, out="elsewhere", tensorboard=False))
    assert again.config.tensorboard is False


@pytest.mark.parametrize(
    ("capacity", "after"), [(3000, 5000), (3500, 5500), (1000, 1000), (999_999, 1_000_000), (2_000_000, 2_000_000)]
)
def test_a_longer_run_keeps_what_was_asked_and_a_buffer_that_held_every_step(tmp_path: Path, capacity: int, after: int):
    config = override(RunConfig(), {"steps": 3000, "replay": {"capacity": capacity}})
    RunDirectory.open(tmp_path, config, asked=RunConfig(steps=3000)).close()
    for _ in range(2):
        lengthen(tmp_path, longer(RunDirectory.read(tmp_path).config, 5000))
        assert RunDirectory.read(tmp_path).config == override(config, {"steps": 5000, "replay": {"capacity": after}})
    asked = json.loads((tmp_path / "config.json").read_text())["asked"]
    assert asked == json.loads(json.dumps(to_dict(RunConfig(steps=5000))))


def test_a_run_is_not_made_shorter_nor_longer_while_it_is_trained(run: RunDirectory):
    with pytest.raises(ConfigError, match=r"steps must be at least the 3000 of the run .*, got 2999"):
        longer(run.config, 2999)
    with pytest.raises(ConfigError, match="another process is training"):
        lengthen(run.path, longer(run.config, 3001))
    assert RunDirectory.read(run.path).config.steps == 3000


def test_a_longer_run_in_the_same_place_is_told_how_to_get_there(run: RunDirectory):
    run.close()
    with pytest.raises(ConfigError, match=r"m2ac resume \S+ --steps 3001 goes on with it, or choose another --out"):
        RunDirectory.open(run.path, RunConfig(steps=3001, random_steps=600))  # of which a fifth is the default
    with pytest.raises(
        ConfigError, match="seed is 0 there and 1 here, steps is 3000 there and 3001 here; choose another --out"
    ):
        RunDirectory.open(run.path, RunConfig(steps=3001, seed=1))
    config = run.path / "config.json"
    config.write_text(config.read_text().replace(RunConfig().env, LIVE))
    with pytest.raises(ConfigError, match="3000 there and 3001 here; choose another --out"):
        RunDirectory.open(run.path, RunConfig(env=LIVE, steps=3001))


def test_another_command_keeps_the_earlier_one_on_record(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    run.close()
    before = [Path(sys.argv[0]).name, *sys.argv[1:]]
    monkeypatch.setattr(sys, "argv", ["m2ac", "resume", "run"])
    for _ in range(2):
        RunDirectory.open(run.path, run.config).close()
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["command"] == ["m2ac", "resume", "run"]
    assert [place["command"] for place in environment["earlier"]] == [before]


def test_other_settings_are_refused_and_each_is_named_with_both_values(run: RunDirectory):
    with pytest.raises(ConfigError) as error:
        RunDirectory.open(run.path, RunConfig(steps=4000, mask=MaskConfig(rate=0.25)))
    assert str(error.value) == (
        f"{str(run.path)!r} holds a run with other settings: mask.rate is 'paper' there and 0.25 here, "
        "steps is 3000 there and 4000 here; choose another --out or delete the directory"
    )
    assert RunDirectory.read(run.path).config.steps == 3000


@pytest.mark.parametrize("env", ["Reacher-v5", LIVE])
def test_what_was_left_open_and_came_to_something_else_in_an_earlier_version_says_how_to_go_on(env, tmp_path: Path):
    asked = RunConfig(env=env, steps=3000)
    before, now = (replace(asked, model=ModelConfig(min_log_variance=lowest)) for lowest in (-10.0, -4.0))
    RunDirectory.open(tmp_path / "run", before, asked=asked).close()
    remedy = "set model.min_log_variance=-10.0 to" if env == LIVE else f"m2ac resume {tmp_path / 'run'} goes on"
    with pytest.raises(ConfigError, match=f"-10.0 there and -4.0 here; {remedy}"):
        RunDirectory.open(tmp_path / "run", now, asked=asked)
    with pytest.raises(ConfigError, match=r"-4\.0 here; choose another"):
        RunDirectory.open(tmp_path / "run", now, asked=now)


def test_a_directory_without_a_configuration_is_not_a_run(tmp_path: Path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match=r"is not a run directory: .* give a directory that m2ac train"):
            RunDirectory.read(path)


@pytest.mark.parametrize("text", ["{", "", "\xff", "[" * 100_000])
def test_a_configuration_that_is_no_json_is_named_with_the_remedy(run: RunDirectory, text: str):
    (run.path / "config.json").write_bytes(text.encode("latin-1"))
    for use in (RunDirectory.read, lambda path: RunDirectory.open(path, run.config)):
        with pytest.raises(ConfigError, match=r"config\.json.*restore the file or choose another --out"):
            use(run.path)


@pytest.mark.parametrize(
    ("text", "reason"), [("[]", "group of settings"), ('{"stepz": 1}', 'Perhaps you meant "steps"')]
)
def test_a_configuration_of_another_version_says_what_does_not_fit(run: RunDirectory, text: str, reason: str):
    (run.path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=f"does not fit this version of m2ac: .*{reason}"):
        RunDirectory.read(run.path)


def test_logs_without_a_configuration_are_not_continued(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"has metrics\.jsonl but no config\.json; choose another --out"):
        RunDirectory.open(tmp_path, RunConfig())
    assert os.listdir(tmp_path) == ["metrics.jsonl"]


def test_a_file_in_the_way_is_reported(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write the run directory .*: File exists; choose another --out"):
        RunDirectory.open(tmp_path / "file", RunConfig())


def test_user_text_is_escaped_and_comes_back(tmp_path: Path):
    config = RunConfig(env='a"\n\x1b[31mü-v0', out="ö")
    run = RunDirectory.open(tmp_path / "run", config)
    text = (run.path / "config.json").read_text(encoding="ascii")
    assert r"a\"\n\u001b[31m\u00fc-v0" in text
    assert RunDirectory.read(run.path).config == config


def test_numbers_that_are_not_finite_become_null(run: RunDirectory):
    run.append_metrics({"step": np.int64(5), "a": math.nan, "b": [np.float32(math.inf), np.array([1.5, -math.inf])]})
    assert run.metrics.read_text() == '{"step": 5, "a": null, "b": [null, [1.5, null]]}\n'
    run.mark_done({"mean_return": math.nan, "episodes": (1, 2)})
    assert json.loads((run.path / "DONE").read_text()) == {"mean_return": None, "episodes": [1, 2]}


def test_what_json_does_not_know_is_an_error():
    with pytest.raises(TypeError, match="set has no place in JSON"):
        plain({"a": {1}})


@pytest.mark.parametrize("metrics", [{"loss": 1.0}, {"step": 1.5}])
def test_metrics_need_a_whole_step(run: RunDirectory, metrics: dict[str, float]):
    with pytest.raises(ValueError, match='need a whole number "step"'):
        run.append_metrics(metrics)


def test_a_run_is_done_once_marked(run: RunDirectory):
    assert not run.done
    run.mark_done({})
    assert run.done
    assert RunDirectory.read(run.path).done


def test_evaluations_have_exactly_the_promised_columns_and_come_back(run: RunDirectory):
    assert run.read_evals() == []
    run.append_evals([row(1000, 0.1 + 0.2), row(1000)])
    run.append_evals([row(2000)])
    assert run.evals.read_text() == (
        "step,episode,seed,return,length,seconds\n"
        "1000,0,7,0.30000000000000004,200,0.25\n1000,0,7,-1.5,200,0.25\n2000,0,7,-1.5,200,0.25\n"
    )
    assert run.read_evals() == [row(1000, 0.1 + 0.2), row(1000), row(2000)]


def test_a_torn_last_line_is_not_read_and_the_next_one_does_not_grow_onto_it(run: RunDirectory):
    run.append_metrics({"step": 1})
    run.append_evals([row(1)])
    for file, torn in ((run.metrics, '{"step": 2'), (run.evals, "2,0,7,-15")):
        file.write_text(file.read_text() + torn)
    assert run.read_metrics() == [{"step": 1}]
    assert run.read_evals() == [row(1)]
    run.append_metrics({"step": 3})
    run.append_evals([row(3)])
    assert run.read_metrics() == [{"step": 1}, {"step": 3}]
    assert run.read_evals() == [row(1), row(3)]


def test_a_torn_header_is_written_anew(run: RunDirectory):
    run.evals.write_text("step,epi")
    run.append_evals([row(1)])
    assert run.read_evals() == [row(1)]


def test_a_line_separator_inside_text_does_not_split_a_line(run: RunDirectory):
    run.metrics.write_text('{"step": 1, "note": "a\u2028b\x85c"}\n', encoding="utf-8")
    assert run.read_metrics() == [{"step": 1, "note": "a\u2028b\x85c"}]


def test_cutting_back_keeps_what_was_logged_before_the_checkpoint_and_drops_a_torn_end(run: RunDirectory):
    for step in (0, 500):
        run.append_metrics({"step": step, "loss": 0.1})
        run.append_evals([row(step), row(step)])
    at_checkpoint = run.logged()
    assert at_checkpoint == Logged(metrics=2, evals=4)
    run.append_metrics({"step": 500})  # of the same step, but logged after it
    run.append_evals([row(500)])
    run.metrics.write_text(run.metrics.read_text() + '{"st')
    run.evals.write_text(run.evals.read_text() + "10")
    assert run.cut_back(at_checkpoint)
    assert run.metrics.read_text() == '{"step": 0, "loss": 0.1}\n{"step": 500, "loss": 0.1}\n'
    assert [line["step"] for line in run.read_evals()] == [0, 0, 500, 500]
    assert run.logged() == at_checkpoint
    assert not list(run.path.glob(".*"))
    run.append_metrics({"step": 501})
    assert run.logged() == Logged(metrics=3, evals=4)


def test_logs_that_have_lost_lines_are_told_apart(run: RunDirectory):
    run.append_metrics({"step": 1})
    assert not run.cut_back(Logged(metrics=2, evals=0))
    assert run.logged() == Logged(metrics=1, evals=0)
    assert run.cut_back(Logged(metrics=0, evals=0))
    assert run.read_metrics() == run.read_evals() == []


@pytest.mark.parametrize("name", ["metrics.jsonl", "evals.csv", "config.json", "lock", "DONE"])
def test_no_link_is_followed_to_a_file_outside(run: RunDirectory, tmp_path: Path, name: str):
    run.close()
    outside = tmp_path / "thesis"
    outside.write_text("years of work")
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(outside)

    def use() -> None:
        again = RunDirectory.open(run.path, run.config)
        try:
            again.append_metrics({"step": 1})
            again.append_evals([row(1)])
            again.mark_done({})
        finally:
            again.close()

    if name == "DONE":  # replaced, not written to
        use()
        assert not (run.path / name).is_symlink()
    else:
        with pytest.raises((ConfigError, DiskError), match="symbolic link"):
            use()
    assert outside.read_text() == "years of work"


def test_a_bad_line_before_the_end_is_named(run: RunDirectory):
    run.metrics.write_text('{"step": 1}\nnonsense\n{"step": 3}\n')
    run.evals.write_text("step,episode,seed,return,length,seconds\n1,2\n")
    with pytest.raises(ConfigError, match=r"metrics\.jsonl line 2 cannot be read .*'nonsense'; delete it"):
        run.read_metrics()
    with pytest.raises(ConfigError, match=r"evals\.csv line 2 cannot be read"):
        run.read_evals()


def test_the_default_directory_names_task_algorithm_horizon_and_seed():
    assert default_out(RunConfig(env="HalfCheetah-v5", horizon=8, seed=3)) == "runs/HalfCheetah-v5-m2ac-h8-s3"
    assert default_out(RunConfig(env="my.tasks:../Örm $x-v0", algo="sac")) == "runs/my.tasks-..--rm--x-v0-sac-s0"


def test_git_state_tells_a_clean_tree_from_a_changed_one(tmp_path: Path):
    assert git_state(tmp_path) is None
    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "m"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    state = git_state(tmp_path)
    assert state is not None
    assert len(state["commit"]) == 40
    assert state["dirty"] is False
    (tmp_path / "new").write_text("")
    assert git_state(tmp_path) == {**state, "dirty": True}


def test_configuration_written_is_the_whole_configuration(run: RunDirectory):
    assert json.loads((run.path / "config.json").read_text()) == plain(to_dict(run.config))


def test_tensorboard_writes_finite_numbers_only_and_nothing_before_the_first(tmp_path: Path):
    board = TensorBoard(tmp_path / "tb", from_step=11)
    board.write(1, {"step": 1, "phase": "fitting", "model/holdout_loss": math.nan})
    board.close()
    assert not (tmp_path / "tb").exists()
    board.write(12, {"model/holdout_loss": 0.5, "phase": "fitting", "count": 3})
    board.close()
    (file,) = (tmp_path / "tb").iterdir()
    content = file.read_bytes()
    assert b"model/holdout_loss" in content
    assert b"count" in content
    assert b"phase" not in content


def test_importing_the_run_files_costs_no_jax():
    modules = "m2ac.runs.directory, m2ac.runs.tensorboard, m2ac.runs.display"
    code = f"import sys, {modules}; print([m for m in ('jax', 'rich', 'tensorboardX', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_two_processes_cannot_train_in_one_directory(run: RunDirectory):
    with pytest.raises(ConfigError, match=r"another process is training in .* choose another --out"):
        RunDirectory.open(run.path, run.config)
    run.close()
    RunDirectory.open(run.path, run.config).close()
