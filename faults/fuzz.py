"""Damaged checkpoint files: none is accepted silently, none crashes or hangs the loader."""

import hashlib
import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from faults.row import Row
from faults.small import CONFIG, at_step
from m2ac.learners.acting import ActingPolicy
from m2ac.learners.sac import SACLosses
from m2ac.runs import checkpoint
from m2ac.runs.checkpoint import LOSSES, MANIFEST, STATE, CheckpointError
from m2ac.runs.policy import FILE as POLICY
from m2ac.runs.policy import PolicyError, load_policy, save_policy

DEFAULT = 10_000
PROPERTY = (
    "fuzzed checkpoint files (truncated, flipped, spliced, huge headers): none accepted silently, no crash, no hang"
)
PATIENCE = 5.0

Damage = Callable[[bytes, bytes, random.Random], bytes]


def truncated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The beginning."""
    return data[: rng.randrange(len(data))]


def flipped(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """One to eight bits changed."""
    damaged = bytearray(data)
    for place in rng.sample(range(len(data)), rng.randint(1, 8)):
        damaged[place] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def spliced(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The beginning of one file and the end of another."""
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def overwritten(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A block of zeros, of ones or of noise."""
    begin = rng.randrange(len(data))
    length = rng.randint(1, 512)
    block = rng.choice((bytes(length), b"\xff" * length, rng.randbytes(length)))
    return data[:begin] + block + data[begin + length :]


def lengthened(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Something behind the end or in the middle."""
    place = rng.choice((len(data), rng.randrange(len(data))))
    return data[:place] + rng.randbytes(rng.randint(1, 300)) + data[place:]


def huge_header(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A header that claims to be larger than it is, up to 2⁶⁴ bytes."""
    return rng.choice((2**64 - 1, 2**63, 2**40, 2**31, 2**20 + 1, len(data), 0)).to_bytes(8, "little") + data[8:]


def odd_header(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A header of the right length whose text lies about types, shapes or places."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    name = rng.choice(sorted(header))
    entry = header[name]
    lies = (
        lambda: header.update({name: {**entry, "dtype": rng.choice(("F64", "I8", "U64", "O", "BF16", ""))}}),
        lambda: header.update({name: {**entry, "shape": rng.choice(([2**62, 4], [-1], [1] * 100, "x", [0.5]))}}),
        lambda: header.update({name: {**entry, "data_offsets": rng.choice(([0, 2**63], [8, 4], [-4, 0], [0], "ab"))}}),
        lambda: header.pop(name),
        lambda: header.update({rng.choice(("../../etc/passwd", "", "\0", "a" * 5000)): header.pop(name)}),
        lambda: header.update({name: entry, "__metadata__": {"a": 1}}),
        lambda: header.update({name: None}),
    )
    rng.choice(lies)()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def odd_text(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Something that is no manifest and no array."""
    deep = b'{"format": "m2ac checkpoint", "schema": 3, "x": ' + b"[" * 600 + b"]" * 600 + b"}"
    odd = (b"", b"{}", b"[]", b"null", b"[" * 100_000, b'{"a":' * 10_000, b"1e999", b"\xff\xfe", b"PK\x03\x04", deep)
    return rng.choice(odd)


DAMAGES: tuple[Damage, ...] = (
    *(truncated, flipped, spliced, overwritten, lengthened, huge_header, odd_header, odd_text),
)
STRUCTURAL = (truncated, lengthened, huge_header, odd_header, odd_text)
"""What is wrong in itself, whatever SHA-256 the manifest claims."""


ODD = (
    None,
    True,
    -1,
    0,
    10**8,
    10**30,
    0.5,
    "",
    "x",
    "9" * 5000,
    [],
    {},
    [[]],
    {"a": {}},
    json.loads("[" * 100 + "]" * 100),
)
"""Values that may stand in a manifest in the place of any other."""


class Files(NamedTuple):
    """A whole checkpoint and policy, and another one to splice with."""

    whole: dict[str, bytes]
    foreign: dict[str, bytes]
    fingerprint: str


def run(n: int, scratch: Path) -> Row:
    """Load n damaged copies."""
    files = _files(scratch)
    failures = []
    for trial in range(n):
        told = None
        for attempt in range(100):  # until something is damaged
            what, damaged = _damaged(files, random.Random(1000 * trial + attempt))
            if damaged != files.whole:
                told = _loaded(scratch / "damaged", damaged, files)
                break
        if told is not None:
            failures.append(f"trial {trial}, {what}: {told}")
    return Row(PROPERTY, n, n - len(failures), failures)


def _files(scratch: Path) -> Files:
    found = []
    for step in (1, 2):
        place = scratch / str(step)
        losses = {name: np.full(5, step, np.float32) for name in SACLosses._fields}
        notes: dict[str, Any] = {"logged": {"metrics": 0, "evals": 0}, "elapsed": 1.5, "cycle": {}}
        checkpoint.save(place, at_step(step), CONFIG, losses=losses, **notes)
        save_policy(place / POLICY, ActingPolicy(at_step(step).learner.policy))
        found.append({name: (place / name).read_bytes() for name in (STATE, LOSSES, MANIFEST, POLICY)})
    return Files(found[0], found[1], checkpoint.fingerprint(checkpoint.load(scratch / "1").state))


def _damaged(files: Files, rng: random.Random) -> tuple[str, dict[str, bytes]]:
    """One file damaged as a disk would, or by someone who can seal a manifest again."""
    name = rng.choice((STATE, STATE, STATE, LOSSES, MANIFEST, MANIFEST, POLICY))
    whole = files.whole[name]
    if name == MANIFEST and rng.random() < 0.5:
        return "manifest with an odd value, resealed", files.whole | {name: _odd_manifest(whole, rng)}
    resealed = name in (STATE, LOSSES) and rng.random() < 0.4
    # What nobody signs can only be seen to be wrong where it is wrong in itself.
    can = STRUCTURAL if resealed or name == POLICY else DAMAGES
    damage = rng.choice([d for d in can if name != MANIFEST or d not in (huge_header, odd_header)])
    damaged = files.whole | {name: damage(whole, files.foreign[name], rng)}
    if resealed:
        size, sha256 = len(damaged[name]), hashlib.sha256(damaged[name]).hexdigest()
        damaged[MANIFEST] = _resealed(files.whole[MANIFEST], ("bytes", name, size), ("sha256", name, sha256))
    return f"{name} {damage.__name__}{' and resealed' if resealed else ''}", damaged


def _odd_manifest(text: bytes, rng: random.Random) -> bytes:
    """A manifest with one value, anywhere in it, that is something else."""
    manifest = json.loads(text)
    group, name = manifest, rng.choice([name for name in manifest if name != "digest"])
    while isinstance(group[name], dict) and group[name] and rng.random() < 0.8:
        group = group[name]
        name = rng.choice(list(group))
    group[name] = rng.choice(ODD)
    del manifest["digest"]
    return checkpoint._sealed(manifest).encode()


def _resealed(text: bytes, *changes: tuple[str, str, Any]) -> bytes:
    manifest = json.loads(text)
    del manifest["digest"]
    for group, name, value in changes:
        manifest[group][name] = value
    return checkpoint._sealed(manifest).encode()


def _loaded(place: Path, damaged: dict[str, bytes], files: Files) -> str | None:
    """None where the damage was told in time and in one line, or is such that what is loaded is as it was."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name, content in damaged.items():
        (place / name).write_bytes(content)
    began = time.monotonic()
    try:
        if damaged[POLICY] != files.whole[POLICY]:
            load_policy(place / POLICY)
            return "accepted"
        found = checkpoint.load(place)
        if damaged[STATE] != files.whole[STATE] or checkpoint.fingerprint(found.state) != files.fingerprint:
            return "accepted"
        if damaged[LOSSES] != files.whole[LOSSES]:
            return "accepted"
    except (CheckpointError, PolicyError) as error:
        text = str(error)
        if "\n" in text or str(place) not in text or len(text) > 1000 + 2 * len(str(place)):
            return f"an unclear error: {text[:200]!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    took = time.monotonic() - began
    return f"took {took:.1f} s" if took > PATIENCE else None


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
