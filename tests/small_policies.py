"""Policies of random weights, runs that have one, and what an agent with it would do."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from m2ac.config import RunConfig
from m2ac.envs import ActionScale
from m2ac.learners.acting import ActingPolicy, DeterministicPolicy
from m2ac.runs.directory import RunDirectory
from m2ac.runs.policy import save_policy


def a_policy(
    kind: type[ActingPolicy] = ActingPolicy, *, sizes: tuple[int, int] = (5, 2), hidden: int = 32, **others: Any
) -> ActingPolicy:
    """Two hidden layers of random weights."""
    rng = np.random.default_rng(0)
    outputs = sizes[1] if kind is DeterministicPolicy else 2 * sizes[1]
    widths = [sizes[0], hidden, hidden, outputs]
    layers = [
        (rng.normal(size=(n, m)).astype("f") / n**0.5, rng.normal(size=m).astype("f") / 2)
        for n, m in itertools.pairwise(widths)
    ]
    return kind(layers, **others)


def a_run(path: Path, env: str = "Pendulum-v1", sizes: tuple[int, int] = (3, 1)) -> Path:
    run = RunDirectory.open(path, RunConfig(env=env, algo="sac"))
    (run.checkpoints / "step-0000000070").mkdir()
    row: Any = {"step": 70, "episode": 0, "seed": 1, "return": -123.4, "length": 200, "seconds": 1.0}
    run.append_evals([row])
    run.close()
    save_policy(path / "policy.safetensors", a_policy(sizes=sizes))
    return path


def agent_of(policy: ActingPolicy, scale: ActionScale) -> Callable[[Any], Any]:
    return lambda obs: scale.to_env(policy(np.asarray(obs, np.float32)))
