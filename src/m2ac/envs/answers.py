"""What an environment answered, as the plain values that the algorithms need, or refused with the place it came from.

NumPy converts nearly anything into numbers ("1" and None too, and it drops imaginary parts and masks), so what is
converted here is only what was a number before.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from m2ac.envs.notices import EnvError, brief

LARGEST = float(np.finfo(np.float32).max)
"""Observations and rewards are stored as float32."""


def observation_of(answer: Any, size: int, where: str) -> NDArray[np.float32]:
    """A finite observation of the declared size, as an array of its own."""
    given = _numbers(answer)
    if given is None:
        raise EnvError(f"observation is {brief(answer)} in {where}; return an array of {size} numbers")
    if given.shape != (size,):
        raise EnvError(
            f"observation has shape {given.shape} in {where}, but the observation space says ({size},); "
            f"return observations of the declared shape"
        )
    # A copy: some environments hand out the array they go on writing to.
    with np.errstate(over="ignore"):
        checked = np.array(given, dtype=np.float32)
    if not np.isfinite(checked).all():
        index = int(np.flatnonzero(~np.isfinite(checked))[0])
        raise EnvError(
            f"observation[{index}] is {given[index]} in {where}; "
            f"the environment must return finite observations, at most {LARGEST:.1e}"
        )
    return checked


def reward_of(answer: Any, where: str) -> float:
    """A finite reward; an array of one number will do."""
    remedy = "the environment must return finite numbers as rewards"
    given = _numbers(answer)
    if given is None or given.size != 1:
        raise EnvError(f"reward is {brief(answer)} in {where}; {remedy}")
    value = float(given.item())
    if not abs(value) <= LARGEST:
        raise EnvError(f"reward is {value} in {where}; {remedy}, at most {LARGEST:.1e}")
    return value


def flag_of(name: str, answer: Any, where: str) -> bool:
    """Whether an episode has ended; 0 and 1 will do, an array of one of them too."""
    flag = as_flag(answer)
    if flag is None:
        raise EnvError(f"{name} is {brief(answer)} in {where}; return True or False")
    return flag


def as_flag(answer: Any) -> bool | None:
    """The answer as a flag, if it is one."""
    if answer is True or answer is False:
        return bool(answer)
    given = _numbers(answer)
    if given is None or given.size != 1 or given.item() not in (0, 1):
        return None
    return bool(given.item())


def _numbers(answer: Any) -> NDArray[Any] | None:
    """The answer as an array of real numbers, if it is one."""
    try:
        given = np.asarray(answer)
        hidden = np.ma.is_masked(answer)
    except Exception:  # whatever a ragged list or a class with an array of its own raises
        return None
    return None if hidden or given.dtype.kind not in "biuf" else given
