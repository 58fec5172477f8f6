"""Time m2ac and other libraries in turn, each in a process of its own, and write what came out.

Every round asks every library once per phase, so that whatever disturbs the machine disturbs all alike. Those that are
not asked wait for a line on their standard input.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.phases import PHASES, SYSTEMS, Phase
from benchmarks.team import PEERS_PYTHON, ROOT, Team, Worker, started

GEMM_FLOPS = 2.0 * 2048**3
LOUD = 0.2
"""Cores that other programs may keep busy, on average, before the numbers are in doubt."""
PAUSE = 0.1
"""Seconds between two questions: the threads of the last answer spin a little before they sleep."""


class Sitting:
    """The samples of one run, in seconds per unit of work."""

    def __init__(self, team: Team, names: Sequence[str]) -> None:
        self.team = team
        self.gemm: list[float] = []
        self.samples: dict[str, dict[str, list[float]]] = {name: {} for name in names}
        self.idle_share = 0.0  # the most of a core that workers took which nobody had asked
        self._began = self._busy()

    def round(self, number: int) -> None:
        """Ask everyone once, beginning with another one each time."""
        self.gemm.append(self._ask([self.team.free["m2ac"]], "gemm"))
        for name, samples in self.samples.items():
            phase = PHASES[name]
            if number % phase.every:
                continue
            parties = self._parties(phase)
            turn = number // phase.every % len(parties)
            for party, workers in [*parties.items()][turn:] + [*parties.items()][:turn]:
                seconds = self._ask(workers, phase.work)
                samples.setdefault(party, []).append(seconds)
                tell(f"round {number + 1}  {phase.title:40} {party:10} {readable(seconds):>9} per {phase.unit}")

    def _parties(self, phase: Phase) -> dict[str, list[Worker]]:
        if phase.where == "two":
            assert self.team.neighbour is not None
            assert self.team.both is not None
            return {"m2ac": [self.team.both], "m2ac, two processes": [self.team.confined["m2ac"], self.team.neighbour]}
        workers = self.team.confined if phase.where else self.team.free
        return {name: [workers[name]] for name in phase.systems}

    def _ask(self, asked: list[Worker], work: str) -> float:
        """Seconds per unit; several workers work at once, and together they do so many times the work."""
        time.sleep(PAUSE)
        idle = [w for w in self.team.workers() if w not in asked]
        before, started = sum(w.cpu_seconds() for w in idle), time.perf_counter()
        for worker in asked:
            worker.ask(work)
        seconds: float = max(worker.answer() for worker in asked) / len(asked)
        spent = sum(w.cpu_seconds() for w in idle) - before
        if time.perf_counter() - started > 1:  # the system counts processor time in hundredths
            self.idle_share = max(self.idle_share, spent / (time.perf_counter() - started))
        return seconds

    def _busy(self) -> tuple[float, float]:
        """Seconds on the clock, and processor seconds of everything that is no worker (stolen ones included)."""
        return time.perf_counter(), machine_seconds() - sum(w.cpu_seconds() for w in self.team.workers())

    def other_load(self) -> float:
        """Cores that something else kept busy, on average since the beginning."""
        (start, before), (now, after) = self._began, self._busy()
        return max(0.0, (after - before) / (now - start))

    def results(self) -> dict[str, Any]:
        """Per phase: what each system took at best and in the middle, and how ours compares."""
        return {name: self._phase_results(PHASES[name], samples) for name, samples in self.samples.items()}

    def _phase_results(self, phase: Phase, samples: dict[str, list[float]]) -> dict[str, Any]:
        systems = {}
        for party, values in samples.items():
            workers = self.team.confined if phase.where else self.team.free
            setting = workers[party].about["settings"].get(phase.work) if party in workers else None
            systems[party] = {
                "seconds": min(values),
                "median": statistics.median(values),
                "per_second": 1 / min(values),
                "ours_to_this": min(samples["m2ac"]) / min(values),
                "samples": values,
                **({"setting": setting} if setting else {}),
            }
        return {"title": phase.title, "unit": phase.unit, "systems": systems}


def machine_seconds() -> float:
    """Processor time that the whole machine has used, where the system tells."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def tell(line: str) -> None:
    """Progress goes to standard error; the table alone to standard output."""
    print(line, file=sys.stderr, flush=True)


def readable(seconds: float) -> str:
    """Three digits in the unit that suits: "3.42 ms", "10.1 µs"."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def table(report: dict[str, Any]) -> str:
    """The report for readers, in Markdown."""
    lines = ["| phase | library | fastest | median | per second | ours / theirs |", "|---|---|---:|---:|---:|---:|"]
    for phase in report["phases"].values():
        for number, (name, system) in enumerate(phase["systems"].items()):
            label = SYSTEMS[name].label if name in SYSTEMS else name
            ratio = "" if name == "m2ac" else f"{system['ours_to_this']:.2f}"
            lines.append(
                f"| {'' if number else phase['title']} | {label} | {readable(system['seconds'])} "
                f"| {readable(system['median'])} | {system['per_second']:,.3g} | {ratio} |"
            )
    return "\n".join(lines)


def versions(team: Team) -> dict[str, dict[str, str]]:
    """Of every library and what it stands on."""
    return {name: worker.about["versions"] for name, worker in {**team.confined, **team.free}.items()}


def main() -> None:
    """Run the sitting and write `results/peers.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=6, help="how often everyone is asked; half as often for the cycle"
    )
    parser.add_argument("--quick", action="store_true", help="two rounds, and the cycle once")
    parser.add_argument(
        "--only", nargs="+", choices=PHASES, default=list(PHASES), metavar="PHASE", help=", ".join(PHASES)
    )
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "peers.json", help="where the numbers go")
    parser.add_argument("--show", type=Path, help="print the table of an earlier run, and nothing else")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    if options.show:
        print(table(json.loads(options.show.read_text())))
        return
    if not PEERS_PYTHON.exists():
        sys.exit("the other libraries are not installed; run `make bench-peers`, which sets them up")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        options.only = [name for name in options.only if PHASES[name].where != "two"]
    began = time.perf_counter()
    with started(options.only, cores, tell=tell) as team:
        sitting = Sitting(team, options.only)
        for number in range(2 if options.quick else options.rounds):
            sitting.round(number)
        report: dict[str, Any] = {
            "command": "make bench-peers" + (f' ARGS="{" ".join(sys.argv[1:])}"' if sys.argv[1:] else ""),
            "cores": len(cores),
            "versions": versions(team),
            "gemm_gflops": {
                "best": GEMM_FLOPS / min(sitting.gemm) / 1e9,
                "median": GEMM_FLOPS / statistics.median(sitting.gemm) / 1e9,
            },
            "idle_share": sitting.idle_share,
            "other_load": sitting.other_load(),
            "seconds": time.perf_counter() - began,
            "phases": sitting.results(),
        }
    options.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print(table(report))
    tell(
        f"\nmatrix product {report['gemm_gflops']['best']:.0f} GFLOP/s at best, "
        f"{report['gemm_gflops']['median']:.0f} in the middle; "
        f"other programs kept {report['other_load']:.2f} cores busy; {report['seconds']:.0f} s in all"
    )
    if report["other_load"] > LOUD:
        tell("the machine was not quiet: threads that wait for each other suffer most, so do not trust the ratios")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; nothing was written")
