"""The note that an experiment leaves beside its runs, by which a report knows which figures to draw from them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from m2ac.experiments.figures import EXPERIMENTS, Experiment
from m2ac.report.charts import Chart
from m2ac.report.figures import paper_figures
from m2ac.report.records import Record
from m2ac.runs import disk

ENDING = ".experiment.json"
LARGEST = 2**20


class Sweep(NamedTuple):
    """The runs of a figure in one directory."""

    experiment: Experiment
    runs: frozenset[str]  # their names

    def charts(self, records: Sequence[Record]) -> list[Chart]:
        """The figure, drawn from those of its runs that are among the records."""
        own = [record for record in records if Path(record.name).name in self.runs]
        experiment = self.experiment
        return paper_figures(experiment.drawing, own, setting=experiment.setting, labels=experiment.labels)


def leave_note(out: Path, experiment: Experiment, runs: Sequence[str]) -> None:
    """Write down that `out` has runs of the experiment."""
    path = out / f"{experiment.name}{ENDING}"
    with disk.writing(path, "give another --out"):
        out.mkdir(parents=True, exist_ok=True)
        disk.write_atomically(path, disk.dump_json({"experiment": experiment.name, "runs": list(runs)}, indent=2))


def find_sweeps(paths: Sequence[Path]) -> list[Sweep]:
    """Of every note in the directories; what cannot be read is no note."""
    found = []
    for path in paths:
        for note in sorted(path.glob(f"*{ENDING}")):
            try:
                values = json.loads(disk.read(note, at_most=LARGEST))
                found.append(Sweep(EXPERIMENTS[values["experiment"]], frozenset(map(str, values["runs"]))))
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                continue
    return found
