import os
import signal
import threading

import pytest

from m2ac.runs.stopping import stopping


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_noted_and_the_second_would_end_the_process(number):
    before = signal.getsignal(number)
    with stopping() as stop:
        assert stop.signal is None
        os.kill(os.getpid(), number)
        assert stop.signal == number
        assert signal.getsignal(number) == signal.SIG_DFL
    assert signal.getsignal(number) == before


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.signal is None
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_runs_unwatched():
    seen = []

    def run():
        with stopping() as stop:
            seen.append(stop.signal)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [None]
