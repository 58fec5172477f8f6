"""A run's model examined on fresh real episodes, and what was found written down."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from m2ac.algorithms.collecting import host_rows, step_world
from m2ac.algorithms.state import Episode, State
from m2ac.algorithms.training import Training
from m2ac.config import MODELLED, RunConfig
from m2ac.envs import find_task, make_env
from m2ac.envs.world import LONGEST_EVALUATION, World
from m2ac.learners.acting import ActingPolicy
from m2ac.model_config import MaskConfig
from m2ac.report.trust_page import trust_page
from m2ac.runs import checkpoint, disk
from m2ac.runs.directory import RunDirectory
from m2ac.runs.loop import refuse_other_bounds
from m2ac.settings import ConfigError
from m2ac.trust.findings import About, Findings, Played, find
from m2ac.trust.measure import Fresh, measure
from m2ac.trust.suggest import Rule
from m2ac.trust.telling import numbers

PAGE, NUMBERS = "trust.html", "trust.json"

MOST_ROWS = 50_000
"""Transitions looked at: all of them are in memory at once."""

_ELSEWHERE = "give another --out"


class Wanted(NamedTuple):
    """How a run is to be examined."""

    episodes: int
    seed: int
    horizon: int
    sampled: bool
    rule: Rule


def examine(run: RunDirectory, wanted: Wanted, *, env: str, tell: Callable[[str], object]) -> Findings:
    """Play fresh episodes with the policy of the newest checkpoint, and hold its model against them.

    `env` is the run's environment, which is made: whoever calls has seen to it that the user trusts it.
    """
    config = run.config
    check_algorithm(config, run.path)
    found = checkpoint.load_newest(run.checkpoints, warn=tell)
    if found is None:
        raise ConfigError(f"the run {str(run.path)!r} has no checkpoint yet; train it for longer, or give another run")
    if found.config.algo not in MODELLED or not isinstance(found.state, State):
        raise ConfigError(f"{str(found.path)!r} is of another run: algo={found.config.algo}, not {config.algo}")
    if found.state.counters.fits == 0:
        raise ConfigError(
            f"the model of {str(run.path)!r} has not been fitted by step {found.state.counters.steps}; train it for "
            "longer"
        )
    task = find_task(env)
    world = World(make_env(task), seed=wanted.seed, stream="eval", step_timeout=config.step_timeout)
    try:
        _check_sizes(run.path, found.state, world, env)
        refuse_other_bounds(run.path, world, env)
        training = Training(found.config, world, termination_fn=task.terminated, state=found.state)
        fresh, played = play(training, wanted, tell=tell)
    finally:
        world.close()
    assert training.imagination is not None
    assert found.state.dynamics is not None
    assert config.mask.uncertainty is not None
    measured = measure(
        found.state.dynamics.ensemble,
        fresh,
        training.imagination,
        score=config.mask.uncertainty,
        horizon=wanted.horizon,
        key=jax.random.key(wanted.seed),
    )
    about = About(
        run=str(run.path),
        env=env,
        algo=config.algo,
        step=found.state.counters.steps,
        horizon=config.horizon or 1,
        mask=_mask_in_words(config.mask),
        ranks=config.mask.rule == "rank",
        score=config.mask.uncertainty,
        sampled=wanted.sampled,
        played=played,
    )
    return find(measured, about, wanted.rule)


def check_algorithm(config: RunConfig, path: Path) -> None:
    """Refuse a run without a model to be examined."""
    if config.algo not in MODELLED:
        raise ConfigError(
            f"the run {str(path)!r} has algo={config.algo}, which has no model that imagines; "
            f"give a run of {' or '.join(MODELLED)}"
        )


def _check_sizes(path: Path, state: State, world: World, env: str) -> None:
    sizes = state.real.observations.shape[1], state.real.action.shape[1]
    if sizes != (world.obs_dim, world.action_dim):
        raise ConfigError(
            f"the model of {str(path)!r} has {sizes[0]} observations and {sizes[1]} actions, but {env} has "
            f"{world.obs_dim} and {world.action_dim}; give a run of this environment"
        )


def _mask_in_words(mask: MaskConfig) -> str:
    if mask.keeps_all:
        return "none, everything is kept"
    if mask.rule == "threshold":
        return f"threshold, {mask.factor:g} times the {mask.quantile:g} quantile of {mask.uncertainty}"
    rate = "the paper's rate" if mask.rate == "paper" else f"rate {mask.rate:g}"
    return f"{rate} by {mask.uncertainty}, {mask.stop}"


class _MeanPolicy(ActingPolicy):
    """A policy that adds no noise to its mean."""

    def draw(self, rng: np.random.Generator, *shape: int) -> Float[ndarray, "*noise"]:
        return np.zeros((*shape, self.action_dim), dtype=np.float32)


def play(training: Training, wanted: Wanted, *, tell: Callable[[str], object]) -> tuple[Fresh, tuple[Played, ...]]:
    """Whole episodes with the training's policy, as many as wanted or as fit."""
    policy, scaling, world = training.acting_policy(), training.state.scaling, training.world
    if not wanted.sampled:
        policy = _MeanPolicy(policy.layers, policy.scaling)
    parts: list[Any] = []
    played: list[Played] = []
    taken = 0
    for number in range(wanted.episodes):
        rows = host_rows((LONGEST_EVALUATION,), world.obs_dim, world.action_dim)
        episode = Episode(number, 0, 0.0, np.zeros(world.obs_dim, np.float32))
        ended, length = None, 0
        while ended is None and length < LONGEST_EVALUATION:
            episode, ended = step_world(
                world, episode, rows, length, policy, scaling=scaling, seed=wanted.seed, step=taken + length
            )
            length += 1
        parts.append(jax.tree.map(lambda x, length=length: x[:length].copy(), rows))
        taken += length
        played.append(Played(world.seed_of(number), float(np.sum(parts[-1].reward, dtype=np.float64)), length))
        if taken + length > MOST_ROWS and number + 1 < wanted.episodes:
            tell(f"stopped after {number + 1} of {wanted.episodes} episodes: {taken} transitions are enough")
            break
    rows = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    lengths = [each.length for each in played]
    fresh = Fresh(
        rows=rows,
        episode=np.repeat(np.arange(len(lengths)), lengths),
        step=np.concatenate([np.arange(length) for length in lengths]),
        observed=np.asarray(scaling.undo(rows.obs)),
    )
    return fresh, tuple(played)


def write(found: Findings, folder: Path, json: Path | None = None) -> tuple[Path, Path]:
    """Leave the page and the numbers there, and say where they are."""
    page, file = folder / PAGE, folder / NUMBERS if json is None else json
    with disk.writing(folder, _ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
        disk.write_atomically(page, trust_page(found))
    with disk.writing(file, "give another --json" if json is not None else _ELSEWHERE):
        disk.write_atomically(file, disk.dump_json(numbers(found), indent=1))
    return page, file
