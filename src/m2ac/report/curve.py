"""The learning curve of one run as a picture."""

import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from m2ac.escaping import visible

# Okabe and Ito's palette: told apart by every common kind of colour vision.
BLUE, GREEN, VERMILLION = "#0072B2", "#009E73", "#D55E00"
INK, SOFT, FAINT, AXIS = "#333333", "#666666", "#8a8a8a", "#b0b0b0"
LONGEST_TITLE = 80

Point = tuple[float, float]


@matplotlib.rc_context({"text.usetex": False})  # LaTeX, if a matplotlibrc asks for it, would be given user text
def draw_learning_curve(
    evals: Sequence[Mapping[str, Any]],
    *,
    title: str,
    path: str | os.PathLike[str],
    metrics: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """Write a PNG: evaluation returns over steps, and where `metrics` tell it, how far the model was trusted.

    `evals` has a row per evaluation episode with "step" and "return". From `metrics` come "trust/share_kept",
    "trust/uncertainty_kept" and "trust/uncertainty_dropped"; values that are missing or not finite are left out.
    """
    share = _points(metrics or (), "trust/share_kept")
    kept = _points(metrics or (), "trust/uncertainty_kept")
    dropped = _points(metrics or (), "trust/uncertainty_dropped")
    heights = {"return": 3.0}
    if kept or dropped:
        heights["uncertainty"] = 1.2
    if share:
        heights["share"] = 0.8
    figure = Figure(figsize=(8, 5 if len(heights) == 1 else 6), dpi=150)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1)
    FigureCanvasAgg(figure)
    rows = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=list(heights.values()))[:, 0]
    panels = dict(zip(heights, rows, strict=True))

    episodes = _points(evals, "return")
    _draw_returns(panels["return"], episodes)
    if "uncertainty" in panels:
        _draw_uncertainty(panels["uncertainty"], kept, dropped)
    if "share" in panels:
        _draw_share(panels["share"], share)
    for panel in panels.values():
        _tidy(panel)
    rows[0].set_xlim(0, max((step for step, _ in (*episodes, *kept, *dropped, *share)), default=0) or 1)
    rows[-1].set_xlabel("environment steps", fontsize=11, color=INK)
    _entitle(rows[0], title)
    _save(figure, Path(path))


def _points(rows: Sequence[Mapping[str, Any]], key: str) -> list[Point]:
    """(step, value) of the rows that have a finite number under `key`, in the order of steps."""
    found = [(float(row["step"]), float(row[key])) for row in rows if isinstance(row.get(key), int | float)]
    return sorted(point for point in found if math.isfinite(point[1]))


def _draw_returns(panel: Axes, episodes: Sequence[Point]) -> None:
    if not episodes:
        panel.text(0.5, 0.5, "no evaluation yet", transform=panel.transAxes, ha="center", color=FAINT, fontsize=12)
        panel.set_yticks([])
        return
    by_step: defaultdict[float, list[float]] = defaultdict(list)
    for step, value in episodes:
        by_step[step].append(value)
    steps = list(by_step)
    means = [math.fsum(values) / len(values) for values in by_step.values()]
    lows, highs = [min(v) for v in by_step.values()], [max(v) for v in by_step.values()]
    panel.fill_between(steps, lows, highs, color=BLUE, alpha=0.13, linewidth=0)
    panel.scatter(*zip(*episodes, strict=True), s=9, color=BLUE, alpha=0.3, linewidths=0, clip_on=False)
    _line(panel, list(zip(steps, means, strict=True)), BLUE, width=2.2, dots=60)
    _label(panel, means[-1], "mean\n" + f"{means[-1]:,.1f}".replace("-", "−"), BLUE, weight="bold")
    several = any(len(values) > 1 for values in by_step.values())
    _describe(
        panel, "evaluation return" + (" (line: mean, points: episodes, band: lowest to highest)" if several else "")
    )


def _draw_uncertainty(panel: Axes, kept: Sequence[Point], dropped: Sequence[Point]) -> None:
    # The nll score can be negative, and then a logarithm has nothing to say.
    logarithmic = all(value > 0 for _, value in (*kept, *dropped))
    if logarithmic:
        panel.set_yscale("log")
    higher_first = sorted([(kept, GREEN, "kept"), (dropped, VERMILLION, "dropped")], key=_last_value, reverse=True)
    # Labels lean away from each other, so that they can be read where the lines meet.
    for (points, colour, name), lean in zip(higher_first, ("bottom", "top"), strict=True):
        if points:
            _line(panel, points, colour)
            _label(panel, points[-1][1], name, colour, lean="center" if not (kept and dropped) else lean)
    _describe(panel, "uncertainty of imagined transitions" + (" (log scale)" if logarithmic else ""))


def _last_value(series: tuple[Sequence[Point], str, str]) -> float:
    return series[0][-1][1] if series[0] else -math.inf


def _draw_share(panel: Axes, share: Sequence[Point]) -> None:
    _line(panel, share, GREEN)
    _label(panel, share[-1][1], f"{share[-1][1]:.0%}", GREEN)
    panel.set_ylim(0, 1.04)
    panel.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    _describe(panel, "share of imagined transitions kept")


def _line(panel: Axes, points: Sequence[Point], colour: str, *, width: float = 1.6, dots: int = 1) -> None:
    """A line, with a dot at each point where there are at most `dots` of them."""
    marker = "o" if len(points) <= dots else ""
    panel.plot(*zip(*points, strict=True), color=colour, linewidth=width, marker=marker, markersize=4.5, clip_on=False)


def _label(panel: Axes, height: float, text: str, colour: str, *, lean: str = "center", weight: str = "normal") -> None:
    """The name of a line beside its end, in the margin on the right."""
    panel.annotate(
        text,
        (1, height),
        xycoords=panel.get_yaxis_transform(),
        xytext=(8, {"bottom": -3, "center": 0, "top": 3}[lean]),
        textcoords="offset points",
        va=lean,
        color=colour,
        fontsize=10,
        fontweight=weight,
        annotation_clip=False,
    )


def _describe(panel: Axes, text: str) -> None:
    """What a panel shows, above it: easier to read than a label turned by 90 degrees."""
    panel.annotate(
        text, (0, 1), xytext=(0, 6), xycoords="axes fraction", textcoords="offset points", color=SOFT, fontsize=10
    )


def _entitle(panel: Axes, title: str) -> None:
    """User text: one line, shrunk before it is cut, and no dollar sign starts a formula."""
    shown = visible(title)
    if len(shown) > LONGEST_TITLE:
        shown = shown[: LONGEST_TITLE - 1] + "…"
    size = min(14.0, 14.0 * 50 / max(1, len(shown)))
    panel.set_title(
        shown, loc="left", fontsize=size, fontweight="bold", color=INK, pad=24, parse_math=False, usetex=False
    )


def _tidy(panel: Axes) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(AXIS)
    panel.tick_params(labelcolor=INK, labelsize=10, color=AXIS)
    panel.grid(color="#e6e6e6", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 2.5, 5, 10]))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    if panel.get_yscale() == "log":
        panel.yaxis.set_major_locator(LogLocator(numticks=4))
        panel.minorticks_off()


def _save(figure: Figure, path: Path) -> None:
    """Replace the picture in one step, so that a viewer never meets half of one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:  # new: what else may have that name, such as a link, is not written through
            figure.savefig(file, format="png", dpi=figure.dpi, facecolor="white")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
