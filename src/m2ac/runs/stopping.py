"""Being asked to stop: a signal waits for the next point where everything is whole."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Set by the first signal; a second one ends the process at once."""

    signal: int | None = None


@contextmanager
def stopping() -> Iterator[Stop]:
    """While inside, a watched signal only sets the flag; other threads than the main one cannot watch."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in WATCHED}
    # What is ignored stays ignored: nohup and a shell's background jobs count on it.
    heeded = [number for number, handler in before.items() if handler != signal.SIG_IGN]

    def ask(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        for each in heeded:
            signal.signal(each, signal.SIG_DFL)

    for number in heeded:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number in heeded:
            signal.signal(number, before[number])
