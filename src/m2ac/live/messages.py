"""What goes between a control loop and its learner: short binary messages through pipes, nothing pickled."""

import struct
from typing import IO, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

HEADER = struct.Struct("<cI")
SETUP, ROW, SAVE, POLICY, STATUS, FAILURE = b"C", b"R", b"W", b"P", b"S", b"E"
LARGEST = 2**30


class Row(NamedTuple):
    """One transition, its action in [-1, 1]."""

    obs: Float[ndarray, "D"]
    action: Float[ndarray, "A"]
    reward: float
    next_obs: Float[ndarray, "D"]
    terminated: bool
    truncated: bool


def framed(kind: bytes, payload: bytes = b"") -> bytes:
    """One message as it goes through a pipe."""
    return HEADER.pack(kind, len(payload)) + payload


def write(pipe: IO[bytes], kind: bytes, payload: bytes = b"") -> None:
    """Send one message."""
    pipe.write(framed(kind, payload))
    pipe.flush()


def read(pipe: IO[bytes]) -> tuple[bytes, bytes] | None:
    """The next message, None where the other side has gone."""
    header = pipe.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    kind, size = HEADER.unpack(header)
    if size > LARGEST:
        raise ValueError(f"a message of {size} bytes")
    payload = pipe.read(size)
    return None if len(payload) < size else (kind, payload)


def packed(row: Row) -> bytes:
    """A transition as bytes."""
    numbers = np.concatenate([row.obs, row.action, row.next_obs, [row.reward, row.terminated, row.truncated]])
    return numbers.astype("<f4").tobytes()


def unpacked(payload: bytes, obs_dim: int, action_dim: int) -> Row:
    """The inverse of `packed`."""
    numbers = np.frombuffer(payload, "<f4")
    obs, action, next_obs, rest = np.split(numbers, np.cumsum([obs_dim, action_dim, obs_dim]))
    return Row(obs, action, float(rest[0]), next_obs, bool(rest[1]), bool(rest[2]))
