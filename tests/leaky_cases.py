"""Cases of which all but the first do what none may do: the campaign must notice each."""

import importlib
import os
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path

from faults.boxed import TOKEN, Case, Place
from m2ac.settings import ConfigError


def fine(place: Place) -> None:
    def refuse() -> None:
        raise ConfigError("no")

    assert place.call(refuse).error == "no"


def unpickles(place: Place) -> None:
    pickle.loads(pickle.dumps(Path))


def starts_a_process(place: Place) -> None:
    subprocess.run(["true"], check=True)


def calls_a_shell(place: Place) -> None:
    os.system("true")


def opens_a_socket(place: Place) -> None:
    socket.socket().close()


def executes(place: Place) -> None:
    exec(f"{TOKEN} = 1")


def imports(place: Place) -> None:
    (place.root / f"{TOKEN}_module.py").write_text("")
    sys.path.insert(0, str(place.root))
    importlib.invalidate_caches()
    importlib.import_module(f"{TOKEN}_module")


def leaves_the_marker(place: Place) -> None:
    place.marker.write_text("")


def raises(place: Place) -> None:
    place.call(lambda: 1 / 0)


def hangs(place: Place) -> None:
    time.sleep(60)


def dies(place: Place) -> None:
    os._exit(0)


LEAKS = [
    (unpickles, "pickle.find_class"),
    (starts_a_process, "subprocess.Popen"),
    (calls_a_shell, "os.system"),
    (opens_a_socket, "socket.__new__"),
    (executes, "compile"),
    (imports, "exec"),
    (leaves_the_marker, "the payload ran"),
    (raises, "ended in ZeroDivisionError"),
    (hangs, "no answer within 3 s"),
    (dies, "the process died"),
]
CASES = [Case("fine", fine), *(Case(judge.__name__, judge) for judge, _ in LEAKS), Case("fine again", fine)]
