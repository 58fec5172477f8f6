"""`kill -9` inside the checkpoint writer: a usable checkpoint is always left."""

import os
import random
import signal
import time
import warnings
from pathlib import Path

from faults.row import Row
from faults.small import CONFIG, at_step
from faults.training import must_not_warn
from m2ac.learners.acting import ActingPolicy
from m2ac.runs import checkpoint
from m2ac.runs.policy import FILE, load_policy, save_policy

DEFAULT = 200
PROPERTY = "kill -9 inside the checkpoint writer: a loadable checkpoint is left"
LONGEST = 0.05
"""Seconds within which the writer is killed: some ten checkpoints."""


def run(n: int, scratch: Path) -> Row:
    """Kill a process n times that does nothing but save, prune and save again."""
    failures = []
    directory, step = scratch / "checkpoints", 0
    directory.mkdir()
    policy = ActingPolicy(at_step(0).learner.policy)
    _save(directory, 0, policy)
    for trial in range(n):
        rng = random.Random(trial)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fork beside threads: the child touches nothing but files
            child = os.fork()
        if child == 0:
            _write_until_killed(directory, step + 1, policy)
        time.sleep(rng.uniform(0.0, LONGEST))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        try:
            before, step = step, _newest(directory)
            load_policy(directory / FILE)
        except Exception as error:
            failures.append(f"trial {trial}: {type(error).__name__}: {error}")
            continue
        if step < before:
            failures.append(f"trial {trial}: step {before} was saved, and now the newest is {step}")
    return Row(PROPERTY, n, n - len(failures), failures)


def _save(directory: Path, step: int, policy: ActingPolicy) -> None:
    checkpoint.save(checkpoint.new_name(directory, step), at_step(step), CONFIG)
    checkpoint.prune(directory)
    save_policy(directory / FILE, policy)


def _write_until_killed(directory: Path, step: int, policy: ActingPolicy) -> None:
    try:
        while True:
            _save(directory, step, policy)
            step += 1
    finally:
        os._exit(1)  # never back into the parent's code


def _newest(directory: Path) -> int:
    """The step of the newest checkpoint, which must be whole at the first attempt."""
    found = checkpoint.load_newest(directory, warn=must_not_warn)
    assert found is not None
    expected = checkpoint.fingerprint(at_step(found.state.counters.steps))
    assert checkpoint.fingerprint(found.state) == expected, "another state than was saved"
    return found.state.counters.steps


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
