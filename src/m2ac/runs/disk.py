"""Writing and reading files so that a crash, a full disk or a planted file does no harm.

Everything that a run writes goes through here. What replaces a file is written under another name, synced and renamed:
whoever looks sees the old content or the new, never a part. No symbolic link is followed to a file outside.
"""

import errno
import glob
import json
import math
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from m2ac.settings import UserError

Piece = bytes | memoryview

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # not waiting: a pipe may never have a writer


class DiskError(UserError):
    """Something could not be written; what was there before is as it was."""


@contextmanager
def writing(path: Path, remedy: str) -> Iterator[None]:
    """Turn a failure of the system inside into one line that names the place and the remedy."""
    try:
        yield
    except OSError as error:
        raise DiskError(f"cannot write {path}: {reason(error)}; {remedy}") from error


def reason(error: OSError) -> str:
    """What the system says, in the words of a user."""
    if error.errno == errno.ELOOP:
        return "it is a symbolic link, and none is followed"
    return error.strerror or str(error)


def write_new(path: Path, pieces: Iterable[Piece]) -> None:
    """A file that did not exist, synced."""
    descriptor = os.open(path, _NEW, 0o666)
    try:
        for piece in pieces:
            _write_all(descriptor, piece)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, piece: Piece) -> None:
    left = memoryview(piece).cast("B") if len(piece) else memoryview(b"")
    while left:
        left = left[os.write(descriptor, left) :]


def write_atomically(path: Path, pieces: str | Iterable[Piece]) -> None:
    """Replace `path` in one step, or create it."""
    temporary = hidden(path, "tmp")
    _discard(temporary)
    try:
        write_new(temporary, [pieces.encode()] if isinstance(pieces, str) else pieces)
        os.replace(temporary, path)
        sync_directory(path.parent)
    finally:
        _discard(temporary)


def hidden(path: Path, suffix: str) -> Path:
    """A name beside `path` that belongs to this process."""
    return path.with_name(f".{path.name}.{os.getpid()}.{suffix}")


def append(path: Path, text: str, *, header: str = "") -> None:
    """Add whole lines, after the header in a new file; a line that an interruption tore is cut off first."""
    descriptor = os.open(path, _APPEND, 0o666)
    try:
        end = _regular(descriptor, path).st_size
        if end and os.pread(descriptor, 1, end - 1) != b"\n":
            end = read(path).rfind(b"\n") + 1
            os.ftruncate(descriptor, end)
        try:
            _write_all(descriptor, ((header if end == 0 else "") + text).encode())
        except OSError:
            os.ftruncate(descriptor, end)  # half a line would be taken for a torn one, but why leave it
            raise
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Wait until what was written to the file is on the disk; a file that does not exist has nothing to lose."""
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until the names in the directory are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _regular(descriptor: int, path: Path) -> os.stat_result:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return status


def read(path: Path, *, at_most: int | None = None) -> bytes:
    """The content of a regular file that is not larger than it may be."""
    descriptor = os.open(path, _READ)
    try:
        status = _regular(descriptor, path)
        if at_most is not None and status.st_size > at_most:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, more than {at_most}", str(path))
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read()
    finally:
        os.close(descriptor)


def new_directory(path: Path) -> None:
    """An empty directory, with those above it; whatever had the name is gone."""
    remove_tree(path)
    for above in reversed(path.parents):
        if not above.exists():
            os.mkdir(above)
    os.mkdir(path)


def put_in_place(new: Path, path: Path) -> None:
    """Give a directory its name; one that has it already leaves last, so that one of the two is always whole."""
    old = hidden(path, "old")
    replaced = path.exists()
    if replaced:
        remove_tree(old)
        os.rename(path, old)
    try:
        os.rename(new, path)
    except OSError:
        if replaced:
            os.rename(old, path)
        raise
    sync_directory(path.parent)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.old"):
        remove_tree(left)


def remove_tree(path: Path) -> None:
    """Remove a directory with all it holds, or whatever has that name; a link is removed, not followed."""
    if path.is_symlink() or not path.is_dir():
        _discard(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _discard(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # nothing is lost by a file too many
        return


def plain(value: Any) -> Any:
    """The value as JSON knows it: arrays become lists, NaN and infinities become None."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no place in JSON: {value!r}")


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """Strict ASCII JSON that ends with a newline."""
    return json.dumps(plain(value), indent=indent, allow_nan=False) + "\n"
