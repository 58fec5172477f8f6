"""Waiting for what other processes do."""

import time
from collections.abc import Callable


def until(holds: Callable[[], object], seconds: float = 300.0) -> None:
    """Look again and again; a test whose wait is in vain fails."""
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.1)
