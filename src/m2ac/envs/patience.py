"""A limit on how long a call may take, kept by the system's alarm clock."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from m2ac.settings import ConfigError

AGAIN = 1.0
"""Seconds after which the alarm rings once more, for code that catches everything."""


class TimedOut(BaseException):
    """The call has taken too long; no Exception, so that an `except Exception` inside of it does not hold it up."""


def check_thread() -> None:
    """Refuse a limit where none can be kept: Python delivers alarms to the main thread alone."""
    thread = threading.current_thread()
    if thread is not threading.main_thread():
        raise ConfigError(
            f"step_timeout works in the main thread only, got the thread {thread.name!r}; train there or leave it out"
        )


def within(seconds: float, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The call's result, or `TimedOut` where it takes longer; code that never returns to Python is not interrupted."""
    waiting = True

    def ring(number: int, frame: FrameType | None) -> None:
        if waiting:
            raise TimedOut

    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
            return call(*args, **kwargs)
        finally:
            waiting = False  # an alarm from here on must not disturb the clearing up
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        if left > 0:  # someone else's alarm, which may be overdue by now
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - started), 1e-6), interval)
