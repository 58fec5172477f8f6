"""A film of a run's policy.

It is taken by another process, `m2ac.runs.camera`: which graphics library MuJoCo draws with is settled when it is
imported, and one that fails can take its process along. Then the next library is tried.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from m2ac.escaping import visible_line
from m2ac.report.moving_picture import Kind, Picture, check_kind, moving_picture, shrunk
from m2ac.runs import disk
from m2ac.runs.directory import RunDirectory
from m2ac.settings import ConfigError, UserError

WIDTH, HEIGHT = 320, 240
"""A film is no larger."""

SEED = 1_000_000
"""The episodes of `m2ac eval`."""

LENGTH = 10.0
"""Seconds of an episode."""

LONGEST = 60.0
"""Seconds of a film; all of its pictures are in memory."""

PATIENCE = 120.0
"""Seconds after which a process that has sent no further picture is given up."""

INSTALL = "on Debian and Ubuntu apt install libegl1 libegl-mesa0, or libosmesa6"


class FilmError(UserError):
    """No film could be taken here; the message says why and what to install."""


class Episode(NamedTuple):
    """As much of an episode as the film shows."""

    seed: int
    steps: int
    total: float  # sum of rewards


class Film(NamedTuple):
    """A film and what it shows."""

    data: bytes
    pictures: int
    fps: float
    episodes: tuple[Episode, ...]


class _DrewNothingError(Exception):
    """This graphics library does not work here."""


def make_film(
    path: str | os.PathLike[str],
    *,
    env: str,
    episodes: int = 1,
    seed: int = SEED,
    length: float = LENGTH,
    kind: Kind = "webp",
    best: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Film:
    """The last or `best` policy of the run in `path` acting with its mean action, up to `length` seconds per episode.

    `env` is the run's environment, which the user has confirmed where it imports a module. The same seed gives the same
    pictures. `tell` hears of every graphics library that does not work.
    """
    check_kind(kind)
    wanted = {"run": os.fspath(path), "env": env, "episodes": episodes, "seed": seed, "length": length, "best": best}
    failures = []
    for graphics in _choices():
        name = graphics or "the system's graphics"
        try:
            return _developed(_messages(wanted, graphics), kind)
        except _DrewNothingError as error:
            failures.append(f"{name}: {error}")
            tell(f"cannot draw with {failures[-1]}")
    raise FilmError(f"no graphics library can draw {env} here ({'; '.join(failures)}); {INSTALL}")


def film_or_none(path: str | os.PathLike[str], *, warn: Callable[[str], None]) -> bytes | None:
    """An animated WebP of the run for a report; where none can be made `warn` hears why.

    A module of code that a run names is not imported for it: nobody has confirmed that.
    """
    try:
        env = RunDirectory.read(path).config.env
        if ":" in env:
            raise ConfigError(f"no film of {os.fspath(path)!r}, whose environment is code; m2ac video makes one")
        return make_film(path, env=env).data
    except UserError as error:
        warn(str(error))
        return None


def write_film(path: Path, film: Film) -> None:
    """Put the film into a file, in one step."""
    with disk.writing(path, "give another --out"):
        disk.write_atomically(path, [film.data])


def _choices() -> list[str | None]:
    """The graphics libraries to be tried, that of the user first; None leaves it to MuJoCo."""
    named = os.environ.get("MUJOCO_GL")
    usual: list[str | None] = ["egl", "osmesa"] if sys.platform == "linux" else [None]
    return [named, *(each for each in usual if each != named)] if named else usual


def _developed(messages: Iterator[tuple[dict[str, Any], bytes]], kind: Kind) -> Film:
    """The film of what the camera sends."""
    pictures: list[Picture] = []
    episodes: dict[int, Episode] = {}
    fps = 1.0
    for about, data in messages:
        picture = np.frombuffer(data, np.uint8).reshape(about["shape"])
        pictures.append(shrunk(picture, width=WIDTH, height=HEIGHT))
        episodes[about["episode"]] = Episode(about["seed"], about["step"], about["total"])
        fps = about["fps"]
        if pictures[-1].shape != pictures[0].shape:
            raise FilmError(f"a picture of step {about['step']} has another size than the first; keep one size")
    data = moving_picture(pictures, fps=fps, kind=kind)
    return Film(data, len(pictures), fps, tuple(episodes.values()))


def _messages(wanted: Mapping[str, Any], graphics: str | None) -> Iterator[tuple[dict[str, Any], bytes]]:
    """What the camera sends, until it is done; a failure that it tells is raised."""
    with tempfile.TemporaryFile() as said:
        # -P: whatever lies in the working directory is not imported; what this process can import, that one can.
        command = [sys.executable, "-P", "-m", "m2ac.runs.camera", json.dumps(wanted)]
        camera = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            env=_surroundings(graphics),
            bufsize=0,
        )
        assert camera.stdout is not None
        try:
            received = _Received(camera.stdout)
            while True:
                about = received.message()
                if about is None:
                    raise _DrewNothingError(_last_words(camera, said))
                if "failed" in about:
                    raise _failure(about)
                if "done" in about:
                    return
                yield about, received.exactly(about["bytes"])
        except TimeoutError:
            raise _DrewNothingError(f"no picture for {PATIENCE:g} s") from None
        finally:
            camera.kill()
            camera.wait()
            camera.stdout.close()


def _surroundings(graphics: str | None) -> dict[str, str]:
    paths = [path or os.getcwd() for path in sys.path]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
    if graphics is not None:
        surroundings["MUJOCO_GL"] = graphics
        surroundings.pop("PYOPENGL_PLATFORM", None)  # MuJoCo sets it, and refuses another library's
    return surroundings


def _failure(about: Mapping[str, Any]) -> Exception:
    kinds = {"config": ConfigError, "render": _DrewNothingError}
    return kinds.get(about["failed"], FilmError)(about["words"])


def _last_words(camera: "subprocess.Popen[bytes]", said: IO[bytes]) -> str:
    """Why a process ended before it was done."""
    code = camera.wait()
    how = f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"its process ended with {code}"
    said.seek(0)
    lines = said.read()[-4000:].decode(errors="replace").strip().splitlines()
    return visible_line(f"{how}: {lines[-1][:200]}" if lines else how)


class _Received:
    """What comes through a pipe, within some time."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._held = bytearray()

    def message(self) -> dict[str, Any] | None:
        """The next line of JSON; None where there is none any more."""
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._held:
            if not self._more(deadline):
                return None
        line, _, rest = bytes(self._held).partition(b"\n")
        self._held = bytearray(rest)
        return json.loads(line)

    def exactly(self, count: int) -> bytes:
        """So many bytes."""
        deadline = time.monotonic() + PATIENCE
        while len(self._held) < count:
            if not self._more(deadline):
                raise _DrewNothingError("its process ended within a picture")
        data, self._held = bytes(self._held[:count]), self._held[count:]
        return data

    def _more(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        data = os.read(self._pipe.fileno(), 2**20)
        self._held += data
        return bool(data)
