"""A policy acts in shares of the action's bounds: under other bounds the same one would do something else."""

import re
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tiny import arguments, tiny

from m2ac import SAC, ConfigError
from m2ac.cli import main
from m2ac.envs.world import EnvError, World


class Pump(gym.Env[Any, Any]):
    """Whose flow is limited by the class's attribute."""

    most = 450.0
    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self) -> None:
        self.action_space = gym.spaces.Box(np.array([-3.0, 100.0]), np.array([7.0, self.most]), dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 1.0, False, False, {}


gym.register("Pump-v0", Pump, max_episode_steps=20)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("runs") / "pump"
    few = ["--steps", "60", "--eval-episodes", "1", "--final-episodes", "1", "--no-tensorboard"]
    settings = arguments({**tiny("sac"), "random_steps": 20})
    assert main(["train", "--algo", "sac", "--env", "Pump-v0", *settings, *few, "--out", str(path)]) == 0
    return str(path)


@pytest.mark.parametrize("command", [["eval", "--episodes", "1"], ["export"], ["resume", "--steps", "80"]])
def test_a_run_is_refused_an_environment_with_other_bounds(
    command: list[str], run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Pump, "most", 900.0)
    assert main([command[0], run, *command[1:]]) != 0
    said = capsys.readouterr().err
    assert re.search(r"high=\[7\.0, 450\.0\], (but Pump-v0 has|got) \[7\.0, 900\.0\]; (give an|bring)", said), said


def test_an_agent_is_refused_an_environment_with_other_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    agent = SAC("Pump-v0", **tiny("sac"))
    agent.save(tmp_path / "a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SAC.load(tmp_path / "a", "Pump-v0")
    monkeypatch.setattr(Pump, "most", 900.0)
    for path in (tmp_path / "a", run):
        with pytest.raises(ConfigError, match=r"high=\[7.0, 450.0\], but .* has \[7.0, 900.0\]"):
            SAC.load(path, "Pump-v0")


def test_an_environment_to_evaluate_in_must_be_like_the_agents_own(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = SAC("Pump-v0", **tiny("sac"))
    with pytest.raises(ConfigError, match=r"eval_env has obs_dim=3, the agent's environment 2; give one like it"):
        agent.evaluate(1, eval_env=gym.make("Pendulum-v1"))
    monkeypatch.setattr(Pump, "most", 900.0)
    with pytest.raises(ConfigError, match=r"eval_env has high=\[7.0, 900.0\], the agent's environment \[7.0, 450.0\]"):
        agent.evaluate(1, eval_env=gym.make("Pump-v0"))


def test_an_observation_that_is_no_array_of_numbers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"observation must be an array of numbers, got \{'a': 1\}"):
        SAC("Pump-v0", **tiny("sac")).predict({"a": 1})  # type: ignore[arg-type]


def test_exporting_what_has_learned_nothing_is_told(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="nothing is learned yet: the exported policy is that of an untrained network"):
        SAC("Pump-v0", **tiny("sac")).export(tmp_path / "out")


class Unseeded(Pump):
    def reset(self) -> tuple[Any, dict[str, Any]]:  # type: ignore[override]
        return np.zeros(2, np.float32), {}


def test_a_reset_that_takes_no_seed_is_told_how_to_write_it() -> None:
    with pytest.raises(EnvError, match=r"reset takes no seed; write reset\(self, \*, seed=None, options=None\)"):
        World(Unseeded(), seed=0, stream="train").reset(0)
