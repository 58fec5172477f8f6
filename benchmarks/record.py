"""What is on record in `results/`: runs made here replace what it has of them, and all others stay.

A machine has the directories of its own runs alone, so nothing is thrown away for want of a directory.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OF_RUN = ("steps", "task", "algo", "horizon", "seed", "settings", "cpu")
"""The columns that tell one run from another, where a table has them."""


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table, none where there is none yet."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def keep_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put rows of runs into a table; a column is empty where a row has none."""
    made = {_run_of(row) for row in rows}
    every = [*(row for row in read_rows(path) if _run_of(row) not in made), *rows]
    names = list(dict.fromkeys(name for row in every for name in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(every)


def _run_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row.get(name, "")) for name in OF_RUN)


def keep_commands(path: Path, made: Mapping[str, Path]) -> None:
    """Put commands, each with the directory of its run, into a list of machines and what was made on each."""
    machines: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    for machine in machines:
        machine["commands"] = [command for command in machine["commands"] if command not in made]
    for command, directory in made.items():
        environment = environment_of(directory)
        for machine in machines:
            if machine["environment"] == environment:
                machine["commands"].append(command)
                break
        else:
            machines.append({"environment": environment, "commands": [command]})
    left = [machine for machine in machines if machine["commands"]]
    path.write_text(json.dumps(left, indent=2) + "\n")


def environment_of(directory: Path) -> dict[str, Any]:
    """On what a run was made: what its last digits may depend on."""
    about = json.loads((directory / "environment.json").read_text())
    return {name: about[name] for name in ("python", "cpu", "cores_usable", "packages")}
