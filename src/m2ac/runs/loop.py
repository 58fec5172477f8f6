"""The sizes and bounds of what a run observes and does, kept with it.

A policy acts in shares of the bounds, so under other bounds the same policy does something else. And where the steps of
a run are made by a control loop, no environment knows them.
"""

import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from m2ac.envs.world import World
from m2ac.runs import disk
from m2ac.runs.directory import LARGEST_CONFIG, ROOM
from m2ac.settings import ConfigError

FILE = "loop.json"


class Loop(NamedTuple):
    """What a control loop, or the one between agent and environment, observes and how it acts."""

    obs_dim: int
    low: list[float]  # of actions
    high: list[float]


def loop_of(world: World) -> Loop:
    """What an environment lets an agent observe and do."""
    return Loop(world.obs_dim, world.scale.low.tolist(), world.scale.high.tolist())


def must_be_loop(run: Path, loop: Loop) -> None:
    """Refuse another one than the run was begun with, where there is one."""
    if (run / FILE).exists():
        before = read_loop(run)
        odd = next((name for name in Loop._fields if getattr(before, name) != getattr(loop, name)), None)
        if odd is not None:
            raise ConfigError(
                f"{str(run)!r} was begun with {odd}={getattr(before, odd)}, got {getattr(loop, odd)}; "
                f"bring that back, or choose another out"
            )


def record_loop(run: Path, loop: Loop) -> None:
    """Write it down where it is new, or refuse another one than the run was begun with."""
    must_be_loop(run, loop)
    if not (run / FILE).exists():
        with disk.writing(run, ROOM):
            disk.write_atomically(run / FILE, disk.dump_json(loop._asdict(), indent=2))


def must_be_alike(run: Path, world: World, env: str) -> None:
    """Refuse an environment, or a simulation in place of a control loop, in which an action means something else."""
    if not (run / FILE).exists():
        return
    loop = read_loop(run)
    for name, ours, theirs in (("low", loop.low, world.scale.low), ("high", loop.high, world.scale.high)):
        if not np.array_equal(np.asarray(ours, dtype=theirs.dtype), theirs):
            raise ConfigError(
                f"the run {str(run)!r} has actions with {name}={ours}, but {env} has {theirs.tolist()}; "
                f"give an environment with the bounds that it was trained with"
            )


def read_loop(run: Path) -> Loop:
    """The inverse of `record_loop`."""
    try:
        loop = Loop(**json.loads(disk.read(run / FILE, at_most=LARGEST_CONFIG)))
        bounds = [(float(low), float(high)) for low, high in zip(loop.low, loop.high, strict=True)]
        possible = 0 < int(loop.obs_dim) <= 10**6 and 0 < len(bounds) <= 10**6
        if not possible or not all(low < high and math.isfinite(high - low) for low, high in bounds):
            raise ValueError("sizes or bounds that cannot be")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{str(run / FILE)!r} cannot be read ({error}); remove it where it is damaged, and continue the run, which "
            f"writes it"
        ) from None
    return Loop(int(loop.obs_dim), [low for low, _ in bounds], [high for _, high in bounds])
