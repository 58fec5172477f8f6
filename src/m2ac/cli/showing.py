"""What there is and how fast it is here: envs, bench, theory."""

import functools
from dataclasses import dataclass
from pathlib import Path

from m2ac.cli.parsing import parse
from m2ac.escaping import visible
from m2ac.settings import ConfigError, check


def envs(args: list[str]) -> int:
    """`m2ac envs`."""
    if args and args[0] in ("-h", "--help"):
        print("usage: m2ac envs\n\nLists the tasks known by name; others with continuous actions work by their id.")
        return 0
    if args:
        raise ConfigError(f"m2ac envs takes no arguments, got {' '.join(args)!r}; leave them out")
    from m2ac.envs import TASKS

    width = max(len(name) for name in TASKS)
    for task in TASKS.values():
        steps = task.defaults.get("steps", "")
        ends = "known" if task.terminated is not None else "learned"
        print(f"{task.name:{width}}  {task.env_id:32}  {steps:>7} steps  termination {ends:7}  {task.summary}")
    print(
        '\nAny other id works if its actions are continuous, also "package.module:Id-v0"; termination is then learned.'
    )
    return 0


@dataclass(frozen=True)
class Bench:
    """Time every phase of training on this machine, beside the fastest matrix product it can do."""

    quick: bool = False
    """The phases alone, in under a minute; without it also how their cost grows with sizes."""
    json: str | None = None
    """Write the numbers, with the machine and the versions, to this file."""


def bench(args: list[str]) -> int:
    """`m2ac bench`."""
    wanted = parse(Bench, args, "m2ac bench")
    from m2ac.bench import bench as measure
    from m2ac.runs.disk import dump_json, write_atomically
    from m2ac.runs.environment import describe_environment

    result = measure(quick=wanted.quick, tell=functools.partial(print, flush=True))
    if wanted.json is not None:
        write_atomically(Path(wanted.json), dump_json({**result, "environment": describe_environment()}, indent=2))
        print(f"written to {visible(wanted.json)}")
    return 0


@dataclass(frozen=True)
class Theory:
    """Check every statement of the paper's theory exactly, on small random worlds, and draw the bounds."""

    mdps: int = 2000
    """Random worlds: dense, sparse, nearly deterministic and adversarial ones in equal parts."""
    seed: int = 0
    """Everything random follows from it."""
    picture: str | None = "theory.png"
    """Where to draw gap and bound as the mask, the model and the rollouts change; None draws nothing."""


def theory(args: list[str]) -> int:
    """`m2ac theory`."""
    wanted = parse(Theory, args, "m2ac theory")
    check(1 <= wanted.mdps <= 1_000_000, f"mdps must be in [1, 1000000], got {wanted.mdps}; 2000 take seconds")
    check(0 <= wanted.seed < 2**32, f"seed must be in [0, 2**32), got {wanted.seed}; any whole number in it will do")
    from m2ac.theory.tell import curves, tell

    as_expected = tell(wanted.mdps, wanted.seed, print)
    if wanted.picture is not None:
        from m2ac.report.theory import draw_theory
        from m2ac.runs import disk

        with disk.writing(Path(wanted.picture), "give another --picture, or None"):
            draw_theory(*curves(), wanted.picture)
        print(f"\ngap and bound as mask, model and rollouts change: {visible(wanted.picture)}")
    return 0 if as_expected else 1
