"""What a user sees while a run goes on: a live region on a terminal, sparse plain lines elsewhere."""

import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO

from m2ac.escaping import visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

BLOCKS = "▁▂▃▄▅▆▇█"


class Status(NamedTuple):
    """Where a run stands; None is what is not known yet."""

    step: int
    steps: int
    phase: str  # such as "exploring", "fitting", "imagining", "learning", "evaluating"
    returns: Sequence[float] = ()  # the mean of every evaluation so far, those before a resume included
    train_return: float | None = None  # of the last training episode
    steps_per_second: float | None = None
    seconds_left: float | None = None
    model_loss: float | None = None
    share_kept: float | None = None
    elapsed: float = 0.0
    unit: str = "steps"  # what is counted: "updates" while there is nothing but a log to learn from

    @property
    def mean_return(self) -> float | None:
        """The last evaluation's mean return."""
        return self.returns[-1] if self.returns else None

    @property
    def best_return(self) -> float | None:
        """The best evaluation's mean return."""
        return max((value for value in self.returns if not math.isnan(value)), default=None)

    @property
    def share_done(self) -> float:
        """Progress in [0, 1]."""
        return min(1.0, self.step / self.steps) if self.steps else 1.0


class Display(Protocol):
    """Shows a run's progress."""

    def update(self, status: Status) -> None:
        """Take note of where the run stands; cheap enough to call at every step."""

    def message(self, text: str) -> None:
        """Say something that stays on the screen."""

    def close(self) -> None:
        """Show the last status and let go of the screen."""


class Pace:
    """Steps per second as a moving average whose memory fades by half in every `half_life` seconds."""

    def __init__(self, steps: int, *, half_life: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = steps
        self._half_life = half_life
        self._clock = clock
        self._last: tuple[int, float] | None = None
        # Steps and seconds fade together and are divided last, so the start needs no bias correction.
        self._recent_steps = self._recent_seconds = 0.0

    def update(self, step: int) -> None:
        """Note that the run has now made `step` steps; the first call sets the start."""
        now = self._clock()
        if self._last is not None:
            seconds = now - self._last[1]
            fade = 0.5 ** (seconds / self._half_life)
            self._recent_steps = self._recent_steps * fade + step - self._last[0]
            self._recent_seconds = self._recent_seconds * fade + seconds
        self._last = step, now

    @property
    def steps_per_second(self) -> float | None:
        """The speed of late, None before there is any."""
        return self._recent_steps / self._recent_seconds if self._recent_seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at this speed, None before there is any."""
        speed = self.steps_per_second
        return max(0, self._steps - self._last[0]) / speed if speed and self._last else None


def duration(seconds: float | None) -> str:
    """The two leading units: "9s", "2m05s", "1h02m", "3d04h"; "-" for what is unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def number(value: float | None) -> str:
    """At most eight characters: "-812.3", "0.52", "1.2e+06"; "-" for what is unknown."""
    if value is None:
        return "-"
    size = abs(value)
    return f"{value:.2f}" if size < 100 else f"{value:.1f}" if size < 100_000 else f"{value:.1e}"


def percent(share: float | None) -> str:
    """The whole per cent reached: "99%" until all is done; "-" for what is unknown."""
    return "-" if share is None or not math.isfinite(share) else f"{math.floor(share * 100 + 1e-9)}%"


def sparkline(values: Sequence[float], width: int) -> str:
    """The finite values as blocks from lowest to highest, neighbours averaged where there are more than `width`."""
    finite = [value for value in values if math.isfinite(value)]
    count = min(width, len(finite))
    edges = [len(finite) * i // count for i in range(count + 1)] if count else []
    means = [math.fsum(finite[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    if not means:
        return ""
    low, span = min(means), max(means) - min(means)
    return "".join(BLOCKS[min(7, int((mean - low) / span * 8))] if span else BLOCKS[3] for mean in means)


class PlainDisplay:
    """A line every ten seconds at most and one for every evaluation, for files, pipes and dumb terminals."""

    def __init__(self, stream: TextIO, *, interval: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._interval = interval
        self._clock = clock
        self._due = -math.inf
        self._shown: Status | None = None
        self._evaluations = 0
        self._latest: Status | None = None

    def update(self, status: Status) -> None:
        """Write a line if one is due."""
        self._latest = status
        if len(status.returns) > self._evaluations or self._clock() >= self._due:
            self._show(status)

    def message(self, text: str) -> None:
        """Write the text on a line of its own."""
        self._write(visible(text))

    def close(self) -> None:
        """Write the last status if it has not been shown."""
        if self._latest is not None and self._latest != self._shown:
            self._show(self._latest)

    def _show(self, status: Status) -> None:
        self._shown, self._evaluations = status, len(status.returns)
        self._due = self._clock() + self._interval
        width = len(str(status.steps))
        self._write(
            f"{status.step:>{width}}/{status.steps} {percent(status.share_done):>4}  {visible(status.phase):<10}"
            f"  eval {number(status.mean_return):>8}  best {number(status.best_return):>8}"
            f"  train {number(status.train_return):>8}  model {number(status.model_loss):>8}"
            f"  kept {percent(status.share_kept):>4}  {number(status.steps_per_second):>8} {status.unit}/s"
            f"  elapsed {duration(status.elapsed):>6}  left {duration(status.seconds_left):>6}"
        )

    def _write(self, line: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        self._stream.flush()


class RichDisplay:
    """A progress bar, the values of interest and the evaluations so far, in a live region of the terminal."""

    def __init__(self, console: "Console", *, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live
        from rich.spinner import Spinner

        self._console = console
        self._clock = clock
        self._spinner = Spinner("dots", style="cyan")
        self._status: Status | None = None
        self._received = 0.0
        # A thread of its own draws, so the clock and the spinner go on while a compiled call takes its time.
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=6)

    def update(self, status: Status) -> None:
        """Keep the status for the next refresh."""
        first = self._status is None
        self._status, self._received = status, self._clock()
        if first:
            self._live.start()

    def message(self, text: str) -> None:
        """Print the text above the live region."""
        from rich.text import Text

        self._console.print(Text(visible(text)))

    def close(self) -> None:
        """Draw once more and leave the picture on the screen."""
        self._live.stop()

    def render(self) -> "RenderableType":
        """The region as it should look now."""
        from rich.columns import Columns
        from rich.console import Group
        from rich.text import Text

        status = self._status
        if status is None:
            return Text("")
        waited = self._clock() - self._received if self._live.is_started else 0.0
        left = None if status.seconds_left is None else max(0.0, status.seconds_left - waited)
        curve = sparkline(status.returns, max(10, min(60, self._console.width - 42)))
        returns = Text.assemble(
            ("eval ", "dim"),
            (f"{number(status.mean_return):>8}", "bold"),
            ("  best ", "dim"),
            (f"{number(status.best_return):>8}", "bold green"),
            "  ",
            (curve, "green"),
            no_wrap=True,
            overflow="crop",
        )
        cells = [
            _cell("train", f"{number(status.train_return):>8}"),
            _cell("kept", f"{percent(status.share_kept):>4}"),
            _cell("model loss", f"{number(status.model_loss):>8}"),
            _cell(f"{status.unit}/s", f"{number(status.steps_per_second):>8}"),
            _cell("elapsed", f"{duration(status.elapsed + waited):>6}"),
        ]
        return Group(self._bar(status, left), returns, Columns(cells, padding=(0, 2)))

    def _bar(self, status: Status, left: float | None) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        row = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, None, 1, None, None, None):
            row.add_column(ratio=ratio, no_wrap=True)
        row.add_row(
            self._spinner if self._live.is_started else Text("✓" if status.share_done == 1 else "■", style="cyan"),
            Text(f"{visible(status.phase):<10}", style="cyan"),
            ProgressBar(total=1.0, completed=status.share_done, complete_style="cyan", finished_style="green"),
            Text(f"{status.step}/{status.steps}"),
            Text(f"{percent(status.share_done):>4}"),
            Text(f"{duration(left):>6} left", style="dim"),
        )
        return row


def _cell(name: str, value: str) -> "RenderableType":
    from rich.text import Text

    return Text.assemble((f"{name} ", "dim"), value, no_wrap=True)


def can_draw(stream: TextIO) -> bool:
    """Whether the stream is a terminal that can show a live region."""
    encoding = (getattr(stream, "encoding", None) or "").lower()
    capable = os.environ.get("TERM", "").lower() not in ("dumb", "unknown") and "utf" in encoding
    return stream.isatty() and capable


def make_display(stream: TextIO) -> Display:
    """The live region where the stream can show it, plain lines otherwise."""
    if not can_draw(stream):
        return PlainDisplay(stream)
    from rich.console import Console

    return RichDisplay(Console(file=stream))
