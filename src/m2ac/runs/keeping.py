"""A training kept in its run directory, and taken up from it."""

from m2ac.algorithms.choice import AnyTraining
from m2ac.config import RunConfig
from m2ac.runs import checkpoint
from m2ac.runs.directory import Logged, RunDirectory
from m2ac.runs.policy import FILE, save_policy


def take_up(found: checkpoint.Checkpoint, training: AnyTraining, directory: RunDirectory) -> tuple[float, bool]:
    """Go on with the run's own notes: its time, its logs, the cycle that was under way.

    Gives the seconds that the run took so far, and whether its logs have every line up to there.
    """
    try:
        elapsed = float(found.manifest["elapsed"])
        logged = Logged(*(abs(int(found.manifest["logged"][name])) for name in Logged._fields))
        training.take_up(found.manifest["cycle"], found.losses)
    except (KeyError, TypeError, ValueError) as error:
        raise checkpoint.CheckpointError(
            f"{found.path} is not of a run, or damaged ({error!r}); delete it to use the one before"
        ) from error
    return elapsed, directory.cut_back(logged)


def save_run(directory: RunDirectory, training: AnyTraining, config: RunConfig, elapsed: float) -> None:
    """Write the whole state, then the policy alone; first what is logged, so that it is never behind."""
    logged = directory.logged()._asdict()
    path = checkpoint.new_name(directory.checkpoints, training.step)
    cycle, losses = training.unfinished()
    checkpoint.save(path, training.state, config, losses=losses, elapsed=elapsed, logged=logged, cycle=cycle)
    checkpoint.prune(directory.checkpoints)
    save_policy(directory.path / FILE, training.acting_policy())
