"""Run directories kept elsewhere, such as in an object store: brought here, worked on, and sent back."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from m2ac.runs import disk
from m2ac.settings import ConfigError

EVERY = 30.0
"""Seconds between two looks whether there is something new to send."""

PAUSES = (1.0, 10.0, 60.0)
"""Seconds before each further attempt to send what a run came to."""

_LAST = "DONE"
_CHECKPOINTS, _SEAL = "checkpoints/", "manifest.json"
"""A checkpoint is whole where it has the file that is sent last of it."""


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
        """Bring what there is of a run, leaving nothing else of it here.

        A checkpoint that was not sent to its end is left there, to be removed when the run has been sent again.
        """
        disk.remove_tree(to)
        self._files.invalidate_cache()
        remote = f"{self._root}/{name}"
        if not self._files.exists(remote):
            return
        found = {path[len(remote) :].lstrip("/"): path for path in self._files.find(remote)}
        for relative, path in found.items():
            folder = relative.rpartition("/")[0]
            if ".." in relative.split("/"):  # an object may have any name
                continue
            if relative.startswith(_CHECKPOINTS) and not (checkpoints and f"{folder}/{_SEAL}" in found):
                self._sent[f"{remote}/{relative}"] = 0, 0
                continue
            target = to / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(path, str(target))
            self._sent[f"{remote}/{relative}"] = _version(target)

    def send(self, name: str, run: Path) -> None:
        """Make the copy of a run like the run; what was interrupted leaves at worst a checkpoint without its seal.

        The checkpoints are listed before the logs are sent, and sent after them: a log is never behind a checkpoint.
        `DONE` is last.
        """
        checkpoints = sorted(filter(_in_checkpoint, _below(run)), key=_seal_last)
        others = [path for path in _below(run) if not _in_checkpoint(path) and path not in ("lock", _LAST)]
        for path in [*others, *checkpoints, *([_LAST] if (run / _LAST).exists() else [])]:
            self._send_file(name, run, path)
        here = set(_below(run))
        remote = f"{self._root}/{name}"
        for path in [path for path in self._sent if path.startswith(f"{remote}/{_CHECKPOINTS}")]:
            if path[len(remote) + 1 :] not in here:
                with suppress(FileNotFoundError):
                    self._files.rm_file(path)
                del self._sent[path]

    def _send_file(self, name: str, run: Path, path: str) -> None:
        remote = f"{self._root}/{name}/{path}"
        try:
            now = _version(run / path)
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
                with suppress(Exception):  # of the network, by whatever name; the next look sends it
                    self.send(name, run)

        sender = threading.Thread(target=keep_sending, daemon=True)
        sender.start()
        try:
            yield
        finally:
            over.set()
            sender.join()
            if run.exists():
                self._send_at_last(name, run)

    def _send_at_last(self, name: str, run: Path) -> None:
        for pause in PAUSES:
            with suppress(Exception):  # of the network, by whatever name
                return self.send(name, run)
            time.sleep(pause)
        return self.send(name, run)


def _in_checkpoint(path: str) -> bool:
    return path.startswith(_CHECKPOINTS)


def _seal_last(path: str) -> tuple[str, bool, str]:
    """Sorts the files of each checkpoint."""
    folder, _, file = path.rpartition("/")
    return folder, file == _SEAL, file


def _version(path: Path) -> tuple[int, int]:
    """What changes when the file does."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _below(run: Path) -> list[str]:
    """Every file of a run that is not on its way to a name."""
    found = []
    for folder, below, files in os.walk(run):
        below[:] = sorted(each for each in below if not each.startswith("."))
        found += [
            os.path.relpath(os.path.join(folder, file), run) for file in sorted(files) if not file.startswith(".")
        ]
    return found
