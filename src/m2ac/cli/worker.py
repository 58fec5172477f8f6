"""`python -m m2ac.cli.worker [--parent PID] [--core N] train …`: a command as one of many runs.

It keeps to one core, ends (saved) when the process that started it dies, and waits for a run directory that another
process is about to leave.
"""

import ctypes
import fcntl
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from m2ac.cli import main

PATIENCE = 900.0
"""Seconds for the process before us to save and leave, as it does when its parent has died; a fit can take minutes."""


def keep_to_one_core(wanted: int | None) -> int | None:
    """Confine this process to one core, before any thread is started; None where the system knows no affinity.

    On how many cores a product runs depend the last digits of its result. Unless a core is wanted, it is one that no
    other such process has, held by a lock until this one ends; where all have one, they are shared.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    usable = sorted(os.sched_getaffinity(0))
    core = wanted if wanted is not None else next(filter(_held, usable), usable[os.getpid() % len(usable)])
    os.sched_setaffinity(0, {core})
    return core


def _held(core: int) -> bool:
    """Whether no other process has the core, which is then held by this one."""
    folder = Path(tempfile.gettempdir()) / f"m2ac-cores-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(folder / str(core), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # and never closed but by the system
    except OSError:
        os.close(descriptor)
        return False
    return True


def end_with_parent(parent: int) -> None:
    """Have the system send SIGTERM, at which a run is saved, when the parent dies; Linux alone can do that."""
    if not sys.platform.startswith("linux"):
        return
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)
    if os.getppid() != parent:  # it has died already
        os.kill(os.getpid(), signal.SIGTERM)


def wait_for(directory: Path, patience: float = PATIENCE) -> None:
    """Until no other process trains in the directory, but not for ever."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            descriptor = os.open(directory / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # no run yet
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.2)
        finally:
            os.close(descriptor)


def work(args: list[str]) -> int:
    """Run the command as a worker; its exit code."""
    options: dict[str, int] = {}
    while args[0] in ("--parent", "--core"):
        options[args[0]], args = int(args[1]), args[2:]
    end_with_parent(options.get("--parent", os.getppid()))
    keep_to_one_core(options.get("--core"))
    if "--out" in args[:-1]:
        wait_for(Path(args[args.index("--out") + 1]))
    return main(args)


if __name__ == "__main__":
    sys.exit(work(sys.argv[1:]))
