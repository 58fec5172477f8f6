"""The sizes and bounds of a control loop, kept with its run: no environment knows them."""

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
    """What a loop observes and how it acts."""

    obs_dim: int
    low: list[float]  # of actions
    high: list[float]


def must_be_loop(run: Path, loop: Loop) -> None:
    """Refuse another loop than the one the run was begun with, where there is one."""
    if (run / FILE).exists():
        before = read_loop(run)
        odd = next((name for name in Loop._fields if getattr(before, name) != getattr(loop, name)), None)
        if odd is not None:
            raise ConfigError(
                f"{str(run)!r} holds a run of a control loop with {odd}={getattr(before, odd)}, "
                f"got {getattr(loop, odd)}; choose another out"
            )


def record_loop(run: Path, loop: Loop) -> None:
    """Write it down, or refuse another loop than the one the run was begun with."""
    must_be_loop(run, loop)
    with disk.writing(run, ROOM):
        disk.write_atomically(run / FILE, disk.dump_json(loop._asdict(), indent=2))


def must_be_alike(run: Path, world: World, env: str) -> None:
    """A simulation stands for a control loop only where an action means the same: a policy acts in shares of bounds."""
    if not (run / FILE).exists():
        return
    loop = read_loop(run)
    for name, ours, theirs in (("low", loop.low, world.scale.low), ("high", loop.high, world.scale.high)):
        if not np.array_equal(np.asarray(ours, dtype=theirs.dtype), theirs):
            raise ConfigError(
                f"the control loop of {str(run)!r} has actions with {name}={ours}, but {env} has {theirs.tolist()}; "
                f"give a simulation with the loop's own bounds"
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
            f"{str(run / FILE)!r} cannot be read ({error}); remove it where it is damaged, and the same call of Live "
            f"writes it"
        ) from None
    return Loop(int(loop.obs_dim), [low for low, _ in bounds], [high for _, high in bounds])
