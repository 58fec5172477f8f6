"""One run: train, resume, eval."""

import sys
from dataclasses import dataclass, replace
from typing import Annotated

import tyro

from m2ac.cli.parsing import check_data_is_given, confirmed_env, parse, with_config_file
from m2ac.config import LIVE, RunConfig, check_used
from m2ac.escaping import visible
from m2ac.settings import ConfigError, check


def train(args: list[str]) -> int:
    """`m2ac train`."""
    check_data_is_given(args)
    args, default = with_config_file(args)
    config = parse(
        RunConfig,
        args,
        "m2ac train",
        default=default,
        description="One training run. --config FILE takes the config.json of a run for the defaults of all below.",
    )
    check_used(config, default or RunConfig())
    return _execute(config)


@dataclass(frozen=True)
class OfRun:
    """What every command needs that goes on with a run."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    env: str | None = None
    """The run's environment, to be repeated where it is package.module:Id-v0: no file alone imports a module."""


@dataclass(frozen=True)
class Resumption(OfRun):
    """Continue a run from its last checkpoint, as if it had never stopped."""

    steps: int | None = None
    """Steps in all, if more than the run was to have: it goes on to there, also where it is finished."""


def resume(args: list[str]) -> int:
    """`m2ac resume`."""
    wanted = parse(Resumption, args, "m2ac resume")
    from m2ac.runs.directory import RunDirectory, longer

    config = replace(RunDirectory.read(wanted.run).config, out=wanted.run)
    check(config.env != LIVE, f"the run {wanted.run!r} is of a control loop; the same call of Live continues it")
    confirmed_env(config.env, wanted.env, where=f"the run {wanted.run!r}")
    if wanted.steps is None:
        return _execute(config)
    return _execute(longer(config, wanted.steps), lengthens=True)


def _execute(config: RunConfig, *, lengthens: bool = False) -> int:
    from m2ac.runs.caching import prepare_jax

    prepare_jax()
    from m2ac.runs.execute import execute

    result = execute(config, stream=sys.stderr, lengthens=lengthens)
    if result.returns:
        mean = sum(result.returns) / len(result.returns)
        print(f"mean return {mean:.1f} over {len(result.returns)} episodes at step {result.step}")
        print(f"learning curve: {visible(str(result.directory / 'learning_curve.png'))}")
    print(f"run directory: {visible(str(result.directory))}")
    if result.finished:
        return 0
    print("stopped and saved; the same command continues it", file=sys.stderr)
    return 128 + (result.signal or 0)


@dataclass(frozen=True)
class OfPolicy(OfRun):
    """What a command about a run's policy begins with."""

    best: bool = False
    """Take the policy of the run's best evaluation, not the one that was saved last."""


@dataclass(frozen=True)
class Evaluation(OfPolicy):
    """Score a trained run with its mean action."""

    episodes: int = 10
    """Episodes to play."""
    seed: int = 1_000_000
    """Seed of the episodes; the default differs from that of training."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ConfigError(f"episodes must be at least 1, got {self.episodes}; ten give a first impression")
        if self.seed < 0:
            raise ConfigError(f"seed must not be negative, got {self.seed}; leave it out for the usual episodes")


def evaluate(args: list[str]) -> int:
    """`m2ac eval`."""
    wanted = parse(Evaluation, args, "m2ac eval")
    from m2ac.envs import make_env
    from m2ac.envs.world import World
    from m2ac.runs.directory import RunDirectory
    from m2ac.runs.policy import must_fit, policy_of_run

    run = RunDirectory.read(wanted.run)
    env = confirmed_env(run.config.env, wanted.env, where=f"the run {wanted.run!r}")
    policy = policy_of_run(run.path, run.config, best=wanted.best)
    world = World(make_env(env), seed=wanted.seed, stream="eval", step_timeout=run.config.step_timeout)
    must_fit(policy, world, run=run.path, env=env)
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
