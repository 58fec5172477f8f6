"""m2ac itself, by the functions of `m2ac bench` and, for the whole cycle, by its training loop."""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks import sizes
from benchmarks.worker import Prepared, seconds_of, serve, timed
from m2ac import SAC, bench
from m2ac.algorithms.state import rollouts_per_phase
from m2ac.algorithms.training import Training
from m2ac.config import AgentConfig
from m2ac.envs.world import World

MASKED = bench.bench_config()
KEEP_ALL = bench.bench_config(mask={"rate": 1.0, "penalty": 0.0})
MBPO = bench.bench_config(algo="mbpo", model={"max_epochs": sizes.EPOCHS, "patience": sizes.EPOCHS})


def _check_sizes(config: AgentConfig) -> None:
    """The defaults of a HalfCheetah run are the sizes that the others are given."""
    sac, model = config.sac, config.model
    assert (bench.OBS, bench.ACTIONS) == (sizes.OBS, sizes.ACTIONS)
    assert (sac.batch_size, sac.hidden, sac.layers) == (sizes.BATCH, sizes.WIDTH, 2)
    assert (model.members, model.elites, model.layers) == (sizes.MEMBERS, sizes.ELITES, sizes.LAYERS)
    assert (model.hidden, model.batch_size, model.holdout_share) == (
        sizes.MODEL_WIDTH,
        sizes.MODEL_BATCH,
        sizes.HOLDOUT,
    )
    assert (rollouts_per_phase(config), config.horizon, config.retain) == (sizes.ROLLOUTS, 1, sizes.RETAINED)
    assert (config.model_every, config.updates_per_step) == (sizes.STEPS, sizes.UPDATES_PER_STEP)


def _never(obs: Any, action: Any, next_obs: Any) -> Any:
    return jnp.array(False)


def gemm() -> Prepared:
    """The machine's own matrix product, to compare sittings."""
    return Prepared(lambda: bench.gemm(2048, repeats=5).seconds)


def sac_update() -> Prepared:
    """Batches drawn and updates made."""
    return Prepared(lambda: bench.sac_updates(MASKED, repeats=1, rows=sizes.ROWS, updates=sizes.UPDATES).seconds)


def ensemble_step() -> Prepared:
    """The full batches of one epoch."""
    batches = int(sizes.ROWS * (1 - sizes.HOLDOUT)) // sizes.MODEL_BATCH
    return Prepared(lambda: bench.ensemble_steps(MASKED, repeats=1, rows=sizes.ROWS, batches=batches).seconds)


def imagined(config: AgentConfig) -> Prepared:
    """A rollout phase, from sampled start states to the rows stored."""
    return Prepared(lambda: bench.imagined_rows(config, repeats=1, rows=sizes.ROWS).seconds)


def acting() -> Prepared:
    """`predict`."""
    agent, obs = SAC(sizes.Still()), np.zeros(sizes.OBS, np.float32)

    def call() -> None:
        for _ in range(sizes.ACTS):
            agent.predict(obs, deterministic=True)

    return Prepared(timed(call, units=sizes.ACTS))


def cycle() -> Prepared:
    """The training loop of MBPO in an environment that costs nothing."""
    assert MBPO.random_steps is not None
    state = bench.filled_state(MBPO, sizes.CYCLE_ROWS)
    state = state._replace(counters=state.counters._replace(steps=MBPO.random_steps))  # exploration is over
    world = World(sizes.Still(), seed=0, stream="train")
    training = Training(MBPO, world, termination_fn=_never, state=state)

    def call() -> None:
        metrics = [progress.metrics for progress in training.run(training.step + sizes.STEPS)][-1]
        assert metrics is not None
        assert metrics["model/epochs"] == sizes.EPOCHS

    call()  # compiles
    return Prepared(lambda: seconds_of(call))


if __name__ == "__main__":
    for config in (MASKED, KEEP_ALL, MBPO):
        _check_sizes(config)
    serve(
        {
            "gemm": gemm,
            "sac_update": sac_update,
            "ensemble_step": ensemble_step,
            "imagined_all": partial(imagined, MASKED),
            "imagined_all_in_blocks": partial(imagined, MASKED),
            "imagined_one": partial(imagined, KEEP_ALL),
            "cycle": cycle,
            "acting": acting,
        },
        packages=("m2ac", "jax", "jaxlib", "optax", "numpy"),
    )
