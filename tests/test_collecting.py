"""Run directories read for a report."""

import json
import shlex

import pytest

from m2ac.cli.parsing import parse
from m2ac.config import ASKED, RunConfig
from m2ac.learner_config import PPOConfig
from m2ac.model_config import ModelConfig
from m2ac.resolving import resolve
from m2ac.runs.collecting import collect, find_runs, read_record
from m2ac.settings import ConfigError, to_dict


def make_run(path, **settings):
    """A run directory as `m2ac train` leaves it, as far as a report reads it."""
    asked = RunConfig(**{"env": "HalfCheetah-v5", "steps": 1000, **settings})
    config = resolve(asked, {"sac.target_entropy": -3.0}, action_dim=6, steps=asked.steps)
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(to_dict(config) | {ASKED: to_dict(asked)}))
    (path / "environment.json").write_text('{"python": "3.11"}')
    (path / "metrics.jsonl").write_text('{"step": 500}\n{"step": 750}\n{"st')
    (path / "evals.csv").write_text("step,episode,seed,return,length,seconds\n500,0,7,1.5,1000,3.0\n")
    return path


def test_a_run_is_read_with_what_sets_it_apart(tmp_path):
    from m2ac import MaskConfig

    record = read_record(make_run(tmp_path / "a", horizon=4, seed=3, mask=MaskConfig(rate=0.25), eval_every=100))
    assert (record.env, record.algo, record.horizon, record.seed) == ("HalfCheetah-v5", "m2ac", 4, 3)
    assert record.settings == "mask.rate=0.25"  # how often it is looked at changes nothing of a run
    assert record.command == (
        "m2ac train --env HalfCheetah-v5 --algo m2ac --horizon 4 --seed 3 --steps 1000 --mask.rate 0.25 "
        "--eval-every 100"
    )
    assert record.state == "unfinished"
    assert [row["step"] for row in record.metrics] == [500, 750]
    assert record.evals[0]["return"] == 1.5
    assert record.environment == {"python": "3.11"}


def test_what_a_task_or_a_default_gives_is_nothing_that_was_asked_for(tmp_path):
    assert read_record(make_run(tmp_path / "a", algo="sac")).settings == ""
    assert read_record(make_run(tmp_path / "b", algo="mbpo", horizon=1)).settings == ""


def test_runs_with_and_without_scaled_targets_are_told_apart_and_like_ones_of_two_versions_are_not(tmp_path):
    scaled = make_run(tmp_path / "a", model=ModelConfig(scale_targets=True))
    assert read_record(scaled).settings == "model.scale_targets=True"
    unlike = "model.min_log_variance=-10.0"
    unlike_now = {"Walker2d": "", "HalfCheetah-v5": unlike, "Reacher-v5": f"{unlike} model.scale_targets=False"}
    for env, settings in unlike_now.items():
        path = make_run(tmp_path / env, env=env, model=ModelConfig(scale_targets=False, min_log_variance=-10.0))
        written = json.loads((path / "config.json").read_text())
        for model in (written["model"], written[ASKED]["model"]):  # as they were before there was such a setting
            del model["scale_targets"]
        (path / "config.json").write_text(json.dumps(written))
        assert read_record(path).settings == settings


@pytest.mark.parametrize(
    ("settings", "typed"),
    [
        ({"updates_per_step": 5}, "--updates-per-step 5"),
        ({"algo": "ppo", "ppo": PPOConfig(rollout=128, standardise=False)}, "--ppo.rollout 128 --ppo.no-standardise"),
        ({"scale_observations": True}, "--scale-observations True"),
        ({"tensorboard": False}, "--steps 1000"),  # which changes nothing of a run
    ],
)
def test_the_command_of_a_run_makes_it_again(tmp_path, settings, typed):
    record = read_record(make_run(tmp_path / "a", **settings))
    assert record.command.endswith(typed)
    again = parse(RunConfig, shlex.split(record.command)[2:], "m2ac train")
    resolved = to_dict(resolve(again, {"sac.target_entropy": -3.0}, action_dim=6, steps=1000))
    assert {name for name in record.config if resolved[name] != record.config[name]} <= {"tensorboard"}


def test_a_configuration_without_steps_is_read(tmp_path):
    run = make_run(tmp_path / "a")
    (run / "config.json").write_text('{"env": "HalfCheetah-v5", "algo": "sac"}')
    assert read_record(run).steps == 0


def test_runs_are_found_at_any_depth_once_and_not_inside_each_other(tmp_path):
    make_run(tmp_path / "x" / "b")
    make_run(tmp_path / "a")
    (tmp_path / "a" / "checkpoints" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "checkpoints" / "deep" / "config.json").touch()
    assert find_runs([tmp_path, tmp_path / "x"]) == [tmp_path / "a", tmp_path / "x" / "b"]
    assert [record.name for record in collect([tmp_path], warn=pytest.fail)] == ["a", "x/b"]
    with pytest.raises(ConfigError, match="is not a directory; give run directories"):
        find_runs([tmp_path / "nothing"])


def test_what_all_runs_of_an_algorithm_share_is_told_once(tmp_path):
    from m2ac import MaskConfig

    make_run(tmp_path / "a", updates_per_step=5)
    make_run(tmp_path / "b", updates_per_step=5, mask=MaskConfig(rate=0.5))
    make_run(tmp_path / "c", algo="sac", updates_per_step=2)
    a, b, c = collect([tmp_path], warn=pytest.fail)
    assert (a.settings, a.shared) == ("", "updates_per_step=5")
    assert (b.settings, b.shared) == ("mask.rate=0.5", "updates_per_step=5")
    assert (c.settings, c.shared) == ("updates_per_step=2", "")


def test_runs_of_different_lengths_are_told_apart_where_nothing_else_does(tmp_path):
    make_run(tmp_path / "a", seed=0)
    make_run(tmp_path / "b", seed=1, steps=2000)
    make_run(tmp_path / "c", algo="sac", steps=3000)
    assert [record.settings for record in collect([tmp_path], warn=pytest.fail)] == ["steps=1000", "steps=2000", ""]


def test_a_log_that_no_run_writes_does_not_fill_the_memory(tmp_path):
    with open(make_run(tmp_path / "a") / "metrics.jsonl", "ab") as file:
        file.truncate(2**40)
    told = []
    assert collect([tmp_path], warn=told.append) == []
    assert "1099511627776 bytes" in told[0]


def test_one_damaged_run_does_not_hide_the_others(tmp_path):
    make_run(tmp_path / "a")
    (make_run(tmp_path / "b") / "config.json").write_text("{")
    (make_run(tmp_path / "c") / "evals.csv").write_text("step,episode,seed,return,length,seconds\nwhat\n")
    told = []
    assert [record.name for record in collect([tmp_path], warn=told.append)] == ["a"]
    assert len(told) == 2
    assert "b/config.json" in told[0]
    assert "evals.csv line 2" in told[1]
