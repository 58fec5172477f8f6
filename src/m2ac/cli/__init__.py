"""The command line: parse, call, print. JAX and Gymnasium are imported only by the commands that need them."""

import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from m2ac.escaping import visible_line
from m2ac.settings import ConfigError, UserError, perhaps

COMMANDS = {
    "train": "training:train",
    "resume": "training:resume",
    "eval": "training:evaluate",
    "video": "filming:video",
    "export": "exporting:export",
    "trust": "trusting:trust",
    "reproduce": "reproducing:reproduce",
    "report": "reporting:report",
    "envs": "showing:envs",
    "bench": "showing:bench",
    "theory": "showing:theory",
}
"""The function of each command and the module of this package that has it; none is imported before it is wanted."""

USAGE = """\
m2ac: reinforcement learning that knows when to trust its model

  m2ac train [--env ID] [--algo m2ac|mbpo|sac|ppo|steve|mve|ddpg] [--horizon H] [--steps N] [--seed S] [--out DIR] …
                     one run; with no argument a task that is learned in a few minutes
  m2ac resume RUN    continue a run that was stopped, as does the same train command; --steps N goes on for longer
  m2ac eval RUN      score a trained run
  m2ac video RUN     film a trained run
  m2ac export RUN    a trained policy for use without m2ac: NumPy, StableHLO, ONNX
  m2ac trust RUN     whether its model deserves its trust, on fresh real episodes, and how far
  m2ac reproduce NAME  the runs of a figure of the paper, many at once, and a page that shows it
  m2ac report DIR…   one page of all runs in a directory: scores, curves, what the trust was worth
  m2ac envs          the tasks that are known by name
  m2ac bench         how fast training is on this machine
  m2ac theory        the paper's bounds, checked on small worlds where everything is known

m2ac COMMAND --help says more; rerunning a train command continues it."""


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: done; 2: wrong input; 1: the environment, the disk or the numbers failed on the way; 128 + n: stopped by signal n
    """
    args = sys.argv[1:] if argv is None else argv
    try:
        with _warnings_in_one_line():
            return _dispatch(args)
    except UserError as error:
        print(f"m2ac: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except BrokenPipeError:  # of a reader such as head, which has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        print(f"m2ac: {visible_line(str(error))}; mend that and try again", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("m2ac: interrupted; the same command starts again, or continues from the last save", file=sys.stderr)
        return 130
    except SystemExit as end:  # of --help
        return int(end.code or 0)


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Show a warning as what it says, without the line of code that gave it; above the live region where one is."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(message))
        print(f"warning: {visible_line(text)}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    if args[0] == "--version":
        from m2ac import __version__

        print(__version__)
        return 0
    if args[0] not in COMMANDS:
        raise ConfigError(f'there is no command "{args[0]}".{perhaps(args[0], COMMANDS)} See m2ac --help.')
    module, _, name = COMMANDS[args[0]].partition(":")
    command: Callable[[list[str]], int] = getattr(importlib.import_module(f"m2ac.cli.{module}"), name)
    return command(args[1:])
