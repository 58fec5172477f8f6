"""Whether an exported policy does what the agent does, and how long it takes for it."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from m2ac.deploy.network import F64, Network
from m2ac.settings import UserError

Act = Callable[[NDArray[np.float32]], NDArray[Any]]
"""From one observation, or a batch, to actions in the environment's units."""

OBSERVATIONS = 1_000
FAR = 1e3
"""Where single numbers of an observation are put to see what becomes of the extreme."""

TOLERANCE = 1e-6
"""How far an action may be from the agent's, relative to its range and beyond the last digit of its dtype."""

EXTREME = OBSERVATIONS * 8 // 10
"""The first of the observations that has extreme numbers in it."""

REPORT = "nothing was written; leave this format out of --formats, and please report it"
WARM_UP = 50


class MismatchError(UserError):
    """An exported policy that acts otherwise than the agent."""


class Verdict(NamedTuple):
    """How an exported policy compares with the agent."""

    difference: float  # the largest at usual observations, relative to the range of the action
    at_extremes: float  # the same at observations with extreme numbers in them
    median: float  # µs for one observation
    percentile_99: float


def observations_around(seen: NDArray[np.float32], *, seed: int = 0) -> NDArray[np.float32]:
    """Four in ten as they were seen, four disturbed by as much as they vary, two with extreme numbers in them."""
    rng = np.random.default_rng(seed)
    rows = seen[rng.integers(len(seen), size=OBSERVATIONS)].astype(np.float64)
    real = EXTREME // 2
    spread = np.maximum(seen.std(axis=0, dtype=np.float64), 1e-3)
    rows[real:EXTREME] += spread * rng.standard_normal(rows[real:EXTREME].shape)
    far = rows[EXTREME:]
    # From one such number to all of them.
    chosen = rng.random(far.shape)
    chosen = chosen <= np.maximum(rng.random((len(far), 1)), chosen.min(axis=1, keepdims=True))
    rows[EXTREME:] = np.where(chosen, rng.choice([-FAR, FAR], size=far.shape), far)
    return rows.astype(np.float32)


def verify(name: str, act: Act, agent: Act, network: Network, obs: NDArray[np.float32]) -> Verdict:
    """Compare with the agent, one by one and as a batch."""
    expected = np.stack([agent(row) for row in obs]), agent(obs)
    for row in obs[:WARM_UP]:
        act(row)
    found, nanoseconds = [], []
    for row in obs:
        start = time.perf_counter_ns()
        found.append(act(row))
        nanoseconds.append(time.perf_counter_ns() - start)
    allowed = TOLERANCE + _last_digit(network)
    largest = np.zeros(len(obs))
    for action, right in zip((np.stack(found), act(obs)), expected, strict=True):
        if action.shape != right.shape or action.dtype != right.dtype:
            raise MismatchError(
                f"the {name} policy gives {action.dtype}{action.shape}, the agent {right.dtype}{right.shape}; {REPORT}"
            )
        difference = np.abs(action.astype(np.float64) - right) / (2 * network.half)
        wrong = ~(difference <= allowed)  # NaN is wrong too
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise MismatchError(
                f"the {name} policy differs from the agent: action[{column}] is {action[row, column]:g} and not "
                f"{right[row, column]:g} at observation {row} of {len(obs)}; {REPORT}"
            )
        largest = np.maximum(largest, difference.max(axis=1))
    median, slow = (float(np.percentile(nanoseconds, share)) / 1e3 for share in (50, 99))
    return Verdict(float(largest[:EXTREME].max()), float(largest[EXTREME:].max()), median, slow)


def _last_digit(network: Network) -> F64:
    """What the last digit of an action is worth, relative to its range; much, where the bounds are far from zero."""
    largest = np.maximum(np.abs(network.low), np.abs(network.high))
    return np.spacing(largest).astype(np.float64) / (2 * network.half)
