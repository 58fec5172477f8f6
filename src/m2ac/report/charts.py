"""Charts of a report: what one is, and how a variant looks in all of them."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from m2ac.escaping import visible
from m2ac.report.curve import AXIS, BLUE, GREEN, INK, SOFT, VERMILLION
from m2ac.report.records import Record

COLOURS = {
    "m2ac": BLUE,
    "mbpo": VERMILLION,
    "sac": GREEN,
    "ppo": "#CC79A7",
    "steve": "#E69F00",
    "mve": "#56B4E9",
    "ddpg": "#555555",  # for Okabe and Ito's black, which is the ink, and their yellow, which is lost on white
}
"""Of each algorithm, from Okabe and Ito's palette; also the order in which they are told."""

GRID = "#e6e6e6"
_SHADES = ((0.0,), (0.0, -0.45), (0.35, 0.0, -0.45), (0.45, 0.15, -0.2, -0.5), (0.5, 0.25, 0.0, -0.3, -0.55))
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))

WIDTH = 5.4
"""Of a chart, in inches: two fit beside each other on a page, and one on a telephone can be read."""
SIZE = 9.0
"""Of text, in points."""
LONGEST_LABEL = 44
LONGEST_SLUG = 150


class Variant(NamedTuple):
    """What runs have in common that differ in their seed alone."""

    task: str
    algo: str
    horizon: int | None
    settings: str

    @classmethod
    def of(cls, record: Record) -> "Variant":
        """The variant that a run belongs to."""
        return cls(record.env, record.algo, record.horizon, record.settings)

    @property
    def name(self) -> str:
        """Without the task: "M2AC, H=10, mask.rate=0.25"."""
        horizon = [] if self.horizon is None else [f"H={self.horizon}"]
        return ", ".join([self.algo.upper(), *horizon, *([self.settings] if self.settings else [])])

    @property
    def tag(self) -> str:
        """What the page's filters know it by: task, algorithm, rollout length and settings as tokens."""
        return "|".join(map(token, (self.task, self.algo, str(self.horizon or "none"), self.settings or "usual")))


def token(text: str) -> str:
    """The text in letters, digits and .=_- alone, different for every text."""
    return re.sub(r"[^A-Za-z0-9.=_-]", lambda found: f"~{ord(found[0]):x}~", text)


def by_variant(records: Iterable[Record]) -> dict[Variant, list[Record]]:
    """The runs of each variant in the order of their seeds; tasks by name, algorithms as in `COLOURS`."""
    groups: dict[Variant, list[Record]] = {}
    for record in sorted(records, key=lambda record: (record.seed, record.name)):
        groups.setdefault(Variant.of(record), []).append(record)
    return dict(sorted(groups.items(), key=lambda item: _place(item[0])))


def _place(variant: Variant) -> tuple[Any, ...]:
    known = list(COLOURS)
    order = known.index(variant.algo) if variant.algo in known else len(known)
    return variant.task, order, variant.algo, variant.horizon or 0, variant.settings


class Style(NamedTuple):
    """How the lines of a variant look."""

    colour: str
    dashes: Any = "-"


def styles(variants: Iterable[Variant]) -> dict[Variant, Style]:
    """An algorithm has a colour, in a task longer rollouts a lighter one; dashes tell its settings apart."""
    wanted = list(variants)
    found = {}
    for variant in wanted:
        others = [each for each in wanted if (each.task, each.algo) == (variant.task, variant.algo)]
        horizons = sorted({each.horizon or 0 for each in others}, reverse=True)
        settings = sorted({each.settings for each in others})
        ramp = _SHADES[min(len(horizons), len(_SHADES)) - 1]
        strength = ramp[horizons.index(variant.horizon or 0) % len(ramp)]
        dashes = _DASHES[settings.index(variant.settings) % len(_DASHES)]
        found[variant] = Style(shade(COLOURS.get(variant.algo, SOFT), strength), dashes)
    return found


def shade(colour: str, share: float) -> str:
    """The colour with so much of it replaced by white, or by black where the share is negative."""
    towards = float(share > 0)
    red, green, blue = (part + (towards - part) * abs(share) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def labels(variants: Iterable[Variant]) -> dict[Variant, str]:
    """Names short enough for a legend, as far as they still tell the variants apart."""
    names = {variant: visible(variant.name) for variant in variants}
    short = {v: n if len(n) <= LONGEST_LABEL else n[: LONGEST_LABEL - 1] + "…" for v, n in names.items()}
    seen = list(short.values())
    return {variant: short[variant] if seen.count(short[variant]) == 1 else names[variant] for variant in names}


@dataclass(frozen=True)
class Chart:
    """A drawing with the words that belong to it."""

    slug: str
    """Its file's name without an ending: letters, digits and .=_-~ alone."""
    title: str
    caption: str
    """What is seen and how to read it."""
    figure: Figure = field(repr=False)
    """Its artists that belong to a variant are marked by `belongs`."""
    tasks: tuple[str, ...] = ()
    """It is hidden where the filters leave none of these; without any it stays as long as one of its series does."""


def belongs(artist: Artist, variant: Variant) -> None:
    """Let the page's filters show and hide the artist with the variant."""
    artist.set_gid(f"series|{variant.tag}")


def belongs_to_algo(artist: Artist, algo: str) -> None:
    """The same for what several variants of an algorithm make together: the filter of algorithms alone hides it."""
    artist.set_gid(f"series||{token(algo)}||")


def apart(charts: Iterable[Chart]) -> list[Chart]:
    """The same charts with a number behind each slug that another one has had, whatever the case of its letters.

    What a file system has no room for is cut off first.
    """
    taken: set[str] = set()
    found = []
    for chart in charts:
        short = chart.slug[:LONGEST_SLUG]
        slug, number = short, 2
        while slug.lower() in taken:
            slug, number = f"{short}-{number}", number + 1
        taken.add(slug.lower())
        found.append(replace(chart, slug=slug))
    return found


def panels(heights: Sequence[float], shown: Mapping[Variant, Style]) -> tuple[Figure, list[Axes]]:
    """Panels above each other of these heights in inches, tidy, with a legend of the variants below them."""
    names = list(labels(shown).values())
    columns = _columns(names)
    below = 0.52 + 0.178 * math.ceil(len(names) / columns) + (0.06 if names else 0)
    left, right, above, between = 0.62, 0.14, 0.32, 0.46
    height = above + sum(heights) + between * (len(heights) - 1) + below
    figure = Figure(figsize=(WIDTH, height), dpi=100)
    FigureCanvasAgg(figure)
    rows: list[Axes] = []
    top = height - above
    for each in heights:
        box = (left / WIDTH, (top - each) / height, 1 - (left + right) / WIDTH, each / height)
        rows.append(figure.add_axes(box, sharex=rows[0] if rows else None))
        top -= each + between
    for row in rows:
        tidy(row)
        row.tick_params(labelbottom=row is rows[-1])
    if names:
        _legend(figure, shown, names, columns, left / WIDTH)
    return figure, rows


def _columns(names: Sequence[str]) -> int:
    """How many names fit beside each other."""
    widest = 0.5 + 0.082 * max((len(name) for name in names), default=1)
    return max(1, min(3, len(names), int((WIDTH - 0.62) / widest)))


def _legend(figure: Figure, shown: Mapping[Variant, Style], names: Sequence[str], columns: int, left: float) -> None:
    handles = [Line2D([], [], color=style.colour, linestyle=style.dashes, linewidth=2) for style in shown.values()]
    legend = figure.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(left, 0.0),
        ncols=columns,
        frameon=False,
        fontsize=SIZE,
        labelcolor=INK,
        handlelength=2.0,
        columnspacing=1.4,
        labelspacing=0.35,
        borderpad=0.1,
        borderaxespad=0.0,
    )
    for variant, line, text in zip(shown, legend.get_lines(), legend.get_texts(), strict=True):
        text.set_parse_math(False)
        belongs(line, variant)
        belongs(text, variant)


def tidy(panel: Axes) -> None:
    """Axes that step back behind what they show."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(AXIS)
    panel.tick_params(labelcolor=INK, labelsize=SIZE, color=AXIS, length=3)
    panel.grid(color=GRID, linewidth=0.7)
    panel.set_axisbelow(True)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    panel.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    panel.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))


def logarithmic(panel: Axes, which: Literal["x", "y"]) -> None:
    """Give an axis a logarithmic scale with labels such as 20 and 500."""
    panel.set(**{f"{which}scale": "log"})
    axis = panel.xaxis if which == "x" else panel.yaxis
    low, high = axis.get_view_interval()
    wide = low > 0 and high / low > 200
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axis.set_minor_locator(NullLocator())


def describe(panel: Axes, text: str) -> None:
    """What a panel shows, above it: easier to read than a label turned by 90 degrees."""
    panel.annotate(
        visible(text),
        (0, 1),
        xytext=(0, 6),
        xycoords="axes fraction",
        textcoords="offset points",
        color=SOFT,
        fontsize=SIZE,
        parse_math=False,
    )


def compact(value: float) -> str:
    """A number as an axis has room for: 0.25, 1.5k, −20k, 3M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}".replace("-", "−")
    return f"{value:g}".replace("-", "−")
