"""The pictures of `m2ac trust`."""

from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from m2ac.report.charts import SIZE, WIDTH, Chart, describe, logarithmic, panels, tidy
from m2ac.report.curve import AXIS, BLUE, FAINT, GREEN, INK, SOFT, VERMILLION
from m2ac.report.markup import NOTHING, percent
from m2ac.report.trust_charts import SCORE_NAMES, WIDE_RANGE
from m2ac.trust.calibration import LEVELS
from m2ac.trust.findings import Findings, Quantiles
from m2ac.trust.ranking import RATES, Reliability

NAMES = SCORE_NAMES | {"gjs": "Jensen-Shannon of pairs"}
"""Of the scores, in words."""

UNITS = {"relative": "in the model's own standard deviations", "absolute": "in spreads of the data"}
HEXAGONS = 22
SHOWN = (0.005, 0.995)
"""Quantiles between which a cloud is drawn."""

DASHES: dict[str, Any] = {"ovr": "-", "ova": (0, (5, 1.6)), "nll": (0, (1.2, 1.2)), "gjs": (0, (6, 1.5, 1.2, 1.5))}
"""Of the scores that the mask does not use."""

MANY = 40
"""Dimensions beyond which no line of its own is drawn for each."""

Numbers = NDArray[np.float64]


def signed(value: float, form: str = "+.2f") -> str:
    """+0.22 or −0.30."""
    return NOTHING if np.isnan(value) else f"{value:{form}}".replace("-", "−")


def _side_by_side(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.09, h_pad=0.09)  # type: ignore[union-attr, call-arg]
    grid = [list(row) for row in figure.subplots(rows, columns, squeeze=False)]
    for axis in (axis for row in grid for axis in row):
        tidy(axis)
    return figure, grid


def _legend(axis: Axes, **where: Any) -> None:
    axis.legend(frameon=False, fontsize=SIZE, labelcolor=INK, handlelength=1.8, labelspacing=0.3, **where)


def clouds(found: Findings) -> Chart:
    """Every score against either error, one point per transition."""
    errors = {"relative": found.measured.relative, "absolute": found.measured.error}
    figure, grid = _side_by_side(2, len(found.measured.scores), width=11.2, height=5.4)
    for row, (unit, error) in zip(grid, errors.items(), strict=True):
        for axis, (name, score) in zip(row, found.measured.scores.items(), strict=True):
            rank = getattr(found.ranks[name], unit)
            _cloud(axis, score, error)
            describe(axis, f"{NAMES[name]}: {signed(rank)}")
        row[0].set_ylabel(f"{unit} error", fontsize=SIZE, color=SOFT)
    for axis in grid[-1]:
        axis.set_xlabel("score", fontsize=SIZE, color=SOFT)
    return Chart(
        "scores",
        "Scores against errors",
        "Each hexagon holds fresh transitions, the more the stronger its colour; the line is the median error of each "
        "tenth of them, from the lowest score to the highest. It should rise. The number is Spearman's rank "
        "correlation: 1 if the score puts the transitions in the order of their errors, 0 if it knows nothing. The "
        "relative error is in standard deviations that the model itself predicts, as the scores estimate it; the "
        "absolute one is in spreads of the data, and contains all chance.",
        figure,
    )


def _cloud(axis: Axes, score: Numbers, error: Numbers) -> None:
    known = np.isfinite(score) & np.isfinite(error)
    x, y = score[known], error[known]
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        axis.text(0.5, 0.5, "nothing to compare", transform=axis.transAxes, ha="center", color=SOFT, fontsize=SIZE)
        return
    (left, right), (bottom, top) = np.quantile(x, SHOWN), np.quantile(y, SHOWN)
    inside = (x >= left) & (x <= right) & (y >= bottom) & (y <= top)
    if not inside.any():  # of a handful, none may be within both
        inside[:] = True
    scales = _scale(left, right), _scale(bottom, top)
    cells = axis.hexbin(
        x[inside],
        y[inside],
        gridsize=(HEXAGONS, int(0.62 * HEXAGONS)),
        mincnt=1,
        xscale=scales[0],
        yscale=scales[1],
        linewidths=0,
    )
    # One colour that is more or less opaque: it is right on paper of any colour.
    counts = np.asarray(cells.get_array(), dtype=np.float64)
    strength = 0.12 + 0.88 * np.log1p(counts) / np.log1p(counts.max())
    cells.set_array(None)
    cells.set_facecolor([to_rgba(BLUE, round(float(s), 2)) for s in strength])
    tenths = [part for part in np.array_split(np.argsort(x, kind="stable"), 10) if len(part)]
    axis.plot([np.median(x[t]) for t in tenths], [np.median(y[t]) for t in tenths], color=INK, linewidth=1.6)
    if scales[0] == "log":
        logarithmic(axis, "x")
    if scales[1] == "log":
        logarithmic(axis, "y")


def _scale(low: float, high: float) -> Literal["linear", "log"]:
    return "log" if low > 0 and high > WIDE_RANGE * low else "linear"


def coverage(found: Findings) -> Chart:
    """What the predictive intervals claim against what they hold."""
    figure, (axis,) = panels([3.0], {})
    cal = found.calibration
    axis.plot([0, 1], [0, 1], color=FAINT, linewidth=1.1, label="calibrated")
    dimensions = cal.inside[:, 1:]
    if dimensions.shape[1] <= MANY:
        axis.plot(LEVELS, dimensions, color=AXIS, linewidth=0.7)
    else:
        axis.fill_between(LEVELS, *np.quantile(dimensions, [0.1, 0.9], axis=1), color=AXIS, alpha=0.35, linewidth=0)
    if cal.between is not None:
        low, high = zip(*cal.between, strict=True)
        axis.fill_between(LEVELS, low, high, color=BLUE, alpha=0.2, linewidth=0)
    axis.plot(LEVELS, cal.obs, color=BLUE, linewidth=2, marker="o", markersize=3.5, label="observation")
    axis.plot(LEVELS, cal.inside[:, 0], color=VERMILLION, linewidth=1.6, marker="o", markersize=3, label="reward")
    axis.set(xlim=(0, 1), ylim=(0, 1.02))
    axis.set_xlabel("share that the interval claims to hold", fontsize=SIZE, color=INK)
    describe(axis, "share of what really happened that it holds")
    _legend(axis, loc="lower right")
    return Chart(
        "coverage",
        "Does the model know how sure it may be?",
        "On the diagonal the model is calibrated; below it is too sure of itself, above too careful. Thin lines are "
        "single numbers of the observation. The band is where the mean would lie with other episodes (90 %).",
        figure,
    )


def coverage_by_dimension(found: Findings) -> Chart:
    """The same of every number of the observation."""
    figure, (axis,) = panels([3.0], {})
    inside = found.calibration.inside[:, 1:]
    index = np.arange(inside.shape[1])
    for level, colour in ((0.5, GREEN), (0.9, BLUE)):
        row = inside[level == LEVELS][0]
        axis.axhline(level, color=colour, linewidth=0.9, alpha=0.6)
        axis.vlines(index, np.minimum(row, level), np.maximum(row, level), color=colour, linewidth=1.1, alpha=0.7)
        axis.plot(
            index, row, "o", color=colour, markersize=4 if len(index) <= MANY else 2, label=f"{percent(level)} interval"
        )
    axis.set(xlim=(-0.6, len(index) - 0.4), ylim=(0, 1.04))
    axis.xaxis.set_major_locator(MaxNLocator(nbins=18, integer=True))
    axis.set_xlabel("number of the observation, from 0", fontsize=SIZE, color=INK)
    describe(axis, "share of what really happened inside of the interval")
    _legend(axis, loc="lower left", ncols=2)
    return Chart(
        "coverage-by-dimension",
        "Of which numbers is it too sure?",
        "A point below its line: the model is too sure of this number of the observation. Above: it is more careful "
        "than it need be.",
        figure,
    )


def masks(found: Findings) -> Chart:
    """The error of what is kept, rate by rate."""
    figure, grid = _side_by_side(2, 1, width=WIDTH, height=6.0)
    rows = [row[0] for row in grid]
    own = found.about.score
    rates = {"relative": found.suggestion.rate.value, "absolute": found.suggestion.rate_absolute.value}
    for axis, (unit, rate) in zip(rows, rates.items(), strict=True):
        curves: dict[str, Reliability] = {name: getattr(worth, unit) for name, worth in found.worth.items()}
        axis.axhline(curves[own].everyone, color=FAINT, linewidth=1.1, label="chance")
        for name in sorted(curves, key=lambda name: name == own):
            look: dict[str, Any] = {"color": SOFT, "linewidth": 1.0, "linestyle": DASHES[name], "label": NAMES[name]}
            if name == own:
                look = {"color": BLUE, "linewidth": 2.2, "label": f"{NAMES[name]}, the mask’s"}
            axis.plot(RATES, curves[name].kept, **look)
        axis.plot(RATES, curves[own].oracle, color=GREEN, linewidth=1.6, label="oracle")
        if rate < 1:
            axis.axvline(rate, color=VERMILLION, linewidth=1, linestyle=(0, (2, 2)), label="largest rate that pays")
        axis.set_ylim(bottom=0)
        describe(axis, f"mean error of what is kept, {UNITS[unit]}")
        axis.set_xlim(0, 1.0)
    rows[-1].set_xlabel("share kept", fontsize=SIZE, color=INK)
    shown = {name: line for axis in rows for line, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="outside lower left",
        ncols=2,
        frameon=False,
        fontsize=SIZE,
        labelcolor=INK,
        handlelength=2.0,
        labelspacing=0.3,
    )
    return Chart(
        "mask",
        "What would the mask be worth?",
        "Rows are kept from the lowest score up. Between the oracle, which knows the true errors, and chance, which "
        "keeps any, lies what can be gained; the share of that area which the score gains is in the table above. The "
        "oracle knows how every chance fell, so no score can reach it: of a noisy task even a good one gains little.",
        figure,
    )


def drift(found: Findings) -> Chart:
    """How far the model is off after steps on its own, and what the mask makes of it."""
    figure, rows = panels([2.1, 2.1], {})
    suggestion = found.suggestion
    _quantile_lines(rows[0], found.alone, BLUE, "all rows")
    _quantile_lines(rows[1], found.kept, BLUE, "kept")
    _quantile_lines(rows[1], found.dropped, VERMILLION, "dropped")
    for axis in rows:
        axis.axhline(suggestion.rule.threshold, color=FAINT, linewidth=1.1)
        axis.set_ylim(bottom=0)
        if suggestion.horizon.value >= 1:
            axis.axvline(suggestion.horizon.value, color=GREEN, linewidth=1, linestyle=(0, (2, 2)))
        _legend(axis, loc="upper left")
    describe(rows[0], "error of the observation in spreads: median (solid), 90 % quantile (dotted)")
    describe(rows[1], "the same of rollouts that are masked at every step as in training")
    steps = max(len(found.alone.median), len(found.kept.median))
    rows[0].set_xlim(1, max(2, steps))
    rows[-1].xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    rows[-1].set_xlabel("steps of the model on its own", fontsize=SIZE, color=INK)
    return Chart(
        "drift",
        "How far does the model drift?",
        "From real states, with the actions really taken. At 1 the model knows little more than that the state is a "
        f"usual one. The grey line is the threshold of {suggestion.rule.threshold:g}, the dotted green one the "
        "suggested length. The mask sees how far the members disagree on one step alone: it cannot undo what earlier "
        "steps were off by.",
        figure,
    )


def _quantile_lines(axis: Axes, each: Quantiles, colour: str, name: str) -> None:
    steps = np.arange(1, len(each.median) + 1)
    axis.plot(steps, np.where(np.isfinite(each.median), each.median, np.nan), color=colour, linewidth=2, label=name)
    axis.plot(steps, np.where(np.isfinite(each.high), each.high, np.nan), color=colour, linewidth=1.3, linestyle=":")


def places(found: Findings) -> Chart | None:
    """The error over what it goes with most."""
    if not found.relations:
        return None
    figure, (row,) = _side_by_side(1, len(found.relations), width=3.6 * len(found.relations), height=2.9)
    for axis, relation in zip(row, found.relations, strict=True):
        axis.plot(relation.centre, relation.high, color=BLUE, linewidth=1.3, linestyle=":", marker="o", markersize=2.5)
        axis.plot(relation.centre, relation.median, color=BLUE, linewidth=2, marker="o", markersize=3.5)
        axis.set_ylim(bottom=0)
        axis.set_xlabel(relation.of, fontsize=SIZE, color=INK)
        describe(axis, f"explains {percent(relation.explains)}")
    row[0].set_ylabel("error in spreads", fontsize=SIZE, color=SOFT)
    return Chart(
        "places",
        "What the error goes with",
        "Median (solid) and 90 % quantile (dotted) of the one-step error in ten bins of equally many transitions, for "
        "the quantities that it goes with most. The share is of the variance of the error's ranks; what goes together "
        "need not be the cause.",
        figure,
    )
