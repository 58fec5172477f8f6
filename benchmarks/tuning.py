"""The choices that make the phases fast, each beside its alternative: `python -m benchmarks.tuning`.

The variants of a phase are compiled first and then take turns: whatever disturbs the machine disturbs all alike.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from m2ac import networks
from m2ac.algorithms import phases
from m2ac.algorithms.training import imagination
from m2ac.bench import bench_config, filled_state
from m2ac.compiling import CPU_OPTIONS
from m2ac.dynamics import ensemble, fit
from m2ac.dynamics.uncertainty import one_vs_rest
from m2ac.imagination import rollout
from m2ac.learners import sac, updating
from m2ac.runs.environment import describe_environment

UPDATES, STEPS, ROWS = 20, 5, 5000
Call = Callable[[], Any]


class Choice(NamedTuple):
    """What is changed while a variant is compiled, and what the compiler is told."""

    changes: tuple[tuple[Any, str, Any], ...] = ()
    options: Mapping[str, Any] = {}


def variant(function: Callable[..., Any], arguments: tuple[Any, ...], choice: Choice) -> Call:
    """The function compiled in that way, ready to be called."""
    with ExitStack() as stack:
        for owner, name, value in choice.changes:
            stack.enter_context(patch.object(owner, name, value))
        lowered = jax.jit(lambda *x: function(*x), compiler_options=dict(choice.options)).lower(*arguments)
        return partial(lowered.compile(), *arguments)


def sac_updates() -> tuple[float, dict[str, Call]]:
    """Updates of the learner."""
    config = bench_config()
    state = filled_state(config, 25_000)
    batches, key = phases.draw_batches(
        state.real, None, jax.random.key(1), np.int32(0), batches=UPDATES, batch_size=256, real_share=0.05
    )

    def update(learner: Any, batches: Any) -> Any:
        return sac.update_many.__wrapped__(learner, batches, config.sac, key=key)[1]

    make = partial(variant, update, (state.learner, batches))
    return UPDATES, {
        "as it is": make(Choice()),
        "one update a round": make(Choice(((updating, "UNROLL", 1),))),
        "four updates a round": make(Choice(((updating, "UNROLL", 4),))),
        "no gradient the other way round": make(Choice(((networks, "NARROW", 0),))),
        "with the options for the ensemble": make(Choice(options=CPU_OPTIONS)),
    }


def ensemble_steps() -> tuple[float, dict[str, Call]]:
    """Training steps of the ensemble."""
    config = bench_config()
    state = filled_state(config, 25_000)
    assert state.dynamics is not None
    start = fit.start_fit(state.dynamics, state.real, config.model, key=jax.random.key(2))

    def steps(start: Any, real: Any) -> Any:
        return fit.fit_slice.__wrapped__(start, real, jnp.int32(STEPS), config.model).loss

    make = partial(variant, steps, (start, state.real))
    return STEPS, {
        "as it is": make(Choice(options=CPU_OPTIONS)),
        "without options": make(Choice()),
        "no gradient the other way round": make(Choice(((networks, "NARROW", 0),), CPU_OPTIONS)),
        "members in one batched product": make(Choice(((ensemble, "batched_members", lambda: True),), CPU_OPTIONS)),
    }


def imagined(*, keep_all: bool) -> tuple[float, dict[str, Call]]:
    """Imagined transitions, from their start states to what the mask says."""
    config = bench_config(mask={"rate": 1.0, "penalty": 0.0}) if keep_all else bench_config()
    state = filled_state(config, 25_000)
    assert state.dynamics is not None
    how = imagination(config, lambda obs, action, next_obs: jnp.array(False), None)
    arguments = (state.learner.policy, state.dynamics.ensemble, state.real.rows.obs[:ROWS])

    def roll(how: Any, policy: Any, models: Any, starts: Any) -> Any:
        act = partial(sac.sample_action, policy)
        return rollout.masked_rollouts(act, models, starts, how, key=jax.random.key(3))

    make = partial(variant, partial(roll, how), arguments)
    calls = {"as it is": make(Choice(options=CPU_OPTIONS)), "without options": make(Choice())}
    if keep_all:
        everyone = partial(roll, how._replace(score=one_vs_rest))
        chunks = {f"chunks of {n}": make(Choice(((ensemble, "CHUNK", n),), CPU_OPTIONS)) for n in (250, 500)}
        return ROWS, calls | chunks | {"all members": variant(everyone, arguments, Choice(options=CPU_OPTIONS))}
    return ROWS, calls | {
        f"blocks of {n}": make(Choice(((rollout, "BLOCK", n),), CPU_OPTIONS)) for n in (500, 1250, ROWS)
    }


def side_by_side(units: float, calls: Mapping[str, Call], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds per unit of every variant, and what the choice gains over it."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        jax.block_until_ready(call())
    for _ in range(rounds):
        for name, call in calls.items():
            started = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append((time.perf_counter() - started) / units)
    own = min(times["as it is"])
    return {
        name: {"min": min(t), "median": statistics.median(t), "over as it is": min(t) / own}
        for name, t in times.items()
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path, default=Path("results/tuning.json"))
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    for name, prepare in {
        "SAC update": sac_updates,
        "ensemble step": ensemble_steps,
        "imagined transition, all members asked": partial(imagined, keep_all=False),
        "imagined transition, all kept": partial(imagined, keep_all=True),
    }.items():
        found[name] = side_by_side(*prepare(), asked.rounds)
        for choice, t in found[name].items():
            print(f"{name:40} {choice:36} {1e6 * t['min']:10.2f} µs  {t['over as it is']:5.2f}", flush=True)
    command = f"python -m benchmarks.tuning --rounds {asked.rounds}"
    asked.json.write_text(
        json.dumps({"command": command, "phases": found, "environment": describe_environment()}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
