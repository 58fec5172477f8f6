"""Where a run was made: versions, machine, git state and command line. No host name, no user name."""

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

# A repository's configuration can name commands for git to run, and it may have come with a run from anybody.
_NO_COMMANDS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never")

PACKAGES = ("m2ac", "jax", "jaxlib", "numpy", "optax", "gymnasium", "mujoco")


def describe_environment() -> dict[str, Any]:
    """What `environment.json` holds; importing none of the packages it names."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": versions(),
        "git": git_state(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],  # where it is installed may name its user
    }


def versions() -> dict[str, str | None]:
    """The version of everything that has a say in the numbers."""
    return {name: _version(name) for name in PACKAGES}


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The processor's name, with its family and model: virtual machines give one name to several generations.

    None where the system does not tell.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told: dict[str, str] = {}
    for key, _, value in (line.partition(":") for line in lines):
        told.setdefault(key.strip(), value.strip())
    kind = [f"{word} {told[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in told]
    return ", ".join([told["model name"], *kind]) if "model name" in told else platform.processor() or None


def memory_mib() -> float | None:
    """Memory of this process that is in use now; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def git_state(directory: Path | None = None) -> dict[str, Any] | None:
    """Commit and whether files differ from it, for `directory` or the working directory; None outside a repository."""
    commit = _git("rev-parse", "HEAD", directory=directory)
    # To compare files, status runs the filters of the repository's own configuration, which may come from anybody.
    filters = _git("config", "--show-scope", "--get-regexp", r"^filter\.", directory=directory) or ""
    own = any(line.startswith(("local", "worktree")) for line in filters.splitlines())
    changes = None if own else _git("status", "--porcelain", "--ignore-submodules=all", directory=directory)
    return None if commit is None else {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(*arguments: str, directory: Path | None) -> str | None:
    # Without --no-optional-locks, status writes the index and can collide with the user's own git.
    command = ["git", "--no-optional-locks", *_NO_COMMANDS, *arguments]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
