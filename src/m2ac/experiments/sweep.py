"""The note that an experiment leaves beside its runs, by which a report knows which figures to draw from them."""

import json
from collections.abc import Sequence
from dataclasses import replace
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
    folder: Path
    runs: frozenset[str]  # their names

    def charts(self, records: Sequence[Record]) -> list[Chart]:
        """The figure, drawn from those of its runs that are among the records; other scales have the same names."""
        here = [record for record in records if record.folder == self.folder]
        own = [record for record in here if Path(record.name).name in self.runs]
        experiment = self.experiment
        return paper_figures(experiment.drawing, own, setting=experiment.setting, labels=experiment.labels)


def leave_note(out: Path, experiment: Experiment, runs: Sequence[str]) -> None:
    """Write down that `out` has runs of the experiment."""
    path = out / f"{experiment.name}{ENDING}"
    with disk.writing(path, "give another --out"):
        out.mkdir(parents=True, exist_ok=True)
        disk.write_atomically(path, disk.dump_json({"experiment": experiment.name, "runs": list(runs)}, indent=2))


def figures_of(records: Sequence[Record], paths: Sequence[Path]) -> list[Chart]:
    """The figures of every note beside the runs, in the paths or below them; with their directory where several are."""
    within = [path.resolve() for path in paths]
    folders = sorted({each.folder for each in records if each.folder is not None})
    sweeps = find_sweeps([folder for folder in folders if any(folder.is_relative_to(path) for path in within)])
    several = len({sweep.folder for sweep in sweeps}) > 1
    return [
        replace(chart, title=f"{chart.title} ({sweep.folder.name})") if several else chart
        for sweep in sweeps
        for chart in sweep.charts(records)
    ]


def find_sweeps(folders: Sequence[Path]) -> list[Sweep]:
    """Of every note in the resolved directories; what cannot be read is no note."""
    found = []
    for folder in folders:
        for note in sorted(folder.glob(f"*{ENDING}")):
            try:
                values = json.loads(disk.read(note, at_most=LARGEST))
                found.append(Sweep(EXPERIMENTS[values["experiment"]], folder, frozenset(map(str, values["runs"]))))
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                continue
    return found
