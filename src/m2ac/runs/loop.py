"""The sizes and bounds of what a run observes and does, kept with it.

A policy acts in shares of the bounds, so under other bounds the same policy does something else. And where the steps of
a run are made by a control loop, no environment knows them.
"""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

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


class Odd(NamedTuple):
    """What one loop has otherwise than another."""

    name: str
    had: Any
    has: Any


def difference(before: Loop, now: Loop) -> Odd | None:
    """The first field in which two differ; bounds that are the same in float32 are the same."""
    for name in Loop._fields:
        had, has = getattr(before, name), getattr(now, name)
        with np.errstate(over="ignore"):
            same = np.array_equal(np.float32(had), np.float32(has))
        if not same:
            return Odd(name, had, has)
    return None


def refuse_other_loop(run: Path, loop: Loop) -> None:
    """Refuse sizes or bounds other than those the run was begun with."""
    odd = difference(read_loop(run), loop) if (run / FILE).exists() else None
    if odd is not None:
        raise ConfigError(
            f"{str(run)!r} was begun with {odd.name}={odd.had}, got {odd.has}; bring that back, or choose another out"
        )


def record_loop(run: Path, loop: Loop) -> None:
    """Write it down where it is new, or refuse another one than the run was begun with."""
    refuse_other_loop(run, loop)
    if not (run / FILE).exists():
        with disk.writing(run, ROOM):
            disk.write_atomically(run / FILE, disk.dump_json(loop._asdict(), indent=2))


def refuse_other_bounds(run: Path, world: World, env: str) -> None:
    """Refuse an environment, or a simulation in place of a control loop, in which an action means something else."""
    if not (run / FILE).exists():
        return
    odd = difference(read_loop(run)._replace(obs_dim=world.obs_dim), loop_of(world))
    if odd is not None:
        raise ConfigError(
            f"the run {str(run)!r} has actions with {odd.name}={odd.had}, but {env} has {odd.has}; "
            f"give an environment with the bounds that it was trained with"
        )


def read_loop(run: Path) -> Loop:
    """The inverse of `record_loop`."""
    try:
        loop = Loop(**json.loads(disk.read(run / FILE, at_most=LARGEST_CONFIG)))
        bounds = [(float(low), float(high)) for low, high in zip(loop.low, loop.high, strict=True)]
        possible = 0 < int(loop.obs_dim) <= 10**6 and 0 < len(bounds) <= 10**6
        if not possible or not all(-math.inf < low < high < math.inf for low, high in bounds):
            raise ValueError("sizes or bounds that cannot be")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{str(run / FILE)!r} cannot be read ({error}); remove it where it is damaged, and continue the run, which "
            f"writes it"
        ) from None
    return Loop(int(loop.obs_dim), [low for low, _ in bounds], [high for _, high in bounds])
