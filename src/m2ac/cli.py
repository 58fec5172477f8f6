"""The command line: parse, call, print. JAX and Gymnasium are imported only by the commands that need them."""

import functools
import hashlib
import io
import json
import os
import platform
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Annotated, Any

from m2ac.config import ASKED, RunConfig
from m2ac.escaping import visible, visible_line
from m2ac.settings import ConfigError, UserError, check, from_dict, perhaps

USAGE = """\
m2ac: reinforcement learning that knows when to trust its model

  m2ac train [--env ID] [--algo m2ac|mbpo|sac|steve|mve|ddpg] [--horizon H] [--steps N] [--seed S] [--out DIR] …
                     one run; with no argument a task that a laptop learns in under three minutes
  m2ac resume RUN    continue a run that was stopped; so does the same train command
  m2ac eval RUN      score a trained run
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
    commands = {"train": _train, "resume": _resume, "eval": _eval, "envs": _envs, "bench": _bench, "theory": _theory}
    if not args or args[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    if args[0] == "--version":
        from m2ac import __version__

        print(__version__)
        return 0
    if args[0] not in commands:
        raise ConfigError(f'there is no command "{args[0]}".{perhaps(args[0], commands)} See m2ac --help.')
    return commands[args[0]](args[1:])


def _train(args: list[str]) -> int:
    args, default = _with_config_file(args)
    config = _parse(
        RunConfig,
        args,
        "m2ac train",
        default=default,
        description="One training run. --config FILE takes the config.json of a run for the defaults of all below.",
    )
    return _execute(config)


def _resume(args: list[str]) -> int:
    from dataclasses import dataclass, replace

    import tyro

    @dataclass(frozen=True)
    class Resumption:
        """Continue a run from its last checkpoint, as if it had never stopped."""

        run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
        """Run directory."""
        env: str | None = None
        """The run's environment, to be repeated where it is package.module:Id-v0: no file alone imports a module."""

    wanted = _parse(Resumption, args, "m2ac resume")
    from m2ac.runs.directory import RunDirectory

    config = RunDirectory.read(wanted.run).config
    confirmed_env(config.env, wanted.env, where=f"the run {wanted.run!r}")
    return _execute(replace(config, out=wanted.run))


def _execute(config: RunConfig) -> int:
    prepare_jax()
    from m2ac.runs.execute import execute

    result = execute(config, stream=sys.stderr)
    if result.returns:
        mean = sum(result.returns) / len(result.returns)
        print(f"mean return {mean:.1f} over {len(result.returns)} episodes at step {result.step}")
        print(f"learning curve: {visible(str(result.directory / 'learning_curve.png'))}")
    print(f"run directory: {visible(str(result.directory))}")
    if result.finished:
        return 0
    print("stopped and saved; the same command continues it", file=sys.stderr)
    return 128 + (result.signal or 0)


def _eval(args: list[str]) -> int:
    from dataclasses import dataclass

    import tyro

    @dataclass(frozen=True)
    class Evaluation:
        """Score a trained run with its mean action."""

        run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
        """Run directory."""
        episodes: int = 10
        """Episodes to play."""
        seed: int = 1_000_000
        """Seed of the episodes; the default differs from that of training."""
        env: str | None = None
        """The run's environment, to be repeated where it is package.module:Id-v0: no file alone imports a module."""

        def __post_init__(self) -> None:
            if self.episodes < 1:
                raise ConfigError(f"episodes must be at least 1, got {self.episodes}; ten give a first impression")
            if self.seed < 0:
                raise ConfigError(f"seed must not be negative, got {self.seed}; leave it out for the usual episodes")

    wanted = _parse(Evaluation, args, "m2ac eval")
    from m2ac.envs import make_env
    from m2ac.envs.world import World
    from m2ac.runs.checkpoint import load_policy
    from m2ac.runs.directory import RunDirectory

    run = RunDirectory.read(wanted.run)
    env = confirmed_env(run.config.env, wanted.env, where=f"the run {wanted.run!r}")
    policy = load_policy(run.path / "policy.safetensors", run.config)
    world = World(make_env(env), seed=wanted.seed, stream="eval", step_timeout=run.config.step_timeout)
    sizes = policy.obs_dim, policy.action_dim
    if sizes != (world.obs_dim, world.action_dim):
        raise ConfigError(
            f"the policy of {wanted.run!r} has {sizes[0]} observations and {sizes[1]} actions, but {run.config.env} "
            f"has {world.obs_dim} and {world.action_dim}; continue the training, which writes it anew"
        )
    returns: list[float] = []
    for number in range(wanted.episodes):
        played = world.play(policy, number)
        returns.append(played.total)
        print(f"episode {number:3d}  seed {played.seed:10d}  length {played.length:5d}  return {played.total:10.2f}")
    world.close()
    mean = sum(returns) / len(returns)
    spread = (sum((r - mean) ** 2 for r in returns) / len(returns)) ** 0.5
    print(f"mean return {mean:.2f} ± {spread:.2f} over {len(returns)} episodes")
    return 0


def _envs(args: list[str]) -> int:
    if args and args[0] in ("-h", "--help"):
        print("usage: m2ac envs\n\nLists the tasks known by name; any other Gymnasium id works too.")
        return 0
    if args:
        raise ConfigError(f"m2ac envs takes no arguments, got {' '.join(args)!r}; leave them out")
    from m2ac.envs import TASKS

    width = max(len(name) for name in TASKS)
    for task in TASKS.values():
        steps = task.defaults.get("steps", "")
        ends = "known" if task.terminated is not None else "learned"
        print(f"{task.name:{width}}  {task.env_id:32}  {steps:>7} steps  termination {ends:7}  {task.summary}")
    print('\nAny other Gymnasium id works as well, also "package.module:Id-v0"; termination is then learned.')
    return 0


def _bench(args: list[str]) -> int:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Bench:
        """Time every phase of training on this machine, beside the fastest matrix product it can do."""

        quick: bool = False
        """The phases alone, in under a minute; without it also how their cost grows with sizes."""
        json: str | None = None
        """Write the numbers, with the machine and the versions, to this file."""

    wanted = _parse(Bench, args, "m2ac bench")
    from m2ac.bench import bench
    from m2ac.runs.disk import dump_json, write_atomically
    from m2ac.runs.environment import describe_environment

    result = bench(quick=wanted.quick, tell=functools.partial(print, flush=True))
    if wanted.json is not None:
        write_atomically(Path(wanted.json), dump_json({**result, "environment": describe_environment()}, indent=2))
        print(f"written to {visible(wanted.json)}")
    return 0


def _theory(args: list[str]) -> int:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Theory:
        """Check every statement of the paper's theory exactly, on small random worlds, and draw the bounds."""

        mdps: int = 2000
        """Random worlds: dense, sparse, nearly deterministic and adversarial ones in equal parts."""
        seed: int = 0
        """Everything random follows from it."""
        picture: str | None = "theory.png"
        """Where to draw gap and bound as the mask, the model and the rollouts change; None draws nothing."""

    wanted = _parse(Theory, args, "m2ac theory")
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


def _parse(kind: type[Any], args: list[str], prog: str, *, default: Any = None, description: str | None = None) -> Any:
    """tyro's result, or its complaint as one line."""
    import tyro

    said = io.StringIO()
    given = {} if default is None else {"default": default}
    try:
        with redirect_stderr(said):
            return tyro.cli(kind, args=args, prog=prog, description=description, **given)
    except SystemExit as end:
        if not end.code:
            raise
        raise ConfigError(f"{one_line(said.getvalue())} See {prog} --help.") from None


def one_line(box: str) -> str:
    """The message of one of tyro's boxes, with its first suggestion; a terminal without Unicode has rules for boxes."""
    lines = [line.strip("│╭╮╰╯ ") for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    sections: list[list[str]] = [[]]
    for line in lines[1:]:  # after the title
        if line and not line.strip("─-"):
            sections.append([])
        elif line:
            sections[-1].append(line)
    sections = [section for section in sections if section]
    message = " ".join(" ".join(sections[0]).split()).rstrip(".") + "."
    message = _plainly(message)
    for section in sections[1:]:
        if section[0].startswith("Perhaps you meant") and len(section) > 1:
            message += f' Perhaps you meant "{section[1].split()[0]}"?'
    return message


def _plainly(message: str) -> str:
    """tyro's complaint about a value in the words of our own."""
    for pattern, words in (
        (r"no type matching (?P<kind>\S+) could.* from \[(?P<value>.*?)\]\..*", None),
        (r"invalid literal for int\(\) with base 10: (?P<value>.*)\.", "a whole number"),
        (r"could not convert string to float: (?P<value>.*)\.", "a number"),
        (r"Could not find valid parse for arguments: \[(?P<value>.*)\]\.", "as the help says"),
    ):
        found = re.fullmatch(rf"Error parsing (?P<name>\S+): {pattern}", message)
        if found:
            kind = words or " or ".join(_KINDS.get(k, f'"{k.strip("{}")}"') for k in found["kind"].split("|"))
            return f"{found['name']} must be {kind}, got {found['value']}."
    return message


_KINDS = {"INT": "a whole number", "FLOAT": "a number", "{None}": "None"}


def _with_config_file(args: list[str]) -> tuple[list[str], RunConfig | None]:
    """Take `--config FILE` out of the arguments; the file's values are the defaults of the others."""
    for i, arg in enumerate(args):
        name, _, value = arg.partition("=")
        if name != "--config":
            continue
        rest = args[:i] + args[i + 1 :]
        if not value:
            if len(args) == i + 1:
                raise ConfigError("--config needs a file, such as the config.json of a run")
            value, rest = args[i + 1], args[:i] + args[i + 2 :]
        values = _config_file(value)
        try:
            default = from_dict(RunConfig, values)
            check(default.env.isprintable(), f"env must be printable text, got {default.env!r}; see m2ac envs")
        except ConfigError as error:
            raise ConfigError(f"--config {value}: {error}") from None
        if not any(arg.partition("=")[0] == "--env" for arg in rest):
            confirmed_env(default.env, None, where=f"--config {value}")
        return rest, default
    return args, None


def _config_file(path: str) -> Any:
    """The settings in a run's `config.json`, or whatever else is in the file."""
    from m2ac.runs.directory import LARGEST_CONFIG

    remedy = "give the config.json of a run"
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST_CONFIG + 1)
        check(len(text) <= LARGEST_CONFIG, f"--config {path} has more than {LARGEST_CONFIG} bytes; {remedy}")
        values = json.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read --config {path}: {error.strerror}; {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path} is not JSON: {error}; {remedy}") from None
    if isinstance(values, dict):
        # What was asked for, not what it came to: with another task or algorithm that would come to something else.
        values = values.get(ASKED, values)
    if isinstance(values, dict):
        values.pop("out", None)  # the file's run has that directory
    return values


def confirmed_env(stored: str, named: str | None, *, where: str) -> str:
    """The environment that a file stores, where the user names it too or it imports no module.

    `package.module:Id-v0` imports, hence runs, whatever module it names. The command line may ask for that; a file,
    which may have come from anybody, may not.
    """
    module, _, _ = stored.rpartition(":")
    if named is None and module and module not in sys.modules:
        raise ConfigError(
            f"{where} has the environment {stored!r}, for which a module of code would be imported; "
            f"if you trust it, add --env {shlex.quote(stored)}"
        )
    check(named in (None, stored), f"{where} has the environment {stored!r}, got --env {named!r}; leave it out")
    return stored


def prepare_jax() -> None:
    """Keep compiled programs between runs: the second start is faster by the time they took to compile."""
    # Programs are made for one kind of processor; a home directory may be shared by several.
    kind = hashlib.sha256(_processor().encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "m2ac" / "jax" / kind
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


def _processor() -> str:
    """What this processor can do, as far as it says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
