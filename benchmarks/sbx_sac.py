"""SBX: Soft Actor-Critic in JAX, with the interface and the buffers of stable-baselines3."""

from functools import cache

import numpy as np
from sbx import SAC

from benchmarks.sb3_sac import filled
from benchmarks.sizes import ACTS, BATCH, OBS, UPDATES
from benchmarks.worker import Prepared, serve, timed


@cache
def _agent() -> SAC:
    return filled(SAC, policy_delay=1)


def sac_update() -> Prepared:
    """`train`, as `learn` calls it: rows sampled at once, then every gradient step in one compiled call."""

    def call() -> None:
        _agent().train(gradient_steps=UPDATES, batch_size=BATCH)

    call()  # its second call compiles again
    return Prepared(timed(call, units=UPDATES))


def acting() -> Prepared:
    """`predict`."""
    obs = np.zeros(OBS, np.float32)

    def call() -> None:
        for _ in range(ACTS):
            _agent().predict(obs, deterministic=True)

    return Prepared(timed(call, units=ACTS))


if __name__ == "__main__":
    serve(
        {"sac_update": sac_update, "acting": acting},
        packages=("sbx-rl", "jax", "jaxlib", "flax", "optax", "numpy"),
    )
