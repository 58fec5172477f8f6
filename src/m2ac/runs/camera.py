"""The process that plays a run's policy and draws it; started by `m2ac.runs.film`, which says with which graphics.

What it says goes through its standard output: lines of JSON, each followed by as many bytes as its "bytes" says. Only
the last one has "done" or "failed", so whoever reads knows of a process that died.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any

from m2ac.envs.film import RenderError, drawable, pace_of, shots
from m2ac.envs.world import World
from m2ac.runs.directory import RunDirectory
from m2ac.runs.policy import must_fit, policy_of_run
from m2ac.settings import ConfigError, UserError

Message = tuple[dict[str, Any], bytes]


def main(args: list[str]) -> int:
    """Film what the JSON in the only argument asks for."""
    # What an environment prints, as pygame does when imported, must not get between the pictures.
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with pipe:
        try:
            for message in _filmed(json.loads(args[0])):
                _send(pipe, message)
        except UserError as error:
            kind = (
                "config" if isinstance(error, ConfigError) else "render" if isinstance(error, RenderError) else "other"
            )
            _send(pipe, ({"failed": kind, "words": str(error)}, b""))
        else:
            _send(pipe, ({"done": True}, b""))
    return 0


def _send(pipe: IO[bytes], message: Message) -> None:
    values, data = message
    pipe.write(json.dumps({**values, "bytes": len(data)}).encode() + b"\n" + data)
    pipe.flush()


def _filmed(wanted: Mapping[str, Any]) -> Iterator[Message]:
    run = RunDirectory.read(wanted["run"])
    policy = policy_of_run(run.path, run.config, best=wanted["best"])
    env = drawable(wanted["env"])
    world = World(env, seed=wanted["seed"], stream="eval", step_timeout=run.config.step_timeout)
    must_fit(policy, world, run=run.path, env=wanted["env"])
    pace = pace_of(env)
    pictures = max(1, round(wanted["length"] * pace.fps))
    for shot in shots(world, policy, episodes=wanted["episodes"], pictures=pictures, every=pace.every):
        about = {"episode": shot.episode, "seed": shot.seed, "step": shot.step, "total": shot.total, "fps": pace.fps}
        yield {**about, "shape": shot.picture.shape}, shot.picture.tobytes()
    world.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
