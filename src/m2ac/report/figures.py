"""The figures of the paper, drawn from whatever runs of them are finished."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from numpy.typing import NDArray

from m2ac.escaping import visible
from m2ac.report.charts import (
    COLOURS,
    SIZE,
    Chart,
    Style,
    Variant,
    belongs,
    belongs_to_algo,
    by_variant,
    describe,
    shade,
    styles,
    tidy,
    token,
)
from m2ac.report.curve import INK, SOFT
from m2ac.report.markup import plural
from m2ac.report.records import Record
from m2ac.report.series import average, evaluations, returns
from m2ac.report.statistics import bootstrap_interval, mean, standard_deviation

NOISE = {"": 0.0, "-Noisy0": 0.05, "-Noisy1": 0.1, "-Noisy2": 0.2}
"""Standard deviation of the action noise by the end of a task's name."""

Labels = Sequence[tuple[str, str]]


def paper_figures(
    drawing: Literal["motivating", "benchmarks", "noisy", "ablation"],
    records: Sequence[Record],
    *,
    setting: str | None = None,
    labels: Labels = (),
) -> list[Chart]:
    """The figure as charts, none where no run of it is finished; an ablation has a setting and its values' names."""
    finished = [record for record in records if record.state == "finished"]
    known = [record for record in finished if final_return(record) is not None]
    if not known:
        return []
    if drawing == "ablation":
        assert setting is not None
        charts = _ablation(known, setting, labels)
    else:
        charts = {"motivating": _motivating, "benchmarks": _benchmarks, "noisy": _noisy}[drawing](known)
    if len(known) == len(finished):
        return charts
    left_out = f" Left out: {plural(len(finished) - len(known), 'run')} whose return is not a number."
    return [replace(chart, caption=chart.caption + left_out) for chart in charts]


def final_return(record: Record) -> float | None:
    """The mean return of the last evaluation, None where that is not a number."""
    found = evaluations(record)
    return found[-1].score if found and math.isfinite(found[-1].score) else None


def base_task(env: str) -> str:
    """The task without its noise and its version: "HalfCheetah"."""
    return re.sub(r"(-Noisy\d|-v\d+)+$", "", env)


def noise_of(env: str) -> float:
    """The standard deviation of the task's action noise."""
    found = re.search(r"-Noisy\d", env)
    return NOISE.get(found[0], math.nan) if found else 0.0


def _scores(records: Sequence[Record], **wanted: Any) -> list[float]:
    """Final returns of the runs whose fields are as wanted."""
    chosen = [r for r in records if all(getattr(r, name) == value for name, value in wanted.items())]
    return [score for score in map(final_return, chosen) if score is not None]


def _figure(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = [axis for row in figure.subplots(rows, columns, squeeze=False) for axis in row]
    for axis in axes:
        tidy(axis)
    return figure, axes


def _legend(figure: Figure, axis: Axes, columns: int) -> None:
    """Of what the axis shows, below all of them, where it hides nothing."""
    handles, names = axis.get_legend_handles_labels()
    legend = figure.legend(
        handles, names, loc="outside lower left", ncols=columns, frameon=False, fontsize=SIZE, labelcolor=INK
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _motivating(records: Sequence[Record]) -> list[Chart]:
    noisiest = max({record.env for record in records}, key=noise_of)
    longest = max(record.horizon or 0 for record in records)
    envs = sorted({record.env for record in records}, key=noise_of)
    figure, (left, right) = _figure(1, 2, width=9.0, height=3.4)
    for algo in ("m2ac", "mbpo"):
        lengths = sorted({r.horizon for r in records if r.horizon is not None and r.env == noisiest and r.algo == algo})
        over_length = {h: _scores(records, env=noisiest, algo=algo, horizon=h) for h in lengths}
        _line_of_means(left, over_length, algo)
        over_noise = {noise_of(env): _scores(records, env=env, algo=algo, horizon=longest) for env in envs}
        _line_of_means(right, over_noise, algo)
    describe(left, f"return in {noisiest} against rollout length")
    describe(right, f"return at length {longest} against noise σ")
    left.set_xticks(sorted({r.horizon for r in records if r.horizon is not None}))
    right.set_xticks([noise_of(env) for env in envs])
    for axis in (left, right):
        axis.margins(x=0.12)
        axis.axhline(0, color=SOFT, linewidth=0.7)
    _legend(figure, left, 2)
    return [
        Chart(
            "motivating",
            "Two motivating examples",
            "Mean return at the end of training, one standard deviation over runs, and every run as a point. Left: "
            "in the noisiest task, as rollouts get longer. Right: with the longest rollouts, as actions get noisier.",
            figure,
            tuple(envs),
        )
    ]


def _line_of_means(axis: Axes, scores: Mapping[Any, Sequence[float]], algo: str) -> None:
    points = {x: values for x, values in scores.items() if values}
    if not points:
        return
    places = list(points)
    means, spreads = ([float(each(v)) for v in points.values()] for each in (mean, standard_deviation))
    label, colour = algo.upper(), COLOURS[algo]
    look: dict[str, Any] = {"color": colour, "linewidth": 2, "marker": "o", "markersize": 5, "capsize": 3}
    drawn = _parts(axis.errorbar(places, means, spreads, label=label, **look))
    for x, values in points.items():
        drawn.append(axis.scatter([x] * len(values), values, s=9, color=colour, alpha=0.45, linewidths=0))
    for artist in drawn:
        belongs_to_algo(artist, algo)


def _parts(bars: ErrorbarContainer) -> list[Artist]:
    """The line, the caps and the bars."""
    line, caps, lines = bars.lines
    return [*([line] if line is not None else []), *caps, *lines]


def _benchmarks(records: Sequence[Record]) -> list[Chart]:
    charts = []
    for env in dict.fromkeys(record.env for record in records):
        own = [record for record in records if record.env == env]
        figure, (axis,) = _figure(1, 1, width=5.4, height=3.8)
        groups = by_variant(own)
        looks = styles(groups)
        for variant, runs in groups.items():
            if variant.algo in ("sac", "ppo"):
                _level(axis, variant, runs)
            else:
                _curve(axis, variant, runs, looks[variant])
        describe(axis, f"return in {env} over real steps")
        _legend(figure, axis, 3)
        charts.append(
            Chart(
                f"benchmarks-{token(env)}",
                f"Training curves: {env}",
                "Mean over runs, one standard deviation shaded; dashed lines are what SAC and PPO reach at the end.",
                figure,
                (env,),
            )
        )
    return charts


def _level(axis: Axes, variant: Variant, runs: Sequence[Record]) -> None:
    level = float(np.mean([score for score in map(final_return, runs) if score is not None]))
    colour = COLOURS[variant.algo]
    belongs(axis.axhline(level, color=colour, linestyle="--", linewidth=1.3, label=variant.algo.upper()), variant)


def _curve(axis: Axes, variant: Variant, runs: Sequence[Record], look: Style) -> None:
    steps, means, spread = average([returns(run) for run in runs])
    label = visible(variant.name)
    (line,) = axis.plot(steps, means, color=look.colour, linestyle=look.dashes, linewidth=1.8, label=label)
    band = axis.fill_between(steps, means - spread, means + spread, color=look.colour, alpha=0.15, linewidth=0)
    belongs(line, variant)
    belongs(band, variant)


def _noisy(records: Sequence[Record]) -> list[Chart]:
    tasks = list(dict.fromkeys(base_task(record.env) for record in records))
    levels = sorted({noise_of(record.env) for record in records})
    figure, axes = _figure(len(tasks), len(levels), width=2.6 * len(levels) + 0.8, height=2.5 * len(tasks) + 0.3)
    for row, task in enumerate(tasks):
        for column, level in enumerate(levels):
            axis = axes[row * len(levels) + column]
            own = [r for r in records if base_task(r.env) == task and noise_of(r.env) == level]
            if not own:
                axis.set_visible(False)
                continue
            _bars_by_length(axis, own, {algo: _of_algo(own, algo) for algo in ("m2ac", "mbpo")})
            describe(axis, own[0].env)
            if row == column == 0:
                _legend(figure, axis, 2)
    return [
        Chart(
            "noisy",
            "Noisy environments with very few interactions",
            "Mean return at the end of training against the rollout length, with one standard deviation over runs and "
            "every run as a point. Noise grows from left to right.",
            figure,
            tuple(dict.fromkeys(record.env for record in records)),
        )
    ]


def _of_algo(records: Sequence[Record], algo: str) -> tuple[str, str, list[Record]]:
    return algo.upper(), COLOURS[algo], [record for record in records if record.algo == algo]


def _bars_by_length(
    axis: Axes,
    records: Sequence[Record],
    groups: Mapping[str, tuple[str, str, Sequence[Record]]],
    *,
    bootstrap: bool = False,
) -> None:
    """A group of bars for each rollout length; a group of runs has a label and a colour."""
    lengths = sorted({record.horizon for record in records if record.horizon is not None})
    width = 0.8 / len(groups)
    for number, (label, colour, own) in enumerate(groups.values()):
        named = False
        for place, length in enumerate(lengths):
            scores = _scores(own, horizon=length)
            if not scores:
                continue
            x = place + (number - (len(groups) - 1) / 2) * width
            middle = float(mean(scores))
            (bar,) = axis.bar([x], [middle], width * 0.9, color=colour, label=None if named else label)
            named = True
            look: dict[str, Any] = {"color": INK, "linewidth": 1, "capsize": 2, "fmt": "none"}
            around = axis.errorbar([x], [middle], _around(scores, bootstrap), **look)
            points = axis.scatter([x] * len(scores), scores, s=7, color=SOFT, linewidths=0, zorder=3)
            variant = Variant.of(next(record for record in own if record.horizon == length))
            for artist in (bar, points, *_parts(around)):
                belongs(artist, variant)
    axis.set_xticks(range(len(lengths)), [f"H={length}" for length in lengths])
    axis.set_xlim(-0.5, len(lengths) - 0.5)
    axis.axhline(0, color=SOFT, linewidth=0.7)
    axis.grid(visible=False, axis="x")


def _around(scores: Sequence[float], bootstrap: bool) -> NDArray[np.float64] | None:
    """How far the line around a mean reaches below and above it; none where one run is asked about others."""
    middle, spread = float(mean(scores)), float(standard_deviation(scores))
    bounds = bootstrap_interval(scores, mean) if bootstrap else (middle - spread, middle + spread)
    return None if bounds is None else np.array([[middle - bounds[0]], [bounds[1] - middle]])


def _ablation(records: Sequence[Record], setting: str, labels: Labels) -> list[Chart]:
    group, _, name = setting.partition(".")
    groups = {}
    for number, (value, label) in enumerate(labels):
        own = [record for record in records if _same(record.config[group][name], value)]
        groups[value] = label, shade(COLOURS["m2ac"], 0.75 * (1 - (number + 1) / len(labels))), own
    env = records[0].env
    figure, (axis,) = _figure(1, 1, width=5.4, height=3.2)
    _bars_by_length(axis, records, groups, bootstrap=True)
    describe(axis, f"return in {env}")
    _legend(figure, axis, 3)
    return [
        Chart(
            f"ablation-{name}",
            f"Ablation: {setting}",
            "Mean return at the end of training against the rollout length; lines are 90 % bootstrap intervals of the "
            "mean (none with one run), points are runs.",
            figure,
            (env,),
        )
    ]


def _same(value: Any, typed: str) -> bool:
    """Whether a setting of a run is what was typed."""
    try:
        return float(value) == float(typed)
    except (TypeError, ValueError):
        return str(value) == typed
