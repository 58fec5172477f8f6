"""What a user sees while a run goes on."""

import io
import math

import pytest
from rich.console import Console

from m2ac.runs.display import (
    Pace,
    PlainDisplay,
    RichDisplay,
    Status,
    duration,
    make_display,
    number,
    percent,
    sparkline,
)

FULL = Status(
    step=1500,
    steps=3000,
    phase="fitting",
    returns=(-1200.0, -640.1, -812.3),
    train_return=-700.2,
    steps_per_second=12.3,
    seconds_left=122.0,
    model_loss=-3.21,
    share_kept=0.5,
    elapsed=125.0,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def test_status_takes_last_and_best_from_the_evaluations():
    assert (FULL.mean_return, FULL.best_return) == (-812.3, -640.1)
    assert Status(0, 10, "exploring").mean_return is None
    assert Status(0, 10, "exploring", returns=[math.nan]).best_return is None
    assert Status(12, 10, "learning").share_done == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (9.4, "9s"), (59.6, "1m00s"), (125, "2m05s"), (3725, "1h02m"), (273_600, "3d04h"), (-3, "0s")],
)
def test_durations_show_two_units(seconds: float, text: str):
    assert duration(seconds) == text


def test_what_is_unknown_is_a_dash():
    assert [duration(None), duration(math.inf), number(None), percent(None), percent(math.nan)] == ["-"] * 5


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.517, "0.52"), (-812.34, "-812.3"), (-99999.94, "-99999.9"), (1_250_000, "1.2e+06"), (math.nan, "nan")],
)
def test_numbers_fit_eight_characters(value: float, text: str):
    assert number(value) == text


def test_a_hundred_per_cent_is_shown_only_at_the_end():
    assert [percent(0.9999), percent(1.0), percent(0.29)] == ["99%", "100%", "29%"]


def test_sparkline_goes_from_lowest_to_highest():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 8, 8], 2) == "▁█"
    assert sparkline([5, 5], 8) == "▄▄"
    assert sparkline([math.nan, 1, math.inf, 2], 8) == "▁█"
    assert sparkline([], 8) == sparkline([math.nan], 8) == ""
    assert len(sparkline(range(1000), 17)) == 17


def test_pace_is_the_speed_of_late():
    clock = Clock()
    pace = Pace(1000, half_life=10, clock=clock)
    assert pace.steps_per_second is None
    pace.update(100)
    assert pace.seconds_left is None
    clock.now += 10
    pace.update(300)
    assert pace.steps_per_second == 20
    assert pace.seconds_left == 35
    clock.now += 10
    pace.update(300)
    # half of 200 steps and of 10 seconds is remembered, and 10 seconds without a step are added
    assert pace.steps_per_second == pytest.approx(100 / 15)
    assert pace.seconds_left == pytest.approx(105)
    pace.update(1200)
    assert pace.seconds_left == 0


def test_plain_lines_come_every_ten_seconds_at_each_evaluation_and_at_the_end():
    stream, clock = io.StringIO(), Clock()
    display = PlainDisplay(stream, clock=clock)
    returns: list[float] = []  # one list that grows, as a caller may well keep it
    for seconds, step in ((0, 1), (4, 2), (9.9, 3), (10, 4), (11, 5), (20.9, 6), (21, 7), (22, 8)):
        clock.now = 100 + seconds
        if step in (5, 8):
            returns.append(-150.0)
        display.update(Status(step, 10, "learning", returns=returns))
    display.update(Status(9, 10, "learning", returns=returns))
    display.close()
    display.close()
    shown = [int(line.split("/")[0]) for line in stream.getvalue().splitlines()]
    assert shown == [1, 4, 5, 7, 8, 9]


def test_plain_lines_are_aligned():
    stream = io.StringIO()
    display = PlainDisplay(stream, interval=0)
    display.update(Status(5, 3000, "exploring"))
    display.update(FULL)
    first, second = stream.getvalue().splitlines()
    assert second == (
        "1500/3000  50%  fitting     eval   -812.3  best   -640.1  train   -700.2  model    -3.21"
        "  kept  50%     12.30 steps/s  elapsed  2m05s  left  2m02s"
    )
    for word in ("eval", "best", "train", "model", "kept", "steps/s", "elapsed", "left"):
        assert first.index(word) == second.index(word)
    assert len(first) == len(second)


def test_plain_messages_survive_a_narrow_encoding_and_cannot_steer_a_terminal():
    raw = io.BytesIO()
    display = PlainDisplay(io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    display.message("grün \x1b[2J")
    assert raw.getvalue() == b"gr\\xfcn \\x1b[2J\n"


@pytest.mark.parametrize(("width", "lines"), [(60, 4), (120, 3)])
def test_the_live_region_fits_the_terminal_and_shows_every_value(width: int, lines: int):
    screen, paper = (
        Console(file=io.StringIO(), width=width, force_terminal=True, record=record, _environ={})
        for record in (False, True)
    )
    display = RichDisplay(screen, clock=Clock())
    display.update(FULL._replace(returns=[float(i) for i in range(200)]))
    paper.print(display.render())
    region = paper.export_text().rstrip("\n").split("\n")
    display.close()
    assert len(region) == lines
    assert max(map(len, region)) <= width
    text = " ".join(" ".join(region).split())
    for part in ("fitting", "1500/3000 50%", "2m02s left", "eval 199.0", "best 199.0", "train -700.2", "kept 50%"):
        assert part in text
    for part in ("model loss -3.21", "steps/s 12.30", "elapsed 2m05s", "▁", "█"):
        assert part in text
    assert "…" not in text


def test_the_clock_of_the_live_region_goes_on_between_updates():
    clock = Clock()
    console = Console(file=io.StringIO(), width=120, force_terminal=True, _environ={})
    display = RichDisplay(console, clock=clock)
    display.update(FULL)
    clock.now += 60
    with console.capture() as capture:
        console.print(display.render())
    display.close()
    assert "3m05s" in capture.get()
    assert "1m02s left" in capture.get()


def test_user_text_is_no_markup_in_the_live_region():
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, _environ={})
    display = RichDisplay(console)
    display.update(FULL._replace(phase="[red]x[/y]"))
    display.message("[bold]a[/nonsense] \x1b[2J")
    display.close()
    display.close()
    assert "[bold]a[/nonsense] \\x1b[2J" in stream.getvalue()
    assert "[red]x[/y]" in stream.getvalue()
    assert "\x1b[2J" not in stream.getvalue()


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    display = make_display(stream)
    display.update(FULL)
    display.close()
    assert "fitting" in stream.getvalue()
    assert "\x1b[36m" not in stream.getvalue()


def test_the_live_region_is_for_capable_terminals_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(make_display(Terminal()), RichDisplay)
    assert isinstance(make_display(io.StringIO()), PlainDisplay)
    ascii_terminal = Terminal()
    ascii_terminal.encoding = "ascii"
    assert isinstance(make_display(ascii_terminal), PlainDisplay)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_display(Terminal()), PlainDisplay)
