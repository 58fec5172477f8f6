"""What runs came to, as one page: report."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from m2ac.cli.parsing import parse
from m2ac.escaping import visible, visible_line
from m2ac.settings import ConfigError, UserError

if TYPE_CHECKING:
    from m2ac.report.charts import Chart
    from m2ac.report.records import Record

EVERY = 3.0
"""Seconds between two looks at the files that are watched."""

WATCHED = ("config.json", "metrics.jsonl", "evals.csv", "DONE", "film.webp")

Figures = Callable[[Sequence["Record"]], Sequence["Chart"]]


@dataclass(frozen=True)
class Report:
    """Make one HTML page of all runs in directories and below them: scores, learning curves, what the trust was worth.

    The page is a single file that needs no network. Runs may be unfinished; what one lacks, the page leaves out.
    """

    dirs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = ("runs",)
    """Run directories, or directories that hold some."""
    out: str | None = None
    """File to write. None: report.html in the first directory."""
    title: str | None = None
    """Of the page. None: the directories."""
    open: bool = False
    """Show the page in the browser."""
    watch: bool = False
    """Make the page anew whenever a run has come further, until Ctrl-C; the page reloads itself."""
    figures: str | None = None
    """Write every chart as SVG and PNG into this directory as well, for a paper."""
    films: bool = False
    """Film the best run of each task first, where it has no film yet; that takes some seconds to minutes each."""


def report(args: list[str]) -> int:
    """`m2ac report`."""
    wanted: Report = parse(Report, args, "m2ac report")
    if not wanted.dirs:
        raise ConfigError("m2ac report needs a directory that holds runs, such as runs")
    paths = [Path(each) for each in wanted.dirs]
    out = Path(wanted.out) if wanted.out is not None else paths[0] / "report.html"
    title = wanted.title if wanted.title is not None else ", ".join(_named(path) for path in paths)
    if wanted.films:
        film_best(paths)
    seen = _traces(paths)
    make_page(paths, out, title, refresh=wanted.watch)
    _tell(out)
    if wanted.figures is not None:
        count = write_figures(paths, Path(wanted.figures))
        print(f"figures: {visible(wanted.figures)} ({count} charts as SVG and PNG)")
    if wanted.open:
        show_page(out)
    if wanted.watch:
        _watch(paths, out, title, seen)
    return 0


def make_page(
    paths: Sequence[Path], out: Path, title: str, figures: Figures | None = None, *, refresh: bool = False
) -> Path:
    """Write the page of all runs among the paths and below them, and say where it is.

    `figures` adds charts to it; without, those of the experiments that left a note beside the runs.
    """
    from m2ac.experiments.sweep import figures_of
    from m2ac.report.page import page
    from m2ac.runs import disk

    records = _collect(paths, warn=warn)
    added = figures(records) if figures is not None else figures_of(records, paths)
    text = page(records, title=title, figures=added, refresh=refresh)
    with disk.writing(out, "give another --out"):
        disk.write_atomically(out, text)
    return out


def write_figures(paths: Sequence[Path], folder: Path) -> int:
    """Write every chart of the page as two files and say how many charts there are."""
    from m2ac.experiments.sweep import figures_of
    from m2ac.report.charts import apart
    from m2ac.report.page import charts_of
    from m2ac.report.rendering import image
    from m2ac.runs import disk

    records = _collect(paths, warn=lambda _: None)  # the page has told it
    charts = apart([*charts_of(records), *figures_of(records, paths)])
    with disk.writing(folder, "give another --figures"):
        folder.mkdir(parents=True, exist_ok=True)
        for chart in charts:
            disk.write_atomically(folder / f"{chart.slug}.svg", [image(chart.figure, "svg")])
            disk.write_atomically(folder / f"{chart.slug}.png", [image(chart.figure, "png")])
    return len(charts)


def film_best(paths: Sequence[Path]) -> None:
    """Film the run of each task that ended with the highest return, unless it has a film."""
    from m2ac.report.summary import best_of_tasks
    from m2ac.runs import disk
    from m2ac.runs.collecting import FILM, find_runs, read_record
    from m2ac.runs.film import film_or_none

    runs = {}
    for run in find_runs(paths):
        with suppress(ConfigError):  # which the page tells
            runs[str(run)] = read_record(run, name=str(run))
    for record in best_of_tasks(list(runs.values())):
        if record.film is None:
            print(f"filming {visible(record.name)}", file=sys.stderr, flush=True)
            film = film_or_none(record.name, warn=warn)
            if film is not None:
                with disk.writing(Path(record.name) / FILM, "leave out --films"):
                    disk.write_atomically(Path(record.name) / FILM, [film])


def _collect(paths: Sequence[Path], warn: Callable[[str], None]) -> "list[Record]":
    from m2ac.runs.collecting import collect

    records = collect(paths, warn=warn)
    if not records:
        named = ", ".join(repr(str(path)) for path in paths)
        raise ConfigError(
            f"there is no run in {named}; make one with m2ac train, or give the directory that holds some"
        )
    return records


def _watch(paths: Sequence[Path], out: Path, title: str, seen: object) -> None:
    """Rewrite the page as runs come further; what is left in the end does not reload itself."""
    print("watching; Ctrl-C ends it", file=sys.stderr, flush=True)
    told = ""
    try:
        while True:
            time.sleep(EVERY)
            try:
                now = _traces(paths)
                if now != seen:
                    make_page(paths, out, title, refresh=True)
                seen, told = now, ""
            except UserError as error:  # runs are moved, disks are full, and then they are not any more
                if str(error) != told:
                    told = str(error)
                    warn(told)
    except KeyboardInterrupt:
        make_page(paths, out, title)
        _tell(out)


def _traces(paths: Sequence[Path]) -> list[tuple[str, int, int]]:
    """Size and time of every file that a page is made of."""
    from m2ac.runs.collecting import find_runs

    found = []
    for run in find_runs(paths):
        for name in WATCHED:
            try:
                status = os.stat(run / name, follow_symlinks=False)
            except OSError:
                continue
            found.append((f"{run}/{name}", status.st_size, status.st_mtime_ns))
    return found


def _named(path: Path) -> str:
    return str(path) if path.name else path.resolve().name or str(path)


def show_page(out: Path) -> None:
    """Open the page in the browser."""
    import webbrowser

    if not webbrowser.open(out.resolve().as_uri()):
        warn(f"there is no browser to be found; open {out} yourself")


def _tell(out: Path) -> None:
    print(f"report: {visible(str(out))}", flush=True)


def warn(text: str) -> None:
    """Tell of something that is left out or done otherwise."""
    print(f"warning: {visible_line(text)}", file=sys.stderr, flush=True)
