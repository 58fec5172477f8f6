"""A policy on disk for use without m2ac: all of its files, or none."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from m2ac.algorithms.state import State
from m2ac.config import LIVE
from m2ac.deploy.formats import FILES, FORMAT, README, RECORD, Export, check_formats, exported
from m2ac.deploy.network import network_of
from m2ac.envs import make_env
from m2ac.envs.nowhere import Nowhere
from m2ac.envs.world import World
from m2ac.learners.acting import ActingPolicy
from m2ac.runs import checkpoint, disk
from m2ac.runs.directory import RunDirectory
from m2ac.runs.environment import versions
from m2ac.runs.loop import read_loop
from m2ac.runs.policy import BEST, must_fit, policy_of_run, read_evaluated
from m2ac.settings import ConfigError

OUT = "export"
"""Where in a run directory an export is."""

SEED = 1_000_000
"""The episodes of `m2ac eval`."""

SEEN, EPISODES = 400, 20
"""Observations to be compared with, and episodes to find them in at most."""

LARGEST_RECORD = 2**20


class Exported(NamedTuple):
    """An export on disk."""

    path: Path
    about: Mapping[str, Any]
    export: Export


def export_run(
    path: str | os.PathLike[str],
    *,
    env: str,
    out: str | os.PathLike[str] | None = None,
    formats: Iterable[str] = ("numpy",),
    best: bool = False,
) -> Exported:
    """Export the policy of a run, the last or the `best`.

    `env` is the run's environment, which the user has confirmed where it imports a module. A control loop is nowhere to
    be played, so its policy is compared on the observations that it had.
    """
    chosen = check_formats(formats)
    run = RunDirectory.read(path)
    policy = policy_of_run(run.path, run.config, best=best)
    made, seen = (Nowhere(*read_loop(run.path)), _observed(run)) if env == LIVE else (make_env(env), None)
    world = World(made, seed=SEED, stream="eval", step_timeout=run.config.step_timeout)
    about = {
        "env": run.config.env,
        "algo": run.config.algo,
        "run": run.path.absolute().name,
        **_progress(run, best=best),
    }
    try:
        must_fit(policy, world, run=run.path, env=env)
        place = run.path / OUT if out is None else Path(out)
        return export_policy(place, policy, world, formats=chosen, about=about, seen=seen)
    finally:
        world.close()


def export_policy(
    out: Path,
    policy: ActingPolicy,
    world: World,
    *,
    formats: Iterable[str],
    about: Mapping[str, Any],
    seen: NDArray[np.float32] | None = None,
) -> Exported:
    """Export a policy, which is compared with what it was made of on observations of `world`, or on those given."""
    chosen = check_formats(formats)
    _must_be_replaceable(out)
    must_fit(policy, world, run=None, env=about["env"])
    about = {**about, "m2ac": versions()["m2ac"]}
    network = network_of(policy, world.scale)
    seen = _seen(world, policy) if seen is None else seen
    export = exported(network, lambda obs: world.scale.to_env(policy(obs)), seen, about, chosen)
    _write(out, export.files)
    return Exported(out, about, export)


def _seen(world: World, policy: ActingPolicy) -> NDArray[np.float32]:
    """What the policy observes while it acts."""
    seen: list[NDArray[np.float32]] = []
    for episode in range(EPISODES):
        seen.append(world.reset(episode))
        while len(seen) < SEEN:
            outcome = world.step(policy(seen[-1]))
            seen.append(outcome.next_obs)
            if outcome.terminated or outcome.truncated:
                break
        if len(seen) >= SEEN:
            break
    return np.stack(seen)


def _observed(run: RunDirectory) -> NDArray[np.float32]:
    """What a control loop observed lately."""
    found = checkpoint.load_newest(run.checkpoints, warn=lambda _: None)
    if found is None or not int(found.state.real.size):
        raise ConfigError(f"the run {str(run.path)!r} has no checkpoint with a step yet; close Live, which writes one")
    real = found.state.real
    newest = (int(real.last) - np.arange(min(SEEN, int(real.size)))) % real.slots
    seen = np.asarray(real.observations)[newest]
    return found.state.scaling.undo(seen) if isinstance(found.state, State) else seen


def _progress(run: RunDirectory, *, best: bool) -> dict[str, Any]:
    """Of which step the policy is, and what its evaluation, or the last one until then, found."""
    if best:
        found = read_evaluated(run.path / BEST)
        return {} if found is None else {"evaluated_at": found.step, **found._asdict(), "best": True}
    step = checkpoint.steps_saved(run.checkpoints)
    try:
        rows = [row for row in run.read_evals() if step is None or row["step"] <= step]
    except ConfigError:  # of a damaged log; the policy can be exported all the same
        rows = []
    if not rows:
        return {"step": step}
    last = rows[-1]["step"]
    returns = [row["return"] for row in rows if row["step"] == last]
    return {"step": step, "evaluated_at": last, "mean_return": sum(returns) / len(returns)}


def _write(out: Path, files: Mapping[str, bytes]) -> None:
    """Put the directory in place in one step."""
    out = out.absolute()
    temporary = disk.hidden(out, "tmp")
    with disk.writing(out, "make room there or choose another place"):
        try:
            disk.new_directory(temporary)
            for name, data in files.items():
                disk.write_new(temporary / name, [data])
            disk.sync_directory(temporary)
            _must_be_replaceable(out)  # again: somebody may have put something there meanwhile
            disk.put_in_place(temporary, out)
        finally:
            disk.remove_tree(temporary)


def _must_be_replaceable(out: Path) -> None:
    """An export replaces an earlier one or an empty directory, and never anything else that a user may have there."""
    if not out.is_symlink() and not out.exists():
        return
    if out.is_dir() and not out.is_symlink():
        found = {path.name for path in out.iterdir()} - {"__pycache__"}  # of an imported policy.py
        ours = {README, RECORD}.union(*FILES.values())
        if not found or (found <= ours and _is_export(out)):
            return
    raise ConfigError(f"{str(out)!r} exists and holds other things than an export; choose another place")


def _is_export(out: Path) -> bool:
    try:
        record = json.loads(disk.read(out / RECORD, at_most=LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and record.get("format") == FORMAT
