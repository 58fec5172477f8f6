"""Whether model and critics deserve their trust: charts of `trust/`, `fresh/` and `critic/` for every task."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from m2ac.report.charts import Chart, Style, Variant, by_variant, describe, logarithmic, panels, styles, token
from m2ac.report.curve import FAINT, INK
from m2ac.report.learning_charts import draw_average
from m2ac.report.records import Record
from m2ac.report.series import Line, last_list, measured

WIDE_RANGE = 15.0
"""Positive values whose largest is that many times their smallest are drawn on a logarithmic axis."""


class Panel(NamedTuple):
    """One metric over steps, or a second one dotted beside it."""

    says: str
    metric: str
    beside: str | None = None
    height: float = 1.25
    targets: tuple[float, ...] = ()
    limits: tuple[float, float] | None = None


class Kind(NamedTuple):
    """A chart that every task with such metrics gets."""

    slug: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    over: str = "environment steps"


SCORE_NAMES = {"ovr": "One-vs-Rest", "ova": "One-vs-All", "nll": "negative likelihood"}

KINDS = (
    Kind(
        "kept",
        "What the mask kept",
        "The share of the imagined transitions that was kept, and how far the models disagreed about them. The further "
        "the dotted line lies above the solid one, the more the mask had to choose from.",
        (
            Panel("share of imagined transitions kept", "trust/share_kept", limits=(0, 1.04), height=0.9),
            Panel(
                "uncertainty: kept (solid), dropped (dotted)",
                "trust/uncertainty_kept",
                "trust/uncertainty_dropped",
                height=1.6,
            ),
        ),
    ),
    Kind(
        "rank",
        "Does the score know the error?",
        "Spearman's rank correlation of each score with the true one-step error, in units of what the model itself "
        "expects, on real steps that the model had not learned from: 1 if the score puts them in the order of their "
        "errors, 0 if it knows nothing. All scores are measured, whichever the mask uses.",
        tuple(Panel(name, f"fresh/rank_{key}", targets=(0,), height=1.0) for key, name in SCORE_NAMES.items()),
    ),
    Kind(
        "halves",
        "Error of the trusted half",
        "The real steps are halved by the mask's score. A score worth its name has the solid line, the trusted half, "
        "below the dotted one.",
        (
            Panel(
                "error, in spreads of the data: trusted half (solid), other half (dotted)",
                "fresh/error_trusted",
                "fresh/error_distrusted",
                height=1.4,
            ),
            Panel(
                "the same in standard deviations that the model predicts",
                "fresh/relative_error_trusted",
                "fresh/relative_error_distrusted",
                height=1.4,
            ),
        ),
    ),
    Kind(
        "calibration",
        "Does the model know how sure it may be?",
        "Share of what really happened that lies inside the model's 90 % and 50 % intervals. On the grey line it is "
        "calibrated, below it is too sure of itself, above too careful.",
        (
            Panel(
                "inside the 90 % interval: observation (solid), reward (dotted)",
                "fresh/inside_90_obs",
                "fresh/inside_90_reward",
                targets=(0.9,),
                height=1.5,
            ),
            Panel(
                "inside the 50 % interval",
                "fresh/inside_50_obs",
                "fresh/inside_50_reward",
                targets=(0.5,),
                height=1.5,
            ),
        ),
    ),
    Kind(
        "open-loop",
        "How far the model drifts",
        "Median error after so many steps in which the model went on from its own predictions with the actions really "
        "taken, in spreads of the observation, as last measured. At 1 it knows little more than that the state is a "
        "usual one.",
        (Panel("error of the observation", "fresh/open_loop_error", height=2.0),),
        over="steps of the model on its own",
    ),
    Kind(
        "critic",
        "Do the critics promise what comes?",
        "The critics' mean value of recent real steps beside the discounted return that followed, and the bias: value "
        "minus return minus entropy bonus. Above 0 the critics promise more than the policy gets.",
        (
            Panel("value (solid) and real return (dotted)", "critic/value", "critic/return", height=1.5),
            Panel("bias", "critic/bias", targets=(0,)),
        ),
    ),
)


def trust_charts(records: Sequence[Record]) -> list[Chart]:
    """Those of the kinds that the runs of a task have metrics for, task by task."""
    groups = by_variant(records)
    looks = styles(groups)
    charts = []
    for task in dict.fromkeys(variant.task for variant in groups):
        runs = {variant: each for variant, each in groups.items() if variant.task == task}
        charts += [chart for kind in KINDS if (chart := _chart(kind, task, runs, looks)) is not None]
    return charts


def _chart(
    kind: Kind, task: str, groups: Mapping[Variant, Sequence[Record]], looks: Mapping[Variant, Style]
) -> Chart | None:
    if kind.slug == "kept":  # where nothing is scored, as in MBPO, everything is kept and there is nothing to see
        groups = {v: runs for v, runs in groups.items() if any(measured(run, "trust/uncertainty_kept") for run in runs)}
    found = {panel: _lines(panel, groups) for panel in kind.panels}
    found = {panel: lines for panel, lines in found.items() if any(lines.values())}
    shown = {v: looks[v] for v in groups if any(lines.get((v, False)) for lines in found.values())}
    if not shown:
        return None
    figure, rows = panels([panel.height for panel in found], shown)
    ends = [1.0]
    for row, (panel, lines) in zip(rows, found.items(), strict=True):
        _draw(row, panel, lines, looks)
        ends += [line[-1][0] for each in lines.values() for line in each]
    rows[0].set_xlim(1 if kind.slug == "open-loop" else 0, max(ends) if max(ends) > 1 else 2)
    rows[-1].set_xlabel(kind.over, fontsize=9, color=INK)
    return Chart(f"{kind.slug}-{token(task)}", kind.title, kind.caption, figure, (task,))


Lines = dict[tuple[Variant, bool], list[Line]]
"""By variant, and whether they are those beside; one line per seed."""


def _lines(panel: Panel, groups: Mapping[Variant, Sequence[Record]]) -> Lines:
    read = last_list if panel.metric == "fresh/open_loop_error" else measured
    found: Lines = {}
    for variant, runs in groups.items():
        for name, beside in ((panel.metric, False), (panel.beside, True)):
            if name is not None:
                found[variant, beside] = [line for run in runs if (line := read(run, name))]
    return found


def _draw(row: Axes, panel: Panel, lines: Lines, looks: Mapping[Variant, Style]) -> None:
    for target in panel.targets:
        row.axhline(target, color=FAINT, linewidth=1.1, zorder=1)
    for (variant, beside), of_seeds in lines.items():
        if of_seeds:
            draw_average(row, variant, of_seeds, looks[variant], faint=beside)
    values = [value for each in lines.values() for line in each for _, value in line]
    if not panel.targets and panel.limits is None and min(values) > 0 and max(values) > WIDE_RANGE * min(values):
        logarithmic(row, "y")
    if panel.limits is not None:
        row.set_ylim(*panel.limits)
    describe(row, panel.says + (", logarithmic" if row.get_yscale() == "log" else ""))
