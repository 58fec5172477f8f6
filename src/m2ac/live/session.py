"""What a session of a control loop begins with: found out by the loop, before it moves anything, and by its learner."""

from pathlib import Path
from typing import NamedTuple

from m2ac.config import RunConfig
from m2ac.envs.nowhere import Nowhere
from m2ac.envs.world import World
from m2ac.resolving import resolve
from m2ac.runs.directory import RunDirectory
from m2ac.runs.experience import Past
from m2ac.runs.loop import Loop, refuse_other_loop


class Session(NamedTuple):
    """A loop and the settings asked for, made into what a training needs."""

    world: World  # in name only
    past: Past
    config: RunConfig  # with nothing left open


def session_of(asked: RunConfig, loop: Loop) -> Session:
    """The same in the loop and in its learner."""
    assert asked.steps is not None
    world = World(Nowhere(*loop), seed=0, stream="train")
    past = Past(asked.data, world, asked.out)
    config = resolve(asked, {}, action_dim=world.action_dim, steps=asked.steps, logged=past.size)
    return Session(world, past, config)


def must_begin(asked: RunConfig, loop: Loop) -> None:
    """Refuse what the learner would refuse some seconds later, when the loop acts already."""
    config = session_of(asked, loop).config
    if asked.out is not None:
        RunDirectory.try_open(asked.out, config, asked=asked)
        refuse_other_loop(Path(asked.out), loop)
