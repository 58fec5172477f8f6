"""Learning curves: a chart for every task."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from m2ac.report.charts import Chart, Style, Variant, belongs, by_variant, describe, logarithmic, panels, styles, token
from m2ac.report.curve import INK
from m2ac.report.records import Record
from m2ac.report.series import Line, average, returns

FAR_APART = 4.0
"""Where the longest runs of a task are longer than the shortest by this factor, a linear axis hides the shortest."""


def learning_charts(records: Sequence[Record]) -> list[Chart]:
    """Evaluation return over steps, each variant's mean over its seeds; tasks without an evaluation have none."""
    groups = by_variant(records)
    looks = styles(groups)
    charts = []
    for task in dict.fromkeys(variant.task for variant in groups):
        lines = {v: [line for line in map(returns, runs) if line] for v, runs in groups.items() if v.task == task}
        lines = {variant: each for variant, each in lines.items() if each}
        if lines:
            charts.append(_chart(task, lines, looks))
    return charts


def _chart(task: str, lines: Mapping[Variant, Sequence[Line]], looks: Mapping[Variant, Style]) -> Chart:
    ends = [max(line[-1][0] for line in each) for each in lines.values()]
    far_apart = max(ends) >= FAR_APART * min(ends) > 0
    figure, (panel,) = panels([2.6], {variant: looks[variant] for variant in lines})
    for variant, of_seeds in lines.items():
        # Step 0 has no place on a logarithmic axis.
        shown = [[point for point in line if point[0] > 0] for line in of_seeds] if far_apart else of_seeds
        draw_average(panel, variant, shown, looks[variant], band=True)
    if far_apart:
        panel.set_xlim(min(step for each in lines.values() for line in each for step, _ in line if step > 0), max(ends))
        logarithmic(panel, "x")
    else:
        panel.set_xlim(0, max(ends) or 1)
    describe(panel, "evaluation return")
    panel.set_xlabel("environment steps" + (" (logarithmic)" if far_apart else ""), fontsize=9, color=INK)
    several = any(len(each) > 1 for each in lines.values())
    caption = "Mean return of the evaluation episodes, played with the policy's mean action. "
    caption += (
        "Lines are means over the seeds that got as far, bands one standard deviation over seeds; thin lines are the "
        "single seeds where there are two."
        if several
        else "There is one seed of each, so nothing here tells luck from merit."
    )
    if far_apart:
        caption += " Runs differ much in length, so the steps are on a logarithmic axis."
    return Chart(slug=f"learning-{token(task)}", title=task, caption=caption, figure=figure, tasks=(task,))


def draw_average(
    panel: Axes, variant: Variant, lines: Sequence[Line], style: Style, *, band: bool = False, faint: bool = False
) -> None:
    """The mean of lines over seeds; dotted and thinner where it is `faint`."""
    mean = average(lines)
    dashes, width = ((0, (1.2, 1.3)), 1.3) if faint else (style.dashes, 1.8)
    marker = "o" if len(mean.steps) == 1 else None
    if band and len(lines) > 1:
        low, high = mean.mean - mean.deviation, mean.mean + mean.deviation
        belongs(panel.fill_between(mean.steps, low, high, color=style.colour, alpha=0.16, linewidth=0), variant)
    if band and len(lines) == 2:
        for line in lines:
            (thin,) = panel.plot(*zip(*line, strict=True), color=style.colour, linewidth=0.7, alpha=0.7)
            belongs(thin, variant)
    (drawn,) = panel.plot(
        mean.steps, mean.mean, color=style.colour, linestyle=dashes, linewidth=width, marker=marker, markersize=4
    )
    belongs(drawn, variant)
