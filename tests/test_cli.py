"""The command line: what it refuses and how, what a run leaves behind, and how it is stopped and continued."""

import csv
import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from test_config import leaves, value_of
from tiny import arguments, tiny

from m2ac.cli import main
from m2ac.cli.parsing import parse, with_config_file
from m2ac.config import RunConfig
from m2ac.envs import TASKS, make_env
from m2ac.envs.world import World
from m2ac.runs.directory import RunDirectory
from m2ac.runs.policy import policy_of_run
from m2ac.settings import override, to_dict

COMMAND = str(Path(sys.executable).with_name("m2ac"))
TINY = arguments(tiny("m2ac"))
SHORT = [*TINY, "--steps", "100", "--eval-every", "25", "--eval-episodes", "2", "--final-episodes", "3"]
LONG = [*TINY, "--steps", "600", "--eval-every", "300", "--eval-episodes", "1", "--final-episodes", "1"]


def start(*args: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen(
        [COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


# Help


@pytest.mark.parametrize("command", [[COMMAND], [sys.executable, "-m", "m2ac"]], ids=["m2ac", "python -m m2ac"])
def test_help_answers_at_once(command: list[str]) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.7
    assert "m2ac train [--env ID]" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("args", [["--help"], ["train", "--help"], ["eval", "--help"], ["train", "--steps", "-1"]])
def test_neither_help_nor_a_refusal_imports_jax(args: list[str]) -> None:
    code = (
        "import sys; from m2ac.cli import main; main(sys.argv[1:]);"
        "sys.exit(any(name in sys.modules for name in ('jax', 'jaxlib', 'gymnasium', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code, *args], capture_output=True).returncode == 0


@pytest.mark.parametrize("args", [[], ["-h"], ["help"], ["train", "-h"], ["eval", "-h"], ["envs", "-h"], ["--version"]])
def test_asking_for_help_is_no_error(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 0
    out, err = capsys.readouterr()
    assert "m2ac" in out or args == ["--version"]
    assert err == ""


def test_the_help_of_train_explains_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    said = capsys.readouterr().out
    for name in leaves(RunConfig):
        assert f"--{name.replace('_', '-')}" in said
    assert "--config FILE" in said


def test_envs_lists_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(TASKS)]] == list(TASKS)
    assert "Any other id works" in lines[-1]


# Refusals

STRANGE = ["train", "--algo", "sac", "--steps", "60", "--random-steps", "20", "--env"]
REFUSED: list[tuple[list[str], list[str]]] = [
    (["trian"], ['no command "trian"', 'Perhaps you meant "train"?', "m2ac --help"]),
    (["train", "--env", "HalfCheeta-v5"], ['"HalfCheeta-v5"', 'Perhaps you meant "HalfCheetah-v5"?', "m2ac envs"]),
    (["train", "--env", ""], ["env", "empty", "m2ac envs"]),
    (["train", "--env", "CartPole-v1"], ["Discrete(2)", "another library"]),
    (["train", "--env", "nowhere_to_be_found:Id-v0"], ["nowhere_to_be_found", "PYTHONPATH"]),
    (["train", "--env", "strange_envs:Plane-v0"], ['Perhaps you meant "strange_envs:Plain-v0"?']),
    (["train", "--env", "strange_envs:DictView-v0"], ["Dict(", "FlattenObservation"]),
    (["train", "--env", "strange_envs:NoMotor-v0"], ["Box(-inf, inf", "declare finite bounds"]),
    ([*STRANGE, "strange_envs:NaNAtFirst-v0"], ["observation[1] is nan", "episode 0", "reset", "must return finite"]),
    ([*STRANGE, "strange_envs:NaNAtFirstChecked-v0"], ["observation[1] is nan", "must return finite"]),
    ([*STRANGE, "strange_envs:WrongShape-v0"], ["shape (3,)", "(2,)", "of the declared shape"]),
    ([*STRANGE, "strange_envs:Ragged-v0"], ["observation is [0.0, [1.0]]", "an array of 2 numbers"]),
    ([*STRANGE, "strange_envs:OldReset-v0"], ["reset returned", "(observation, info)"]),
    ([*STRANGE, "strange_envs:OldStep-v0"], ["step returned", "(observation, reward, terminated, truncated, info)"]),
    ([*STRANGE, "strange_envs:NaNRewardLater-v0"], ["reward is nan", "step 7", "must return finite"]),
    ([*STRANGE, "strange_envs:HugeReward-v0"], ["reward is 1e+39", "step 1", "at most 3.4e+38"]),
    ([*STRANGE, "strange_envs:TextReward-v0"], ["reward is 'much'", "step 1", "finite numbers"]),
    (["train", "--mask.rate", "1.5"], ["mask.rate", "got 1.5", "use 1"]),
    (["train", "--mask.rate", "0"], ["mask.rate", "got 0", "use 1"]),
    (["train", "--mask.rate", "nan"], ["mask.rate", "got nan", "finite"]),
    (["train", "--mask.rate", "papr"], ["--mask.rate", "papr"]),
    (["train", "--horizon", "0"], ["horizon", "got 0", "--algo sac"]),
    (["train", "--horizon", "abc"], ["--horizon must be", "a whole number", "'abc'", "m2ac train --help"]),
    (["train", "--algo", "sac", "--horizon", "3"], ["horizon", "got 3", "leave it out"]),
    (["train", "--algo", "mbpo", "--mask.rate", "0.5"], ["mask.rate=0.5", "--algo m2ac"]),
    (["train", "--model.members", "1", "--model.elites", "1"], ["model.members", "got 1", "--algo mbpo"]),
    (["train", "--model.elites", "9"], ["model.elites", "got 9", "raise model.members"]),
    (["train", "--steps", "-5"], ["steps", "got -5"]),
    (["train", "--steps", "50", "--random-steps", "50"], ["random_steps", "(50)", "raise steps"]),
    (["train", "--random-steps", "3000"], ["random_steps", "got 3000", "raise steps"]),
    (["train", "--seed", "-1"], ["seed", "got -1", "[0, 2**32)"]),
    (["train", "--seed", "1.5"], ["--seed must be a whole number, got '1.5'"]),
    (["train", "--sac.discount", "1"], ["sac.discount", "got 1.0", "0.99"]),
    (["train", "--final-episodes", "0"], ["final_episodes", "got 0"]),
    (["train", "--hrizon", "3"], ["--hrizon", 'Perhaps you meant "--horizon"?']),
    (["train", "--algo", "m2ca"], ["m2ca", "--algo", "mbpo"]),
    (["train", "--env"], ["--env", "m2ac train --help"]),
    (["train", "extra"], ["extra", "m2ac train --help"]),
    (["train", "--replay.capacity", "100"], ["replay.capacity", "(250)", "got 100", "leave it out"]),
    (["train", "--config"], ["--config needs a file", "config.json"]),
    (["train", "--config", "missing.json"], ["missing.json", "No such file", "config.json of a run"]),
    (["train", "--config", "not.json"], ["not.json is not JSON", "config.json of a run"]),
    (["train", "--config", "list.json"], ["list.json", "a group of settings", "[1]"]),
    (["train", "--config=field.json"], ["field.json", '"horzon"', 'Perhaps you meant "horizon"?']),
    (["train", "--config", "type.json"], ["type.json", "sac.hidden must be a whole number", "'wide'"]),
    (["train", "--out", "not.json/run"], ["not.json/run", "Not a directory", "another --out"]),
    (["train", "--out", "other", "--steps", "2000"], ["other settings", "steps is 3000 there and 2000 here", "--out"]),
    (["eval"], ["RUN", "m2ac eval --help"]),
    (["eval", "nowhere"], ["'nowhere' is not a run directory", "m2ac train has written"]),
    (["eval", "other"], ["policy.safetensors", "cannot be read"]),
    (["eval", "other", "--episodes", "0"], ["episodes", "got 0"]),
    (["eval", "other", "--seed", "-1"], ["seed", "got -1"]),
    (["envs", "now"], ["no arguments", "'now'"]),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with files to stumble over."""
    files = {
        "not.json": "{",
        "list.json": "[1]",
        "field.json": '{"horzon": 3}',
        "type.json": '{"sac": {"hidden": "wide"}}',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "other").mkdir()
    stored = override(RunConfig(), {"steps": 3000, "sac.target_entropy": -1, "random_steps": 500, "model.hidden": 200})
    (tmp_path / "other" / "config.json").write_text(json.dumps(to_dict(stored)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("args", "words"), REFUSED, ids=[" ".join(args) for args, _ in REFUSED])
@pytest.mark.filterwarnings("ignore:.*not within the observation space.*:UserWarning")
def test_wrong_input_is_refused_in_one_line_that_names_it_and_the_remedy(
    args: list[str], words: list[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # What was asked for is wrong (2), or what the environment or the disk gave is (1).
    late = args[: len(STRANGE)] == STRANGE or words[0] == "policy.safetensors"
    assert main(args) == (1 if late else 2)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert [line for line in lines if line.startswith("m2ac: ")] == lines[-1:]
    assert "Traceback" not in err
    if "strange_envs" not in " ".join(args):  # whose errors come while the display is on
        assert len(lines) == 1
    for word in words:
        assert word in lines[-1]


@pytest.mark.parametrize(
    "args",
    [["train", "--mask.rate", "1.5"], ["train", "--horizon", "abc"], [*STRANGE, "strange_envs:NaNRewardLater-v0"]],
)
def test_a_refusal_as_the_shell_sees_it(args: list[str], place: Path) -> None:
    process = start(*args)
    out, err = process.communicate(timeout=120)
    assert process.returncode == (1 if "strange_envs" in args[-1] else 2)
    assert out == ""
    assert err.splitlines()[-1].startswith("m2ac: ")
    assert err.count("m2ac: ") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_refusal_reads_the_same_on_every_terminal(encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [COMMAND, "train", "--mask.rat", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stderr == (
        'm2ac: Unrecognized options: --mask.rat, 1. Perhaps you meant "--mask.rate"? See m2ac train --help.\n'
    )


# Settings from the command line and from a file

EVERY: dict[str, Any] = {
    "algo": "m2ac",
    "horizon": 7,
    "seed": 11,
    "rhythm": "epoch",
    "updates_per_step": 3,
    "model_every": 40,
    "rollouts_per_update": 6,
    "retain": 2,
    "random_steps": 77,
    "offline_updates": 9,
    "scale_observations": True,
    "skips_allowed": 6,
    "rejoin": False,
    "step_timeout": 12.5,
    "mask.rule": "threshold",
    "mask.rate": "paper",  # another one has no meaning with this rule
    "mask.quantile": 0.5,
    "mask.factor": 3.0,
    "mask.stop": "hardstop",
    "mask.uncertainty": "ova",
    "mask.penalty": 0.5,
    "mask.draw": "all",
    "mask.rest": "elites",
    "model.members": 4,
    "model.elites": 2,
    "model.hidden": 9,
    "model.layers": 2,
    "model.learning_rate": 0.01,
    "model.batch_size": 8,
    "model.weight_decay": (0.1, 0.2, 0.3),
    "model.holdout_share": 0.3,
    "model.holdout_max": 10,
    "model.stop_on": "mse",
    "model.improvement": 0.02,
    "model.improvement_of": "value",
    "model.scale_targets": True,
    "model.patience": 3,
    "model.patience_batches": 7,
    "model.max_epochs": 4,
    "model.max_log_variance": 0.25,
    "model.min_log_variance": -5.0,
    "replay.real_share": "union",
    "replay.capacity": 999,
    "sac.hidden": 12,
    "sac.layers": 3,
    "sac.learning_rate": 0.02,
    "sac.discount": 0.9,
    "sac.target_rate": 0.03,
    "sac.batch_size": 13,
    "sac.target_entropy": -2.5,
    "sac.temperature": 0.7,
    "ddpg.hidden": 14,
    "ddpg.layers": 2,
    "ddpg.critics": 3,
    "ddpg.learning_rate": 0.04,
    "ddpg.discount": 0.8,
    "ddpg.batch_size": 15,
    "ddpg.target_every": 16,
    "ddpg.saturation_penalty": 0.2,
    "ddpg.exploration": 0.4,
    "world.members": 2,
    "world.hidden": 17,
    "world.layers": 3,
    "world.reward_hidden": 18,
    "world.reward_layers": 2,
    "world.learning_rate": 0.05,
    "world.weight_decay": 0.3,
    "world.pretrain": 19,
    "ppo.envs": 2,
    "ppo.rollout": 40,
    "ppo.epochs": 3,
    "ppo.batch_size": 20,
    "ppo.learning_rate": 0.06,
    "ppo.discount": 0.7,
    "ppo.gae": 0.6,
    "ppo.clip": 0.1,
    "ppo.entropy_bonus": 0.01,
    "ppo.critic_weight": 0.25,
    "ppo.gradient_norm": 2.0,
    "ppo.hidden": 21,
    "ppo.layers": 1,
    "ppo.log_std": -0.5,
    "ppo.standardise": False,
    "ppo.scale_rewards": False,
    "env": "Hopper",
    "steps": 888,
    "data": ("log.npz", "more.csv"),
    "out": "somewhere",
    "eval_every": 44,
    "eval_episodes": 3,
    "final_episodes": 4,
    "checkpoint_every": 55,
    "checkpoint_minutes": 1.5,
    "tensorboard": False,
}


def test_every_field_can_be_set_on_the_command_line() -> None:
    assert set(EVERY) == set(leaves(RunConfig))
    wanted = override(RunConfig(), EVERY)
    default, chosen = to_dict(RunConfig()), to_dict(wanted)
    assert [name for name in EVERY if value_of(default, name) == value_of(chosen, name)] == ["algo", "mask.rate"]
    switches = {"tensorboard": "--no-tensorboard", "rejoin": "--no-rejoin"}
    switches |= {"ppo.standardise": "--ppo.no-standardise", "ppo.scale_rewards": "--ppo.no-scale-rewards"}
    typed = [*arguments({k: v for k, v in EVERY.items() if k not in switches}), *switches.values()]
    assert parse(RunConfig, typed, "m2ac train") == wanted


# A whole run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", *SHORT, "--out", str(path)]) == 0
    return path


def test_a_run_keeps_the_policy_of_its_best_evaluation(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    returns: dict[int, dict[int, float]] = {}
    with (run / "evals.csv").open() as file:
        for row in csv.DictReader(file):
            returns.setdefault(int(row["step"]), {})[int(row["episode"])] = float(row["return"])
    best = max(returns.values(), key=lambda each: sum(each.values()) / len(each))
    config = RunDirectory.read(run).config
    with closing(World(make_env("Pendulum-v1"), seed=config.seed, stream="eval")) as world:
        policy = policy_of_run(run, config, best=True)
        assert {number: world.play(policy, number).total for number in best} == best
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "1", "--best"]) == 0
    assert "mean return" in capsys.readouterr().out


def test_a_run_leaves_everything_behind(run: Path) -> None:
    names = {p.name for p in run.iterdir()}
    files = "config.json environment.json loop.json metrics.jsonl evals.csv learning_curve.png policy.safetensors DONE"
    assert names == {*files.split(), "best_policy.safetensors", "tensorboard", "checkpoints", "lock"}
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in (run / "checkpoints").iterdir()] == ["step-0000000100"]
    with (run / "evals.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [50, 50, 75, 75, 100, 100, 100]
    assert [int(row["episode"]) for row in rows] == list(range(7))
    assert len({row["seed"] for row in rows}) == 7
    assert {row["length"] for row in rows} == {"200"}
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == [75, 100]
    assert {"model/holdout_nll", "trust/share_kept", "sac/critic_loss", "time/fit"} <= set(metrics[0])
    done = json.loads((run / "DONE").read_text())
    assert done["step"] == 100
    assert done["episodes"] == 3
    assert done["mean_return"] == pytest.approx(sum(float(row["return"]) for row in rows[-3:]) / 3)
    config = json.loads((run / "config.json").read_text())
    assert (config["steps"], config["replay"]["capacity"], config["sac"]["target_entropy"]) == (100, 100, -1.0)


def test_a_finished_run_says_so_and_gives_its_result_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "environment.json"}
    assert main(["train", *SHORT, "--out", str(run)]) == 0
    out, err = capsys.readouterr()
    mean = json.loads((run / "DONE").read_text())["mean_return"]
    assert out.splitlines() == [
        f"mean return {mean:.1f} over 3 episodes at step 100",
        f"learning curve: {run / 'learning_curve.png'}",
        f"run directory: {run}",
    ]
    assert "finished already" in err
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "environment.json"} == before


def test_a_finished_run_goes_on_to_more_steps(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(run), str(copy)], check=True)
    assert main(["resume", str(copy), "--steps", "150"]) == 0
    assert "over 3 episodes at step 150" in capsys.readouterr().out
    with (copy / "evals.csv").open() as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == [50, 50, 75, 75, 100, 100, 125, 125, 150, 150, 150]
    assert [json.loads(line)["step"] for line in (copy / "metrics.jsonl").open()] == [75, 100, 125, 150]
    assert main(["resume", str(copy), "--steps", "100"]) == 2
    assert "steps must be at least the 150" in capsys.readouterr().err


def test_eval_prints_every_episode_and_the_mean(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--episodes", "3"]) == 0
    first = capsys.readouterr().out
    lines = first.splitlines()
    returns = [float(line.split()[-1]) for line in lines[:3]]
    assert [line.split()[:2] for line in lines[:3]] == [["episode", str(i)] for i in range(3)]
    assert lines[3].startswith(f"mean return {sum(returns) / 3:.2f}"[:-1])
    assert main(["eval", str(run), "--episodes", "3"]) == 0
    assert capsys.readouterr().out == first
    assert main(["eval", str(run), "--episodes", "3", "--seed", "5"]) == 0
    assert capsys.readouterr().out != first


def test_a_configuration_file_gives_the_defaults_and_an_option_overrides_it(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    config = ["--config", str(run / "config.json")]
    assert main(["train", "--seed", "9", *config, "--final-episodes", "1", "--out", str(out)]) == 0
    first, second = (json.loads((p / "config.json").read_text()) for p in (run, out))
    assert {k for k in first if first[k] != second[k]} == {"seed", "final_episodes", "out", "asked"}


def test_a_configuration_file_gives_what_was_asked_for_and_not_what_it_came_to(run: Path, tmp_path: Path) -> None:
    """The capacity of a longer run, the horizon of SAC and the penalty of MBPO follow from the new settings."""
    config = ["--config", str(run / "config.json")]
    args, default = with_config_file(["--steps", "200", *config])
    assert default is not None
    assert default.replay.capacity is None
    assert default.mask.penalty is None
    assert args == ["--steps", "200"]


def test_a_configuration_file_of_an_earlier_version_means_what_it_meant_then(run: Path, tmp_path: Path) -> None:
    written = json.loads((run / "config.json").read_text())
    written["asked"]["model"]["min_log_variance"] = -10.0
    del written["asked"]["model"]["scale_targets"]
    file = tmp_path / "config.json"
    for values, scaled in ((written, False), ({"model": {"min_log_variance": -10.0}}, None)):
        file.write_text(json.dumps(values))
        _, default = with_config_file(["--config", str(file)])
        assert default is not None
        assert (default.model.scale_targets, default.model.min_log_variance) == (scaled, -10.0)


def test_settings_of_another_run_are_refused_in_its_directory(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SHORT, "--seed", "4", "--out", str(run)]) == 2
    assert "seed is 0 there and 4 here" in capsys.readouterr().err


def test_a_bad_checkpoint_is_named_and_a_run_whose_every_checkpoint_is_bad_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(run), str(copy)], check=True)
    (copy / "DONE").unlink()
    (copy / "checkpoints" / "step-0000000100" / "state.safetensors").write_bytes(b"short")
    assert main(["train", *SHORT, "--out", str(copy)]) == 1
    assert "is damaged" in capsys.readouterr().err.splitlines()[-1]


def test_a_finished_run_without_its_checkpoints_stays_as_it_is(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(run), str(copy)], check=True)
    subprocess.run(["rm", "-r", str(copy / "checkpoints")], check=True)
    assert main(["train", *SHORT, "--out", str(copy)]) == 0
    assert "finished already" in capsys.readouterr().err
    for name in ("evals.csv", "metrics.jsonl", "DONE"):
        assert (copy / name).read_text() == (run / name).read_text()


def test_a_run_killed_after_its_last_evaluation_plays_the_same_episodes_again(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(run), str(copy)], check=True)
    (copy / "DONE").unlink()
    assert main(["train", *SHORT, "--out", str(copy)]) == 0
    again, before = (RunDirectory.read(path).read_evals() for path in (copy, run))
    assert [{**row, "seconds": 0} for row in again] == [{**row, "seconds": 0} for row in before]
    summary, earlier = (json.loads((p / "DONE").read_text()) for p in (copy, run))
    assert dict(summary, seconds=0) == dict(earlier, seconds=0)


@pytest.mark.parametrize("algo", ["mbpo", "sac", "steve", "mve", "ddpg"])
def test_the_other_algorithms_run_through(algo: str, tmp_path: Path) -> None:
    settings = arguments(tiny(algo))
    few = ["--steps", "100", "--final-episodes", "1", "--no-tensorboard"]
    assert main(["train", "--algo", algo, *settings, *few, "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "DONE").exists()
    assert not (tmp_path / "run" / "tensorboard").exists()


# Environments that fail

FAILING = """
import gymnasium as gym
import numpy as np


class Failing(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    steps = 0

    def reset(self, *, seed=None, options=None):
        self.length = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        Failing.steps += 1
        self.length += 1
        if Failing.steps == 37:
            raise OSError("serial port\\nlost")
        return np.full(2, self.length / 5, np.float32), 1.0, False, self.length >= 10, {}


gym.register("Failing-v0", entry_point=Failing)
"""


def test_a_run_whose_environment_fails_is_saved_and_continued_with_a_new_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "failing_module.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "run"
    settings = arguments({**tiny("sac"), "steps": 60, "eval_every": 1000, "final_episodes": 1, "algo": "sac"})
    command = ["train", "--env", "failing_module:Failing-v0", *settings, "--no-tensorboard", "--out", str(out)]
    assert main(command) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("m2ac: the environment raised OSError: serial port lost, failing_module.py line 19 in ")
    assert " in train episode 3 (seed " in lines[-1]
    assert lines[-1].endswith("), step 7; mend it there")
    told = [line for line in lines if line.startswith("warning: ")]
    assert len(told) == 1
    assert told[0].startswith("warning: observation[0] is 1.2 in train episode 0 (seed ")
    assert not any("UserWarning" in line or "warnings.warn" in line for line in lines)

    assert main([*command, "--step-timeout", "60"]) == 0  # a limit may be set on the way
    said = capsys.readouterr()
    assert "continuing at step 36 from" in said.err
    assert "at step 60" in said.out
    from m2ac import SAC

    agent = SAC.load(out, "failing_module:Failing-v0")
    assert agent._training is not None
    episode = agent._training.state.episode
    # 36 steps in episodes 0 to 3, the last of them broken off, then 24 more in 4, 5 and 6.
    assert (episode.number, episode.length) == (6, 4)


# Signals


def stop(path: Path, number: signal.Signals) -> tuple[int, str]:
    """Start a run, send the signal amid its training; its exit code and what it said."""
    process = start("train", *LONG, "--out", str(path))
    try:
        deadline = time.monotonic() + 120
        while not (path / "metrics.jsonl").exists() and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, err


def state_file(path: Path) -> str:
    (newest,) = sorted((path / "checkpoints").iterdir())[-1:]
    return json.loads((newest / "manifest.json").read_text())["sha256"]["state.safetensors"]


def test_an_interrupted_run_can_be_loaded_and_scored_and_ends_as_an_uninterrupted_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from m2ac import M2AC

    stopped = tmp_path / "stopped"
    code, err = stop(stopped, signal.SIGINT)
    assert code == 130
    assert err.splitlines()[-1] == "stopped and saved; the same command continues it"
    assert "Traceback" not in err
    assert not (stopped / "DONE").exists()
    agent = M2AC.load(stopped, "Pendulum-v1")
    assert 75 <= agent.num_timesteps < 600
    assert main(["eval", str(stopped), "--episodes", "1"]) == 0
    agent.learn(3)  # the buffer of a run has room for more

    assert main(["train", *LONG, "--out", str(stopped)]) == 0
    assert f"continuing at step {agent.num_timesteps - 3} from" in capsys.readouterr().err
    whole = tmp_path / "whole"
    assert main(["train", *LONG, "--out", str(whole)]) == 0
    assert state_file(stopped) == state_file(whole)
    scores = [[line.split(",")[:5] for line in (p / "evals.csv").read_text().splitlines()] for p in (stopped, whole)]
    assert scores[0] == scores[1]


def test_sigterm_saves_and_says_so_by_its_exit_code(tmp_path: Path) -> None:
    code, err = stop(tmp_path / "run", signal.SIGTERM)
    assert code == 143
    assert err.splitlines()[-1] == "stopped and saved; the same command continues it"
    assert (tmp_path / "run" / "policy.safetensors").exists()
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


def test_an_interruption_before_the_training_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("m2ac.runs.execute.execute", interrupted)
    assert main(["train"]) == 130
    assert capsys.readouterr().err.startswith("m2ac: interrupted;")
