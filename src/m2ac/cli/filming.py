"""A film of a run: video."""

import functools
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m2ac.cli.parsing import confirmed_env, parse
from m2ac.cli.training import OfPolicy
from m2ac.escaping import visible
from m2ac.settings import ConfigError, check


@dataclass(frozen=True)
class Video(OfPolicy):
    """Film a trained run that acts with its mean action."""

    episodes: int = 1
    """Episodes to film, one after the other."""
    seed: int = 1_000_000
    """Seed of the episodes; the default gives those of m2ac eval."""
    length: float = 10.0
    """Seconds of each episode at most, in the time of the task; the film has 60 at most."""
    out: str | None = None
    """File to write, which ends in .webp, .gif or .mp4; the default is film.webp in the run directory,
    best_film.webp with --best."""

    def __post_init__(self) -> None:
        check(self.episodes >= 1, f"episodes must be at least 1, got {self.episodes}; one is the default")
        check(self.seed >= 0, f"seed must not be negative, got {self.seed}; leave it out for the usual episodes")
        seconds = math.isfinite(self.length) and self.length > 0
        check(seconds, f"length must be a positive number of seconds, got {self.length}; 10 is the default")


def video(args: list[str]) -> int:
    """`m2ac video`."""
    wanted = parse(Video, args, "m2ac video")
    from m2ac.runs.collecting import FILM
    from m2ac.runs.directory import RunDirectory
    from m2ac.runs.film import LONGEST, make_film, write_film

    lasts = wanted.episodes * wanted.length
    check(
        lasts <= LONGEST,
        f"a film has {LONGEST:g} s at most, got {wanted.episodes} × {wanted.length:g} s; lower --episodes or --length",
    )
    run = RunDirectory.read(wanted.run)
    env = confirmed_env(run.config.env, wanted.env, where=f"the run {wanted.run!r}")
    out = run.path / (f"best_{FILM}" if wanted.best else FILM) if wanted.out is None else Path(wanted.out)
    kind = _kind_of(out)
    tell = functools.partial(print, file=sys.stderr, flush=True)
    how = {"episodes": wanted.episodes, "seed": wanted.seed, "length": wanted.length, "best": wanted.best}
    film = make_film(run.path, env=env, kind=kind, tell=tell, **how)
    write_film(out, film)
    for number, played in enumerate(film.episodes):
        print(
            f"episode {number:3d}  seed {played.seed:10d}  {played.steps:5d} steps shown  return {played.total:10.2f}"
        )
    print(
        f"film: {visible(str(out))} ({film.pictures / film.fps:.1f} s, {film.pictures} pictures, "
        f"{len(film.data) / 1e6:.2f} MB)"
    )
    return 0


def _kind_of(out: Path) -> Any:
    """The kind of film that the file's name asks for, where such a file can be written."""
    from m2ac.report.moving_picture import KINDS

    kind = out.suffix[1:].lower()
    names = " or ".join(f".{each}" for each in KINDS)
    check(kind in KINDS, f"out must end in {names}, got {str(out)!r}; WebP is the smallest that needs no extra")
    if not out.parent.is_dir():
        raise ConfigError(f"there is no directory for --out {str(out)!r}; make it first or give another")
    return kind
