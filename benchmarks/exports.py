"""How far exported policies are from their agents, and how fast they act.

    python -m benchmarks.exports RUN [RUN …] --core 0 --json results/exports.json

Each run's last policy is exported in every format into a directory that is thrown away. What is kept of an export is
its verdicts: the largest difference from the agent on 1000 observations, and the time for one of them.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from m2ac.deploy.formats import FILES, RECORD
from m2ac.runs.environment import cpu_model, versions


def exported(run: Path) -> dict[str, Any]:
    """What `m2ac export` writes about a run's policy."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "export"
        command = ["export", str(run), "--formats", *FILES, "--out", str(out)]
        subprocess.run([sys.executable, "-m", "m2ac", *command], check=True)
        about = json.loads((out / RECORD).read_text())
    return {name: about[name] for name in ("run", "env", "algo", "step", "verdicts")}


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="directories of runs")
    parser.add_argument("--core", type=int, default=0, help="the core to run on")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    os.sched_setaffinity(0, {chosen.core})
    exports = [exported(run) for run in chosen.runs]
    told = {
        "command": shlex.join(["python", "-m", "benchmarks.exports", *sys.argv[1:]]),
        "cpu": cpu_model(),
        "packages": versions(),
        "exports": exports,
    }
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(told, indent=1) + "\n")
    for name in FILES:
        verdicts = [export["verdicts"][name] for export in exports]
        apart = max(max(verdict["difference"], verdict["at_extremes"]) for verdict in verdicts)
        times = [verdict["median"] for verdict in verdicts]
        print(f"{name:11} at most {apart:.1e} of the range; median {min(times):.0f} to {max(times):.0f} µs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
