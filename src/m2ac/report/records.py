"""What a report knows of a run, read from its directory by `m2ac.runs.collecting`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Record:
    """One run, finished or not."""

    name: str
    """Of its directory, unique within a report."""
    env: str
    algo: str
    horizon: int | None
    seed: int
    steps: int
    """How many it is to take."""
    settings: str
    """What sets it apart beyond the above, such as "mask.rate=0.25 mask.stop=hardstop"; empty where nothing does."""
    state: Literal["finished", "unfinished"]
    config: Mapping[str, Any]
    """Every setting as it was resolved, groups nested."""
    environment: Mapping[str, Any]
    """Versions, processor, commit, command line; empty where it could not be read."""
    command: str
    """What makes the run again."""
    evals: Sequence[Mapping[str, Any]] = ()
    """A row per evaluation episode: step, episode, seed, return, length, seconds."""
    metrics: Sequence[Mapping[str, Any]] = ()
    """A row per cycle, as in `metrics.jsonl`."""
    shared: str = ""
    """What was set for all runs of its algorithm in a report alike, and so is not among the settings."""
    folder: Path | None = None
    """The resolved directory that its own lies in."""
    film: bytes | None = field(default=None, repr=False)
    """An animated WebP of the policy, where one was made."""
