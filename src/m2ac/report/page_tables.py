"""The tables of a report's page."""

from collections.abc import Mapping, Sequence

from m2ac.report.charts import Style, Variant
from m2ac.report.markup import NOTHING, duration, esc, percent, plural, score, span, whole
from m2ac.report.summary import Improvement, Summary

FEW_PAIRS = 12
"""Up to so many are shown without being asked for."""

Cell = tuple[str, str]
"""HTML, and what the column is sorted by."""


def overview(rows: Sequence[Summary], looks: Mapping[Variant, Style]) -> str:
    """Every variant with its scores."""
    headings = [
        ("Task", "", ""),
        ("Variant", "", ""),
        ("Seeds", "number", "Runs that differ in their seed alone"),
        ("Steps", "number", "Real steps of the environment taken so far"),
        ("Final return", "number", "Mean over runs of the last evaluation ± one standard deviation over runs"),
        ("IQM", "number", "Interquartile mean over runs, and its 90 % bootstrap interval"),
        ("Best evaluation", "number", "The highest mean return that one evaluation of one run has had"),
        ("Time per run", "number", "Mean over the finished runs, of all where none is"),
    ]
    body = [(f'data-of="{esc(row.variant.tag)}"', _overview_cells(row, looks)) for row in rows]
    return _table(headings, body, "scores")


def _overview_cells(row: Summary, looks: Mapping[Variant, Style]) -> list[Cell]:
    task, algo, horizon, _ = row.variant
    spread = "" if row.deviation is None else f" <small>± {score(row.deviation)}</small>"
    notes = []
    if row.scores.unfinished and row.scores.steps is not None and row.mean is not None:
        notes.append(f"at step {span(*row.scores.steps)}, unfinished")
    elif row.unfinished:
        notes.append(f"{row.unfinished} unfinished left out" if not row.scores.unfinished else "no evaluation yet")
    if row.diverged:
        notes.append(f"{row.diverged} not a number, left out")
    final = score(row.mean) + spread + "".join(f'<span class="note">{note}</span>' for note in notes)
    seeds = str(row.seeds)
    if row.runs > row.seeds:
        seeds += f'<span class="note">{row.runs} runs, seeds repeated</span>'
    best = NOTHING if row.best is None else f"{score(row.best.score)} <small>at {whole(row.best.step)}</small>"
    return [
        (esc(task), esc(task)),
        (variant_cell(row.variant, looks), esc(f"{algo} {horizon or 0:09d} {row.variant.settings}")),
        (seeds, str(row.seeds)),
        (span(*row.reached), str(row.reached[1])),
        (final, _sorted_by(row.mean)),
        (_iqm(row), _sorted_by(row.iqm if row.interval is not None else None)),
        (best, _sorted_by(None if row.best is None else row.best.score)),
        (duration(row.seconds), _sorted_by(row.seconds)),
    ]


def comparison(rows: Sequence[Improvement], looks: Mapping[Variant, Style]) -> str:
    """Pairs of variants, and how likely the first is to be better."""
    headings = [
        ("Task", "", ""),
        ("A run of", "", ""),
        ("beats one of", "", ""),
        ("Probability", "number", "Over all pairs of their runs; a tie counts half"),
        ("90 % interval", "number", "Bootstrap over runs"),
    ]
    body = []
    for row in rows:
        share = (
            f'<span class="bar" style="--share:{row.probability:.3f}"></span><span>{percent(row.probability)}</span>'
        )
        between = NOTHING if row.interval is None else " to ".join(map(percent, row.interval))
        cells = [
            (esc(row.better.task), esc(row.better.task)),
            (variant_cell(row.better, looks), esc(row.better.name)),
            (variant_cell(row.worse, looks), esc(row.worse.name)),
            (share, _sorted_by(row.probability)),
            (between, _sorted_by(None if row.interval is None else row.interval.low)),
        ]
        body.append((f'data-of="{esc(row.better.tag)}" data-against="{esc(row.worse.tag)}"', cells))
    table = _table(headings, body, "comparison")
    if len(rows) <= FEW_PAIRS:
        return table
    return f'<details class="many"><summary>{len(rows)} pairs of variants</summary>{table}</details>'


def variant_cell(variant: Variant, looks: Mapping[Variant, Style]) -> str:
    """Its name in parts, beside its colour in the charts."""
    horizon = "" if variant.horizon is None else f' <span class="horizon">H={variant.horizon}</span>'
    settings = f'<span class="note">{esc(variant.settings)}</span>' if variant.settings else ""
    dot = f'<span class="dot" style="background:var(--c{looks[variant].colour[1:].lower()})"></span>'
    return f'<span class="variant">{dot}<b>{esc(variant.algo.upper())}</b>{horizon}{settings}</span>'


def _iqm(row: Summary) -> str:
    """With its interval; of one seed it would be the score again."""
    if row.interval is None:
        return NOTHING
    return f"{score(row.iqm)} <small>[{score(row.interval.low)}, {score(row.interval.high)}]</small>"


def _sorted_by(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def _table(headings: Sequence[tuple[str, str, str]], body: Sequence[tuple[str, Sequence[Cell]]], name: str) -> str:
    head = "".join(
        f'<th scope="col"{f" class={kind}" if kind else ""}><button type="button"'
        f"{f' title={chr(34)}{esc(about)}{chr(34)}' if about else ''}>{esc(text)}</button></th>"
        for text, kind, about in headings
    )
    rows = []
    for attributes, cells in body:
        tds = "".join(
            f'<td{f" class={kind}" if kind else ""} data-label="{esc(text)}" data-sort="{key}">{shown}</td>'
            for (text, kind, _), (shown, key) in zip(headings, cells, strict=True)
        )
        rows.append(f"<tr {attributes}>{tds}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table class="{name}">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def said(rows: Sequence[Summary]) -> str:
    """What the overview's numbers are, below it."""
    alone = sum(row.runs == 1 for row in rows)
    text = (
        "A score is the mean return of a run's last evaluation; ± is one standard deviation over runs (of the "
        "population), and brackets hold the 90 % bootstrap interval of the interquartile mean (IQM). From few runs "
        "such an interval is too narrow: from five it holds the truth in about 79 % of cases, from two in half of them."
    )
    if alone:
        text += f" {plural(alone, 'variant')} with one run {'has' if alone == 1 else 'have'} neither."
    if any(row.unfinished for row in rows):
        text += " A run that is not finished counts only where no other of its variant is, and then its step is said."
    return f'<p class="about">{text}</p>'
