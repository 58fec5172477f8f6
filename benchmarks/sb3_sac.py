"""stable-baselines3: Soft Actor-Critic in PyTorch."""

from functools import cache
from typing import Any

import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.logger import Logger

from benchmarks.sizes import ACTS, BATCH, OBS, ROWS, UPDATES, WIDTH, Still, transitions
from benchmarks.worker import Prepared, fastest, serve, thread_counts, timed


def filled(algorithm: Any, **settings: Any) -> Any:
    """An agent of stable-baselines3 or SBX whose own buffer holds the transitions; it logs to nowhere."""
    agent = algorithm(
        "MlpPolicy",
        Still(),
        buffer_size=ROWS,
        batch_size=BATCH,
        target_entropy=-3.0,
        policy_kwargs={"net_arch": [WIDTH, WIDTH]},
        seed=0,
        **settings,
    )
    agent.set_logger(Logger(None, []))
    for obs, action, reward, next_obs in zip(*transitions(ROWS), strict=True):
        agent.replay_buffer.add(obs, next_obs, action, reward, np.array(False), [{}])
    return agent


@cache
def _agent() -> SAC:
    return filled(SAC, device="cpu")


def sac_update() -> Prepared:
    """`train`, as `learn` calls it."""

    def call(threads: int, updates: int) -> None:
        torch.set_num_threads(threads)
        _agent().train(gradient_steps=updates, batch_size=BATCH)

    threads = fastest(thread_counts(), lambda threads: call(threads, UPDATES // 4))
    return Prepared(timed(lambda: call(threads, UPDATES), units=UPDATES), f"{threads} threads")


def acting() -> Prepared:
    """`predict`."""
    obs = np.zeros(OBS, np.float32)

    def call(threads: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(ACTS):
            _agent().predict(obs, deterministic=True)

    threads = fastest(thread_counts(), call)
    return Prepared(timed(lambda: call(threads), units=ACTS), f"{threads} threads")


if __name__ == "__main__":
    serve(
        {"sac_update": sac_update, "acting": acting},
        packages=("stable-baselines3", "torch", "numpy", "gymnasium"),
    )
