"""Cases judged one after another in a process of their own, which notes what they do and can be ended when they hang.

A module of cases has a list `CASES`. The process imports it, makes one finished run to work on, and then judges the
cases that it is told on its standard input by their numbers.
"""

import importlib
import io
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from m2ac.settings import UserError

TOKEN = "m2ac_payload"
"""Part of every payload and of the name of every planted module, by which their execution is recognised."""

SECRET = "M2AC_FAULTS_SECRET"
"""An environment variable whose value no message may hold."""

START, CASE = 300.0, 60.0
"""Seconds after which a process that does not answer has failed."""

SETTINGS = ["--algo", "sac", "--env", "Pendulum-v1", "--steps", "4", "--random-steps", "3", "--eval-every", "1000"]
SETTINGS += ["--eval-episodes", "1", "--final-episodes", "1", "--sac.hidden", "4", "--sac.batch-size", "2"]
"""Of the run that the cases work on."""

_NEVER = {
    "code.__new__",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "pty.spawn",
    "shutil.unpack_archive",
    "socket.__new__",
    "urllib.Request",
    "webbrowser.open",
}


class NotHeldError(Exception):
    """The property did not hold; the message says how."""


class Said(NamedTuple):
    """How a call ended."""

    value: Any
    error: str | None  # of a UserError
    out: str
    err: str
    warned: str

    @property
    def text(self) -> str:
        """Everything that reached the user."""
        return "\n".join((self.out, self.err, self.warned, self.error or ""))


class Watch:
    """An audit hook that remembers what no file or name may lead to: code, processes and sockets."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by Python at every event that it audits."""
        if event in _NEVER or self._is_foreign(event, args) or self._is_ours(event, args):
            self.seen.append(f"{event} {args!r}"[:200])

    @staticmethod
    def _is_foreign(event: str, args: tuple[Any, ...]) -> bool:
        """Whether a process of another's is started, or something unpickled from elsewhere than a queue in memory."""
        if event == "pickle.find_class":  # tensorboardX has such a queue between its threads
            return not sys._getframe(2).f_code.co_filename.endswith("multiprocessing/queues.py")
        return event == "subprocess.Popen" and next(iter(args[1])) not in ("git", "uname")  # where a run was made

    @staticmethod
    def _is_ours(event: str, args: tuple[Any, ...]) -> bool:
        """Whether a payload is compiled, executed or imported; others do that all the time."""
        if event == "import":
            return TOKEN in str(args[0])
        if event == "compile":
            return TOKEN in _text(args[0])
        return event == "exec" and TOKEN in _text((args[0].co_filename, args[0].co_consts, args[0].co_names))


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


class Place(NamedTuple):
    """An empty directory, which is also the working directory, for one case."""

    root: Path
    base: Path
    watch: Watch

    @property
    def marker(self) -> Path:
        """The file that a payload makes when it is executed."""
        return self.root / f"{TOKEN}_ran"

    def copy_run(self, *, done: bool = False) -> Path:
        """A run of its own; one that is not done goes on, with nothing left to learn, when it is continued."""
        copy = self.root / "run"
        shutil.copytree(self.base, copy)
        if not done:
            (copy / "DONE").unlink()
        return copy

    def call(self, function: Callable[[], Any]) -> Said:
        """Call what a user would call: it must end well or in a UserError."""
        out, err = io.StringIO(), io.StringIO()
        value, refused = None, None
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                value = function()
            except UserError as error:
                refused = str(error)
            except (Exception, SystemExit) as error:
                raise NotHeldError(f"ended in {type(error).__name__}: {error}") from error
        return Said(value, refused, out.getvalue(), err.getvalue(), "\n".join(str(w.message) for w in warned))

    def command(self, *args: str) -> Said:
        """Run `m2ac`: its exit code is 0, or that of an error after one line."""
        from m2ac.cli import main

        said = self.call(lambda: main(list(args)))
        if said.value not in (0, 1, 2):
            raise NotHeldError(f"m2ac {args[0]} ended with {said.value}")
        lines = [line.startswith("m2ac: ") for line in said.err.splitlines()]
        if said.value and not (lines and lines[-1] and sum(lines) == 1):
            raise NotHeldError(f"m2ac {args[0]} said {said.err!r}")
        return said

    def go_on(self, run: Path, *args: str) -> Said:
        """Continue the run by its command."""
        return self.command("train", *SETTINGS, "--out", str(run), *args)

    def check(self) -> None:
        """Nothing was executed."""
        if self.marker.exists():
            raise NotHeldError("the payload ran")
        if self.watch.seen:
            raise NotHeldError(f"happened: {self.watch.seen[0]}")


class Case(NamedTuple):
    """Something to be tried."""

    name: str
    judge: Callable[[Place], None]  # raises NotHeldError


@contextmanager
def no_learning() -> Iterator[None]:
    """Updates are counted and not made: compiling them would take longer than all the rest."""
    from m2ac.algorithms.training import Training

    def skip(training: Any) -> None:
        counters = training.state.counters
        counters = counters._replace(updates=counters.updates + training.config.updates_per_step)
        training.state = training.state._replace(counters=counters)

    with mock.patch.object(Training, "_learn", skip):
        yield


def make_run(path: Path) -> None:
    """A finished run, by the command itself."""
    from m2ac.cli import main

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        if main(["train", *SETTINGS, "--out", str(path)]) != 0:
            raise RuntimeError("the run to work on could not be made")


def sealed(manifest: dict[str, Any]) -> str:
    """The text of a manifest that vouches for itself, as anybody can write it."""
    from m2ac.runs.checkpoint import _sealed

    return _sealed({name: value for name, value in manifest.items() if name != "digest"})


def judge_all(
    module: str, chosen: Sequence[int], scratch: Path, *, seconds: float = CASE, needs_run: bool = True
) -> list[str | None]:
    """For each chosen case of the module, None where it held, or else how it did not."""
    verdicts: list[str | None] = []
    while len(verdicts) < len(chosen):
        with _process(module, scratch, needs_run) as ask:
            for index in chosen[len(verdicts) :]:
                answer = ask(f"{index}\n", seconds)
                verdicts.append(
                    f"no answer within {seconds:.0f} s, or the process died" if answer is None else answer[0]
                )
                if answer is None:
                    break  # the next one gets a new process
    return verdicts


Ask = Callable[[str, float], list[str | None] | None]


@contextmanager
def _process(module: str, scratch: Path, needs_run: bool) -> Iterator[Ask]:
    """The process that judges, as a function from a question to its answer, or None if there is none in time."""
    path = [str(Path(__file__).parents[1]), *(entry for entry in sys.path if entry)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), SECRET: "tell-nobody-7f3a"}
    command = [sys.executable, "-m", "faults.boxed", module, str(scratch), str(needs_run)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, answers = process.stdin, process.stdout.fileno()

        def ask(question: str, seconds: float) -> list[str | None] | None:
            try:
                to.write(question.encode())
                to.flush()
            except BrokenPipeError:
                return None
            text = b""
            while not text.endswith(b"\n"):
                ready, _, _ = select.select([answers], [], [], seconds)
                more = os.read(answers, 65536) if ready else b""
                if not more:
                    return None
                text += more
            answer: list[str | None] = json.loads(text)
            return answer

        try:
            if ask("", START) is None:
                raise RuntimeError("the process for the cases did not start")
            yield ask
        finally:
            process.kill()


def _serve(module: str, scratch: Path, needs_run: bool) -> None:
    """Judge the cases whose numbers come in, until no more do."""
    answers = os.fdopen(os.dup(1), "w")
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(silence, descriptor)
    cases: Sequence[Case] = importlib.import_module(module).CASES
    base = scratch / "base"
    with no_learning() if needs_run else nullcontext():
        if needs_run and not base.exists():
            make_run(base)
        watch = Watch()
        sys.addaudithook(watch)
        print(json.dumps(["ready"]), file=answers, flush=True)
        for line in sys.stdin:
            failure = _judged(cases[int(line)], base, watch, Path(tempfile.mkdtemp(dir=scratch)))
            print(json.dumps([failure]), file=answers, flush=True)


def _judged(case: Case, base: Path, watch: Watch, root: Path) -> str | None:
    place = Place(root, base, watch)
    before = list(sys.path)
    watch.seen.clear()
    os.chdir(root)
    try:
        case.judge(place)
        place.check()
    except NotHeldError as broken:
        return str(broken)
    except Exception as error:
        return f"the case itself failed: {type(error).__name__}: {error}"
    finally:
        sys.path[:] = before
        os.chdir(base.parent)
        shutil.rmtree(root, ignore_errors=True)
    return None


if __name__ == "__main__":
    # By its real name: the classes of __main__ are others than those that the cases import.
    importlib.import_module("faults.boxed")._serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "True")
