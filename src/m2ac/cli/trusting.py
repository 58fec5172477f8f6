"""Whether a run's model deserves its trust: trust."""

import math
from dataclasses import dataclass
from pathlib import Path

from m2ac.cli.parsing import confirmed_env, parse
from m2ac.cli.reporting import show_page, warn
from m2ac.cli.training import OfRun
from m2ac.escaping import visible
from m2ac.settings import check


@dataclass(frozen=True)
class Trust(OfRun):
    """Hold a run's model against fresh real episodes: does it deserve its trust, and how far?

    Played with the policy of the newest checkpoint, with sampled actions as in training, so that states differ. Says
    which rollout length and mask rate the task would bear, and leaves a page with every picture and a file of numbers.
    """

    episodes: int = 5
    """Real episodes to play; more make the intervals narrower."""
    seed: int = 1_000_000
    """Seed of the episodes; the default gives the start states of m2ac eval."""
    horizon: int = 20
    """Steps that the model is followed on its own."""
    threshold: float = 0.5
    """Of the suggested length: spreads of the observation that the median kept row may be off."""
    gain: float = 0.1
    """Of the suggested rate: the share of the mean error that dropping must take away."""
    mean: bool = False
    """Act with the mean action in place of sampled ones."""
    out: str | None = None
    """Directory for trust.html and trust.json. None: the run directory."""
    json: str | None = None
    """File for the numbers, in place of trust.json."""
    open: bool = False
    """Show the page in the browser."""

    def __post_init__(self) -> None:
        check(self.episodes >= 1, f"episodes must be at least 1, got {self.episodes}; 5 is the default")
        check(self.seed >= 0, f"seed must not be negative, got {self.seed}; leave it out for the usual episodes")
        check(1 <= self.horizon <= 1000, f"horizon must be in 1 to 1000, got {self.horizon}; 20 is the default")
        within = math.isfinite(self.threshold) and self.threshold > 0
        check(within, f"threshold must be positive, got {self.threshold}; 0.5 is the default")
        check(0 < self.gain < 1, f"gain must be in (0, 1), got {self.gain}; 0.1 is the default")


def trust(args: list[str]) -> int:
    """`m2ac trust`."""
    wanted: Trust = parse(Trust, args, "m2ac trust")
    from m2ac.runs.caching import prepare_jax
    from m2ac.runs.directory import RunDirectory

    prepare_jax()
    run = RunDirectory.read(wanted.run)
    env = confirmed_env(run.config.env, wanted.env, where=f"the run {wanted.run!r}")
    from m2ac.runs.trusting import Wanted, examine, write
    from m2ac.trust.suggest import Rule
    from m2ac.trust.telling import lines

    how = Wanted(wanted.episodes, wanted.seed, wanted.horizon, not wanted.mean, Rule(wanted.threshold, wanted.gain))
    found = examine(run, how, env=env, tell=warn)
    for line in lines(found):
        print(visible(line))
    page, numbers = write(
        found,
        run.path if wanted.out is None else Path(wanted.out),
        None if wanted.json is None else Path(wanted.json),
    )
    print(f"page: {visible(str(page))}")
    print(f"numbers: {visible(str(numbers))}", flush=True)
    if wanted.open:
        show_page(page)
    return 0
