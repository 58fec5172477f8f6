"""The processes that work, one for each library and place: they start, answer when asked, and end with their input."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.phases import PHASES, SYSTEMS, System

ROOT = Path(__file__).resolve().parent.parent
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"


class WorkerError(RuntimeError):
    """A worker ended before it was told to."""


class Worker:
    """A library in a process of its own."""

    def __init__(self, system: System, phases: Sequence[str], cores: set[int] | None = None) -> None:
        """It is confined to `cores` before it imports anything."""
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable if system.ours else PEERS_PYTHON, "-m", system.module, *phases],
            cwd=ROOT,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            preexec_fn=None if cores is None else lambda: os.sched_setaffinity(0, cores),
        )
        self._name = f"{system.module} {' '.join(phases)}"
        self.about: dict[str, Any] = self.answer()

    def ask(self, work: str) -> None:
        """Let it start on something."""
        assert self._process.stdin is not None
        print(work, file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """What it says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._stderr.seek(0)
            raise WorkerError(f"{self._name} ended early; it said:\n{self._stderr.read()[-2000:]}")
        return json.loads(line)

    def cpu_seconds(self) -> float:
        """Processor time it has used, where the system tells."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        if not stat.exists():
            return 0.0
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """The end of its input ends it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=5)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()
        self._stderr.close()


class Team(NamedTuple):
    """Every worker, by the system's name and where it runs."""

    free: dict[str, Worker]  # on all cores
    confined: dict[str, Worker]  # on the first core
    neighbour: Worker | None  # m2ac on the second core
    both: Worker | None  # m2ac on the first two cores

    def workers(self) -> list[Worker]:
        """All of them."""
        others = [w for w in (self.neighbour, self.both) if w is not None]
        return [*self.free.values(), *self.confined.values(), *others]


@contextmanager
def started(names: Sequence[str], cores: list[int], *, tell: Callable[[str], None]) -> Iterator[Team]:
    """The workers that these phases need, one after the other, for some of them try settings as they start."""
    phases = [PHASES[name] for name in names]
    with ExitStack() as stack:

        def start(name: str, works: Sequence[str], where: set[int] | None = None) -> Worker:
            tell(f"starting {SYSTEMS[name].label}" + (f" on core {sorted(where)}" if where else ""))
            worker = Worker(SYSTEMS[name], works, where)
            stack.callback(worker.close)
            return worker

        def works(name: str, where: str) -> list[str]:
            return [p.work for p in phases if name in p.systems and p.where == where]

        free = {name: start(name, works(name, "")) for name in SYSTEMS if name != "m2ac" and works(name, "")}
        free["m2ac"] = start("m2ac", ["gemm", *works("m2ac", "")])
        confined = {
            name: start(name, ["sac_update"], {cores[0]})
            for name in SYSTEMS
            if works(name, "one core") or works(name, "two")
        }
        neighbour = both = None
        if works("m2ac", "two"):
            neighbour = start("m2ac", ["sac_update"], {cores[1]})
            both = start("m2ac", ["sac_update"], set(cores[:2]))
        yield Team(free, confined, neighbour, both)
