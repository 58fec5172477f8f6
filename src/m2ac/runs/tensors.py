"""Arrays in the safetensors format: names, types, shapes and raw numbers, nothing that could be executed.

Written piece by piece, without a copy of everything in memory, and read by the safetensors library.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from m2ac.finite import first_faulty
from m2ac.runs import disk
from m2ac.settings import UserError

LARGEST_HEADER = 2**20
"""Bytes of names, types and shapes; ours have some ten thousand."""

_TYPES = {"float32": "F32", "float64": "F64", "int32": "I32", "int64": "I64", "uint32": "U32", "bool": "BOOL"}


class TensorsError(UserError):
    """A file that does not hold what it should; the message says what is wrong, not which file."""


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> tuple[int, str]:
    """A new file with the arrays, synced; its size and SHA-256."""
    digest, size = hashlib.sha256(), 0

    def pieces() -> Iterator[disk.Piece]:
        nonlocal size
        for piece in serialised(arrays):
            digest.update(piece)
            size += memoryview(piece).nbytes
            yield piece

    disk.write_new(path, pieces())
    return size, digest.hexdigest()


def serialised(arrays: Mapping[str, np.ndarray]) -> Iterator[disk.Piece]:
    """The pieces of a file with the arrays."""
    header, end = {}, 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": _TYPES[array.dtype.name], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for array in arrays.values():
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""


def read_tensors(
    path: Path, *, at_most: int, size: int | None = None, sha256: str | None = None, finite: bool = True
) -> dict[str, np.ndarray]:
    """The arrays of a file with at most that many bytes of numbers, and of the given size and SHA-256."""
    try:
        data = disk.read(path, at_most=8 + LARGEST_HEADER + at_most)
    except OSError as error:
        raise TensorsError(f"cannot be read: {disk.reason(error)}") from error
    if size is not None and len(data) != size:
        raise TensorsError(f"is damaged: it has {len(data)} bytes, not {size}")
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise TensorsError("is damaged: its SHA-256 is not the one that was noted")
    header = int.from_bytes(data[:8], "little")
    if header > LARGEST_HEADER:
        raise TensorsError(f"is damaged: its header claims {header} bytes, more than {LARGEST_HEADER}")
    try:
        arrays: dict[str, np.ndarray] = load(data)
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise TensorsError(f"cannot be read: {error}") from error
    fault = first_faulty(arrays) if finite else None
    if fault is not None:
        raise TensorsError(f"is damaged: {fault[0][:80]} is {fault[1]}, which is no finite number")
    return arrays
