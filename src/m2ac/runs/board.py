"""What a user sees of many runs: a live table on a terminal, sparse plain lines elsewhere."""

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from m2ac.escaping import visible
from m2ac.runs.display import can_draw, duration, number, percent
from m2ac.runs.jobs import Job, Outcome, standing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


SHOWN = 20
"""Running jobs that are told of one by one; a cluster has hundreds under way."""


class Board(Protocol):
    """Shows how far many runs have come."""

    def show(self, running: Sequence[Job], waiting: Sequence[Job], ended: Sequence[Outcome]) -> None:
        """Take note of where the jobs stand; may be called often."""

    def message(self, text: str) -> None:
        """Say something that stays on the screen."""

    def close(self) -> None:
        """Let go of the screen."""


def counts(running: Sequence[Job], waiting: Sequence[Job], ended: Sequence[Outcome]) -> str:
    """How many jobs are in which state."""
    states = [outcome.state for outcome in ended]
    told = {"running": len(running), "waiting": len(waiting)}
    told |= {state: states.count(state) for state in ("finished", "stopped", "failed")}
    return ", ".join(f"{count} {state}" for state, count in told.items() if count) or "nothing to do"


class PlainBoard:
    """A line for every change, and one for every running job each minute."""

    def __init__(self, stream: TextIO, *, interval: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._interval, self._clock = stream, interval, clock
        self._due = clock() + interval
        self._shown = ""
        self._ended: set[str] = set()

    def show(self, running: Sequence[Job], waiting: Sequence[Job], ended: Sequence[Outcome]) -> None:
        """Write what is new."""
        for outcome in ended:
            if outcome.job.name not in self._ended and outcome.attempts:
                self.message(f"{outcome.state}: {outcome.job.name}  {_line(outcome.job)}")
            self._ended.add(outcome.job.name)
        now = counts(running, waiting, ended)
        if now != self._shown:
            self._shown = now
            self.message(now)
        if self._clock() >= self._due:
            self._due = self._clock() + self._interval
            for job in running[:SHOWN]:
                self.message(f"running: {job.name}  {_line(job)}")

    def message(self, text: str) -> None:
        """Write the text on a line of its own."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(visible(text).encode(encoding, "backslashreplace").decode(encoding) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing is held."""


def _line(job: Job) -> str:
    now = standing(job)
    return f"{now.step}/{job.steps}  eval {number(now.mean_return)}  {duration(now.seconds)}"


class RichBoard:
    """A table of the running jobs and the latest that ended, in a live region of the terminal."""

    def __init__(self, console: "Console", *, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        self._console, self._clock = console, clock
        self._due = -math.inf
        self._live = Live(console=console, auto_refresh=False)

    def show(self, running: Sequence[Job], waiting: Sequence[Job], ended: Sequence[Outcome]) -> None:
        """Draw anew once a second."""
        over = not running and not waiting
        if self._clock() < self._due and not over:
            return
        self._due = self._clock() + 1.0
        if not self._live.is_started:
            self._live.start()
        self._live.update(self.table(running, waiting, ended), refresh=True)

    def table(self, running: Sequence[Job], waiting: Sequence[Job], ended: Sequence[Outcome]) -> "Table":
        """The region as it should look now."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(title=counts(running, waiting, ended), title_justify="left", box=None, padding=(0, 1))
        for name, justify in (("run", "left"), ("", "left"), ("", "right"), ("eval", "right"), ("time", "right")):
            table.add_column(name, justify=_justify(justify), no_wrap=True)
        rows: list[tuple[str, Job, str]] = [("cyan", job, "") for job in running[:SHOWN]]
        marks = {"finished": ("green", "✓"), "failed": ("red", "✗"), "stopped": ("yellow", "■")}
        late = [(*marks[outcome.state], outcome.job) for outcome in ended if outcome.attempts][-5:]
        rows += [(style, job, mark) for style, mark, job in late]
        for style, job, mark in rows:
            now = standing(job)
            share = min(1.0, now.step / job.steps)
            bar = Text(mark, style=style) if mark else ProgressBar(total=1.0, completed=share, width=20)
            told = percent(share), number(now.mean_return), duration(now.seconds)
            table.add_row(Text(visible(job.name), style=style, overflow="ellipsis"), bar, *told)
        return table

    def message(self, text: str) -> None:
        """Print the text above the table."""
        from rich.text import Text

        self._console.print(Text(visible(text)))

    def close(self) -> None:
        """Leave the last picture on the screen."""
        self._live.stop()


def _justify(name: str) -> Any:
    """As rich's own type of words."""
    return name


def make_board(stream: TextIO) -> Board:
    """The live table where the stream can show it, plain lines otherwise."""
    if not can_draw(stream):
        return PlainBoard(stream)
    from rich.console import Console

    return RichBoard(Console(file=stream))
