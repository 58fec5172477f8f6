"""Damaged checkpoint files: none is accepted silently, none crashes or hangs the loader."""

import hashlib
import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from faults.row import Row
from faults.small import CONFIG, at_step
from m2ac.learners.acting import ActingPolicy
from m2ac.runs import checkpoint
from m2ac.runs.checkpoint import MANIFEST, STATE, CheckpointError

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
    return rng.choice(
        (b"", b"{}", b"[]", b"null", b"[" * 100_000, b'{"a":' * 10_000, b"1e999", b"\xff\xfe", b"PK\x03\x04")
    )


DAMAGES: tuple[Damage, ...] = (
    *(truncated, flipped, spliced, overwritten, lengthened, huge_header, odd_header, odd_text),
)
STRUCTURAL = (truncated, lengthened, huge_header, odd_header, odd_text)
"""What is wrong in itself, whatever SHA-256 the manifest claims."""


def run(n: int, scratch: Path) -> Row:
    """Load n damaged copies."""
    good, other = scratch / "good", scratch / "other"
    checkpoint.save(good, at_step(1), CONFIG, logged={"metrics": 0, "evals": 0})
    checkpoint.save(other, at_step(2), CONFIG, logged={"metrics": 0, "evals": 0})
    policy = scratch / "policy.safetensors"
    checkpoint.save_policy(policy, ActingPolicy(at_step(1).learner.policy))
    whole = {name: (good / name).read_bytes() for name in (STATE, MANIFEST)} | {policy.name: policy.read_bytes()}
    foreign = {name: (other / name).read_bytes() for name in (STATE, MANIFEST)} | {policy.name: whole[STATE]}
    failures = []
    for trial in range(n):
        rng = random.Random(trial)
        name = rng.choice((STATE, STATE, MANIFEST, policy.name))
        resealed = name == STATE and rng.random() < 0.4
        can = [
            d for d in (STRUCTURAL if resealed else DAMAGES) if name != MANIFEST or d not in (huge_header, odd_header)
        ]
        damage = rng.choice(can if name != policy.name else [d for d in can if d in STRUCTURAL])
        damaged = damage(whole[name], foreign[name], rng)
        if damaged == whole[name]:
            continue
        told = _loaded(scratch, name, damaged, whole, resealed=resealed)
        if told is not None:
            failures.append(f"trial {trial}, {name} {damage.__name__}{' and resealed' if resealed else ''}: {told}")
    return Row(PROPERTY, n, n - len(failures), failures)


def _loaded(scratch: Path, name: str, damaged: bytes, whole: dict[str, bytes], *, resealed: bool) -> str | None:
    """None where the file was refused in time and in one line."""
    place = scratch / "damaged"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for file, content in whole.items():
        (place / file).write_bytes(damaged if file == name else content)
    if resealed:  # by someone who knows how
        manifest = json.loads(whole[MANIFEST])
        del manifest["digest"]
        manifest |= {"bytes": {STATE: len(damaged)}, "sha256": {STATE: hashlib.sha256(damaged).hexdigest()}}
        (place / MANIFEST).write_text(checkpoint._sealed(manifest))
    began = time.monotonic()
    try:
        if name.startswith("policy"):
            checkpoint.load_policy(place / name)
        else:
            checkpoint.load(place)
    except CheckpointError as error:
        text = str(error)
        if "\n" in text or str(place) not in text or len(text) > 1000 + 2 * len(str(place)):
            return f"an unclear error: {text[:200]!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    else:
        return "accepted"
    took = time.monotonic() - began
    return f"took {took:.1f} s" if took > PATIENCE else None


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
