"""How fast the phases of training are on this machine, beside the fastest matrix product it can do in the same run.

The phases are those of training itself, at the sizes of HalfCheetah: 17 observations, 6 actions.
"""

import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from m2ac.algorithms import phases
from m2ac.algorithms.state import State, init_state, rollouts_per_phase
from m2ac.algorithms.training import imagination
from m2ac.config import AgentConfig
from m2ac.dynamics.fit import fit_slice, start_fit
from m2ac.imagination.rollout import Imagination
from m2ac.learners.acting import ActingPolicy
from m2ac.learners.sac import update_many
from m2ac.model_config import ModelConfig
from m2ac.replay import Imagined, add_real, empty_real
from m2ac.resolving import resolve
from m2ac.settings import override
from m2ac.types import Key, Transition

OBS, ACTIONS = 17, 6


class Timing(NamedTuple):
    """One phase; seconds are per unit of work."""

    phase: str
    unit: str
    seconds: float  # the fastest of the repeats: what the machine can do when nothing disturbs it
    median: float
    first_call: float  # of one whole call, compilation included
    flops: float | None  # matrix products per unit of work

    def gflops(self) -> float | None:
        """Billions of operations per second."""
        return None if self.flops is None else self.flops / self.seconds / 1e9


def measure(
    phase: str, unit: str, call: Callable[[], Any], *, units: float, repeats: int, flops: float | None = None
) -> Timing:
    """Time `call`, which does `units` of work; its first call is told apart."""
    first = _timed(call)
    times = [_timed(call) / units for _ in range(repeats)]
    return Timing(phase, unit, min(times), statistics.median(times), first, flops)


def _timed(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - started


def layer_products(sizes: Iterable[int]) -> list[int]:
    """Multiplications and additions of each layer for one row."""
    return [2 * a * b for a, b in itertools.pairwise(sizes)]


def sac_flops(config: AgentConfig) -> float:
    """Matrix products of one SAC update."""
    hidden = [config.sac.hidden] * config.sac.layers
    policy, critic = layer_products([OBS, *hidden, 2 * ACTIONS]), layer_products([OBS + ACTIONS, *hidden, 1])
    forward = 2 * sum(policy) + 2 * (3 * sum(critic))  # policy twice; two critics: targets, values, for the policy
    # Backward: weights and inputs, but nobody asks for the first layer's inputs; through the critics for the policy,
    # inputs alone.
    backward = 2 * sum(policy) - policy[0] + 2 * (2 * sum(critic) - critic[0]) + 2 * sum(critic)
    return float(config.sac.batch_size * (forward + backward))


def ensemble_products(config: ModelConfig) -> list[int]:
    """Multiplications and additions of each layer of one member for one row."""
    assert config.hidden is not None
    return layer_products([OBS + ACTIONS, *[config.hidden] * config.layers, 2 * (OBS + 1)])


def fit_flops(config: ModelConfig) -> float:
    """Matrix products of one training step of the whole ensemble."""
    layers = ensemble_products(config)
    return float(config.members * config.batch_size * (3 * sum(layers) - layers[0]))


def rollout_flops(config: AgentConfig, members: int) -> float:
    """Matrix products of one imagined transition."""
    hidden = [config.sac.hidden] * config.sac.layers
    return float(members * sum(ensemble_products(config.model)) + sum(layer_products([OBS, *hidden, 2 * ACTIONS])))


def bench_config(**changes: Any) -> AgentConfig:
    """The default configuration of a HalfCheetah run."""
    config = override(AgentConfig(), {"horizon": 1, **changes})
    return resolve(config, {"sac.target_entropy": -3.0, "model.scale_targets": False}, action_dim=ACTIONS, steps=25_000)


def filled_state(config: AgentConfig, rows: int) -> State:
    """A state whose real buffer holds that many invented transitions of a smooth world."""
    config = replace(config, replay=replace(config.replay, capacity=rows))
    state = init_state(config, OBS, ACTIONS, learns_termination=False)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(rows, OBS)).astype(np.float32)
    action = rng.uniform(-1, 1, (rows, ACTIONS)).astype(np.float32)
    push = np.tanh(obs @ rng.normal(size=(OBS, OBS)) + action @ rng.normal(size=(ACTIONS, OBS)))
    stored = Transition(
        obs=jnp.asarray(obs),
        action=jnp.asarray(action),
        reward=jnp.asarray(push[:, 0], jnp.float32),
        next_obs=jnp.asarray(obs + 0.1 * push, jnp.float32),
        terminated=jnp.zeros(rows, dtype=bool),
    )
    empty = empty_real(rows, OBS, ACTIONS, slots=2 * rows)  # invented one by one, they share no observation
    return state._replace(real=add_real(empty, stored, jnp.int32(rows)))


def _never_ends(obs: Any, action: Any, next_obs: Any) -> Any:
    """A function with a name: a new one for each call would be a new program for each call."""
    return jnp.array(False)


def _imagine(state: State, key: Key, rollouts: int, how: Imagination) -> tuple[Imagined, phases.Trust]:
    """Lines 6-7 of Algorithm 1 with the programs that a training calls."""
    assert state.dynamics is not None
    assert state.imagined is not None
    ensemble, border = state.dynamics.ensemble, state.imagined.border
    rolling = phases.start_imagining(ensemble, state.real, border, key, np.int32(0), rollouts=rollouts, how=how)
    for _ in range(how.horizon):
        rolling = phases.imagine_step(rolling, state.learner.policy, ensemble, how=how)
    return phases.finish_imagining(state.imagined, rolling)


def gemm(size: int, *, repeats: int) -> Timing:
    """A square product in float32."""
    matrix = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(lambda a: a @ a)
    return measure(
        f"matrix product {size}³", "product", lambda: product(matrix), units=1, repeats=repeats, flops=2.0 * size**3
    )


def sac_updates(config: AgentConfig, *, repeats: int, rows: int = 25_000, updates: int = 200) -> Timing:
    """Batches drawn and updates made, as after environment steps."""
    state = filled_state(config, rows)
    learner = state.learner
    key = jax.random.key(1)

    def call() -> Any:
        nonlocal learner
        batches, noise_key = phases.draw_batches(
            state.real,
            None,
            key,
            np.int32(0),
            batches=updates,
            batch_size=config.sac.batch_size,
            real_share=config.replay.real_share,
        )
        learner, losses, _ = update_many(learner, batches, config.sac, key=noise_key)
        return losses

    name = f"SAC update, batch {config.sac.batch_size}, {updates} per call, {rows} rows stored"
    return measure(name, "update", call, units=updates, repeats=repeats, flops=sac_flops(config))


def ensemble_steps(config: AgentConfig, *, repeats: int, rows: int = 25_000, batches: int = 50) -> Timing:
    """Training steps of the ensemble, within an epoch."""
    state = filled_state(config, rows)
    assert state.dynamics is not None
    fit = start_fit(state.dynamics, state.real, config.model, key=jax.random.key(2))
    name = f"ensemble step, {config.model.members} members, batch {config.model.batch_size} each"

    def call() -> Any:
        return fit_slice(fit, state.real, np.int32(batches), config.model).loss

    return measure(name, "step", call, units=batches, repeats=repeats, flops=fit_flops(config.model))


def imagined_rows(config: AgentConfig, *, repeats: int, rows: int = 25_000) -> Timing:
    """Imagined transitions, from sampled states to the rows kept in the buffer."""
    state = filled_state(config, rows)
    assert config.horizon is not None
    how, rollouts = imagination(config, _never_ends, None), rollouts_per_phase(config)

    def call() -> Any:
        nonlocal state
        imagined, trust = _imagine(state, jax.random.key(3), rollouts, how)
        state = state._replace(imagined=imagined)
        return trust

    everything = how.score is None
    kept = "everything" if everything else "the most trusted"
    name = f"imagined transition, {config.model.members} members, length {config.horizon}, keeping {kept}"
    return measure(
        name,
        "transition",
        call,
        units=rollouts * config.horizon,
        repeats=repeats,
        flops=rollout_flops(config, 1 if everything else config.model.members),
    )


def cycle_steps(config: AgentConfig, *, stored: Iterable[int], repeats: int) -> list[Timing]:
    """Steps of a training cycle without the fit, and their share of its rollouts, for buffers of different sizes.

    The sizes take turns, so that a disturbance meets them alike.
    """
    steps = 25
    calls = {rows: _cycle(config, rows, steps) for rows in stored}
    firsts = {rows: _timed(call) for rows, call in calls.items()}
    times: dict[int, list[float]] = {rows: [] for rows in calls}
    for _ in range(repeats):
        for rows, call in calls.items():
            times[rows].append(_timed(call) / steps)
    return [
        Timing(f"cycle without its fit, {rows} rows stored", "step", min(t), statistics.median(t), firsts[rows], None)
        for rows, t in times.items()
    ]


def _cycle(config: AgentConfig, rows: int, steps: int) -> Callable[[], Any]:
    assert config.model_every is not None
    assert config.updates_per_step is not None
    rollouts = rollouts_per_phase(config) * steps // config.model_every
    how = imagination(config, _never_ends, None)
    state = filled_state(config, rows)
    new = jax.tree.map(lambda x: np.asarray(x[:1]), state.real.rows)
    key, zero = jax.random.key(4), np.int32(0)

    def call() -> Any:
        nonlocal state
        imagined, _ = _imagine(state, key, rollouts, how)
        state = state._replace(imagined=imagined)
        losses = None
        for _ in range(steps):
            state = state._replace(real=phases.store(state.real, new, 1))
            batches, noise_key = phases.draw_batches(
                state.real,
                state.imagined,
                key,
                zero,
                batches=config.updates_per_step,
                batch_size=config.sac.batch_size,
                real_share=config.replay.real_share,
            )
            learner, losses, _ = update_many(state.learner, batches, config.sac, key=noise_key)
            state = state._replace(learner=learner)
        return losses

    return call


# The command itself, told apart at its first real step and at its first update, where it has shown enough.
_START_UP = """
import os, sys, time
from m2ac.cli import main
from m2ac.runs.caching import prepare_jax
prepare_jax()
from m2ac.algorithms.training import Training
from m2ac.envs.world import World

def tell_first(owner, name, after):
    plain = getattr(owner, name)
    def told(self, *args):
        setattr(owner, name, plain)
        result = plain(self, *args)
        print(time.time() - float(sys.argv[1]), flush=True)
        if after:
            os._exit(0)
        return result
    setattr(owner, name, told)

tell_first(World, "step", after=False)
tell_first(Training, "_learn", after=True)
main(sys.argv[2:])
"""


def start_up(settings: Iterable[str] = ("--env", "HalfCheetah-v5", "--horizon", "1")) -> list[Timing]:
    """`m2ac train` from its call to its first environment step, and to its first update after a fit of one epoch."""
    with tempfile.TemporaryDirectory() as folder:
        # The second finds the programs of the first.
        runs = [_start_up([*settings, "--out", f"{folder}/{i}"]) for i in range(2)]
    names = "m2ac train to its first environment step", "m2ac train to its first update, fit of one epoch"
    return [Timing(name, "start", warm, warm, first, None) for name, first, warm in zip(names, *runs, strict=True)]


def _start_up(settings: list[str]) -> list[float]:
    command = [sys.executable, "-c", _START_UP, str(time.time()), "train", "--model.max-epochs", "1", *settings]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [float(seconds) for seconds in told.split()]


def acting(*, repeats: int, sampled: bool) -> Timing:
    """One action for one observation, in NumPy."""
    state = init_state(bench_config(algo="sac", horizon=None), OBS, ACTIONS, learns_termination=False)
    policy = ActingPolicy(state.learner.policy)
    obs, noise = np.zeros(OBS, np.float32), np.zeros(ACTIONS, np.float32) if sampled else None

    def call() -> Any:
        for _ in range(1000):
            policy(obs, noise)

    return measure(f"acting, {'sampled' if sampled else 'mean'}", "action", call, units=1000, repeats=repeats)


def timings(*, quick: bool) -> Iterator[Timing]:
    """Every phase, one after the other."""
    repeats = 3 if quick else 8
    base = bench_config()
    keep_all = bench_config(mask={"rate": 1.0, "penalty": 0.0})
    yield gemm(2048, repeats=3 * repeats)
    yield gemm(256, repeats=30 * repeats)
    yield sac_updates(base, repeats=repeats)
    yield sac_updates(base, repeats=repeats, updates=10)
    yield ensemble_steps(base, repeats=repeats)
    yield imagined_rows(base, repeats=repeats)
    yield imagined_rows(keep_all, repeats=repeats)
    yield acting(repeats=repeats, sampled=False)
    yield acting(repeats=repeats, sampled=True)
    yield from start_up()
    if quick:
        return
    yield from cycle_steps(base, stored=(20_000, 200_000), repeats=repeats)
    for batch in (128, 512):
        yield sac_updates(replace(base, sac=replace(base.sac, batch_size=batch)), repeats=repeats, updates=10)
    for members in (3, 5):
        smaller = replace(base, model=replace(base.model, members=members, elites=2))
        yield ensemble_steps(smaller, repeats=repeats)
        yield imagined_rows(smaller, repeats=repeats)
    for horizon in (4, 10):
        yield imagined_rows(bench_config(horizon=horizon), repeats=max(2, repeats // 4))


def bench(*, quick: bool, tell: Callable[[str], None]) -> dict[str, Any]:
    """Time every phase, telling each as it is known; the result is plain data."""
    started = time.perf_counter()
    results: list[Timing] = []
    tell(f"{'phase':70}  {'fastest':>11}  {'median':>11}  {'first call':>10}  {'GFLOP/s':>8}  {'of peak':>7}")
    for timing in timings(quick=quick):
        results.append(timing)
        tell(_line(timing, peak=results[0].gflops() or 0.0))
    peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    tell(f"\npeak memory {peak_memory:.0f} MiB, {time.perf_counter() - started:.0f} s in all")
    return {
        "timings": [{**t._asdict(), "gflops": t.gflops()} for t in results],
        "peak_gflops": results[0].gflops(),
        "peak_memory_mib": peak_memory,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def _line(timing: Timing, *, peak: float) -> str:
    rate = timing.gflops()
    shares = ("", "") if rate is None else (f"{rate:.0f}", f"{rate / peak:.0%}")
    return (
        f"{timing.phase:70}  {_seconds(timing.seconds):>11}  {_seconds(timing.median):>11}  "
        f"{timing.first_call:>9.1f}s  {shares[0]:>8}  {shares[1]:>7}"
    )


def _seconds(seconds: float) -> str:
    """Three digits in the unit that suits: "3.42 ms", "10.1 µs"."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
