"""Run directories kept elsewhere, such as in an object store: brought here, worked on, and sent back."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from m2ac.settings import ConfigError

EVERY = 30.0
"""Seconds between two looks whether there is something new to send."""

_LAST = "DONE"


def is_url(path: str) -> bool:
    """Whether the path is for fsspec, such as s3://bucket/runs, and not for the file system."""
    return "://" in path


class Store:
    """A folder of run directories at a URL that fsspec knows."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise ConfigError(f"{url!r} needs fsspec; pip install 'm2ac[ray]', or give a directory") from None
        try:
            found: tuple[Any, str] = url_to_fs(url)
        except (ValueError, ImportError, OSError) as error:
            raise ConfigError(f"cannot use {url!r}: {error}; give another --out") from error
        self._files, root = found
        self._root = root.rstrip("/")
        self._sent: dict[str, tuple[int, int]] = {}

    def fetch(self, name: str, to: Path, *, checkpoints: bool) -> None:
        """Bring what there is of a run, leaving nothing else of it here."""
        shutil.rmtree(to, ignore_errors=True)
        self._files.invalidate_cache()
        remote = f"{self._root}/{name}"
        if not self._files.exists(remote):
            return
        for path in self._files.find(remote):
            relative = path[len(remote) :].lstrip("/")
            if not checkpoints and relative.startswith("checkpoints/"):
                continue
            target = to / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(path, str(target))

    def send(self, name: str, run: Path) -> None:
        """Make the copy of a run like the run; what was interrupted leaves at worst one checkpoint incomplete.

        The checkpoints are listed before the logs are sent, and sent after them: a log is never behind a checkpoint.
        `DONE` is last.
        """
        checkpoints = [path for path in _below(run) if path.startswith("checkpoints/")]
        others = [path for path in _below(run) if not path.startswith("checkpoints/") and path not in ("lock", _LAST)]
        for path in [*others, *checkpoints, *([_LAST] if (run / _LAST).exists() else [])]:
            self._send_file(name, run, path)
        here = set(_below(run))
        remote = f"{self._root}/{name}"
        for path in [path for path in self._sent if path.startswith(f"{remote}/checkpoints/")]:
            if path[len(remote) + 1 :] not in here:
                self._files.rm_file(path)
                del self._sent[path]

    def _send_file(self, name: str, run: Path, path: str) -> None:
        remote = f"{self._root}/{name}/{path}"
        try:
            status = os.stat(run / path)
            now = status.st_size, status.st_mtime_ns
            if self._sent.get(remote) == now:
                return
            self._files.makedirs(remote.rpartition("/")[0], exist_ok=True)
            self._files.put_file(str(run / path), remote)
        except FileNotFoundError:  # an old checkpoint, removed meanwhile
            return
        self._sent[remote] = now

    @contextmanager
    def mirrored(self, name: str, run: Path, every: float = EVERY) -> Iterator[None]:
        """Bring a run here, send what is new as it comes, and all of it at the end."""
        self.fetch(name, run, checkpoints=True)
        over = threading.Event()

        def keep_sending() -> None:
            while not over.wait(every):
                self.send(name, run)

        sender = threading.Thread(target=keep_sending, daemon=True)
        sender.start()
        try:
            yield
        finally:
            over.set()
            sender.join()
            if run.exists():
                self.send(name, run)


def _below(run: Path) -> list[str]:
    """Every file of a run that is not on its way to a name."""
    found = []
    for folder, below, files in os.walk(run):
        below[:] = sorted(each for each in below if not each.startswith("."))
        found += [
            os.path.relpath(os.path.join(folder, file), run) for file in sorted(files) if not file.startswith(".")
        ]
    return found
