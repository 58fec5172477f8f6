"""`make faults [N=0.1]`: every row of the campaign, one line each, and the figures as JSON.

N scales how much is tried; 1 is the whole campaign, about an hour on two cores.
"""

import argparse
import importlib
import json
import tempfile
import time
from pathlib import Path

from faults.row import Row, show
from m2ac.runs.caching import prepare_jax
from m2ac.runs.disk import dump_json, write_atomically
from m2ac.runs.environment import describe_environment

ROWS = (
    "determinism",
    "kills",
    "writer",
    "failing_disk",
    "signals",
    "fuzz",
    "payloads",
    "injections",
    "malformed",
    "numbers",
    "memory",
)


def main() -> int:
    """Run the rows that are asked for; 1 where something did not hold."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("-n", "--scale", type=float, default=1.0, help="share of the whole campaign")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), help="these rows alone")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    wanted = parser.parse_args()
    prepare_jax()
    rows: list[dict[str, object]] = []
    for name in wanted.only:
        module = importlib.import_module(f"faults.{name}")
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"m2ac-{name}-") as scratch:
            row: Row = module.run(max(1, round(module.DEFAULT * wanted.scale)), Path(scratch))
        show(row)
        rows.append({**row._asdict(), "row": name, "seconds": round(time.monotonic() - began)})
        if wanted.json is not None:
            _write(wanted.json, rows)
    return int(any(row["tried"] != row["held"] for row in rows))


def _write(file: Path, rows: list[dict[str, object]]) -> None:
    """The rows, in the place of earlier ones of the same name, and where they were made."""
    earlier = json.loads(file.read_text()) if file.exists() else []
    anew = {row["row"] for row in rows}
    merged = [row for row in earlier if row["row"] not in anew]
    environment = describe_environment()
    made = {name: environment[name] for name in ("packages", "cpu", "cores_usable", "git")}
    merged += [{**row, "made": made} for row in rows]
    write_atomically(file, dump_json(sorted(merged, key=lambda row: ROWS.index(str(row["row"]))), indent=2))


if __name__ == "__main__":
    raise SystemExit(main())
