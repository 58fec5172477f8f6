"""The page of `m2ac trust`: one file that needs no network, in the look of the report."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from m2ac.algorithms.numbers import mean_of_finite
from m2ac.report import trust_pictures as pictures
from m2ac.report.markup import NOTHING, esc, percent, plural, score, whole
from m2ac.report.page import document, grid, header
from m2ac.report.page_tables import FEW_PAIRS
from m2ac.report.trust_pictures import signed
from m2ac.trust.calibration import LEVELS
from m2ac.trust.findings import Findings
from m2ac.trust.resampling import Interval
from m2ac.trust.suggest import FEW_EPISODES, FEW_ROWS, LEAST_KEPT, Estimate
from m2ac.trust.telling import doubts_of, gained, misjudged, options, termination_said

SHOWN_DIMENSIONS = 12


def trust_page(found: Findings, *, made: datetime | None = None) -> str:
    """Everything that was found, as HTML."""
    about = found.about
    made = made or datetime.now(UTC)
    sections = list(_sections(found))
    links = "".join(f'<a href="#{name}">{esc(heading)}</a>' for name, heading, _ in sections)
    body = "".join(
        f'<section id="{name}"><h2>{esc(heading)}</h2>{content}</section>' for name, heading, content in sections
    )
    facts = [
        f"<b>{esc(about.algo.upper())}</b> on <b>{esc(about.env)}</b> at step {whole(about.step)}",
        f"{plural(len(about.played), 'fresh episode')}, {whole(len(found.measured.error))} transitions",
        f'made <time datetime="{made.isoformat(timespec="seconds")}">{esc(f"{made:%Y-%m-%d %H:%M %Z}".strip())}</time>',
    ]
    below = f"<p class=versions>{esc(about.run)} · rollout length {about.horizon}, mask: {esc(about.mask)}</p>"
    title = f"Does the model deserve its trust on {about.env}?"
    return document(title, header(title, facts, below, links) + f"<main>{body}</main>")


def _sections(found: Findings) -> Iterator[tuple[str, str, str]]:
    yield "overview", "In short", _short(found)
    yield "scores", "Does the score know the error?", grid([pictures.clouds(found)], "scores") + _scores(found)
    yield "rollouts", "Mask and rollout length", grid([pictures.masks(found), pictures.drift(found)], "rollouts")
    charts = [pictures.coverage(found), pictures.coverage_by_dimension(found)]
    yield "calibration", "Calibration", grid(charts, "calibration") + _calibrated(found)
    where = pictures.places(found)
    yield "places", "Where it is wrong", (grid([where], "places") if where is not None else "") + _worst(found)
    yield "how", "How this was measured", _how(found)


def _short(found: Findings) -> str:
    suggestion = found.suggestion
    doubts = "".join(f"<li>{esc(doubt)}</li>" for doubt in doubts_of(found))
    horizon, of_paper, of_all = suggestion.horizon, suggestion.horizon_of_paper, suggestion.horizon_of_all
    more = " or more" if horizon.value == suggestion.looked else ""
    return (
        f"{_facts(_short_rows(found))}<h3>What this task would bear</h3>"
        f'<div class="command"><code>{esc(options(found))}</code><button type="button" class="copy">copy</button></div>'
        f'<p class="about"><b>Mask rate {suggestion.rate.value:g}</b>{_around(suggestion.rate, 2)}: the largest at '
        f"which the kept rows’ mean error, in what the model itself expects, is at least "
        f"{100 * suggestion.rule.gain:.0f} % below that of all rows; 1 means that dropping pays at no rate. A smaller "
        "rate keeps out more of the error, and leaves fewer rows to learn from.</p>"
        f'<p class="about"><b>Rollout length {horizon.value:.0f}{more}</b>{_around(horizon, 0)}: the longest at which '
        f"the median row that a mask with this rate keeps is off by at most {suggestion.rule.threshold:g} spreads of "
        "the observation (at ½, three quarters of the variance are still explained). Without a mask it would be "
        f"{of_all.value:.0f}{_around(of_all, 0)}, with the paper’s rates, which keep ever fewer rows, "
        f"{of_paper.value:.0f}{_around(of_paper, 0)}.</p>"
        f'<p class="about">This is a rule of thumb for where to begin, not a promise of returns: it knows the states '
        "that this policy visits now, and neither what a longer training changes nor what the learner makes of the "
        "rows. Brackets hold 90 % of what resampled episodes say; with few episodes they are too narrow.</p>"
        f"{f'<ul class=notices>{doubts}</ul>' if doubts else ''}"
    )


def _short_rows(found: Findings) -> list[tuple[str, str]]:
    about, measured = found.about, found.measured
    worth = found.worth[about.score]
    inside = float(found.calibration.obs[LEVELS == 0.9][0])
    totals = [each.total for each in about.played]
    return [
        (
            "one step ahead",
            f"off by {mean_of_finite(measured.error):.3g} spreads of the data, "
            f"{mean_of_finite(measured.relative):.2f} times what the model expects",
        ),
        (
            f"the mask’s score, {pictures.NAMES[about.score]}",
            f"gains {gained(worth.relative)} of what an oracle could; by the absolute error {gained(worth.absolute)}",
        ),
        ("intervals of 90 %", f"hold {100 * inside:.0f} % of the observations"),
        ("the model on its own", _drift(found)),
        ("termination", termination_said(found.termination)),
        (
            "return of the fresh episodes",
            f"{score(float(np.mean(totals)))} in the mean, {score(min(totals))} to {score(max(totals))}",
        ),
    ]


def _drift(found: Findings) -> str:
    median = found.alone.median
    steps = [h for h in (1, 5, 10, 20) if h <= len(median) and np.isfinite(median[h - 1])]
    return (
        "off by " + ", ".join(f"{median[h - 1]:.2g} after {h}" for h in steps) + " steps, in spreads"
        if steps
        else NOTHING
    )


def _facts(rows: Sequence[tuple[str, str]]) -> str:
    return _table(("", ""), [(name, said) for name, said in rows])


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain text in cells; a heading that begins with # is of a column of numbers."""
    kinds = [' class="number"' if heading.startswith("#") else "" for heading in headings]
    names = [heading.removeprefix("#") for heading in headings]
    head = "".join(f'<th scope="col"{kind}>{esc(name)}</th>' for name, kind in zip(names, kinds, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{kind} data-label="{esc(name)}">{esc(cell)}</td>'
            for cell, name, kind in zip(row, names, kinds, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if any(names) else ""
    return f'<div class="scroll" tabindex="0"><table>{top}<tbody>{body}</tbody></table></div>'


def _scores(found: Findings) -> str:
    rows = [
        (
            pictures.NAMES[name] + (" (the mask’s)" if name == found.about.score else ""),
            signed(found.ranks[name].relative),
            signed(found.ranks[name].absolute),
            gained(worth.relative),
            gained(worth.absolute),
        )
        for name, worth in found.worth.items()
    ]
    headings = ("Score", "#Rank, relative", "#Rank, absolute", "#Gain, relative", "#Gain, absolute")
    return _table(headings, rows) + (
        '<p class="about">Rank: the rank correlation with the error. Gain: how much of the error that a ranking by '
        "the true errors would keep out, over all rates, a ranking by the score keeps out; 100 % is the oracle, 0 % "
        "is chance, and below 0 % the wrong rows are kept. Both for the relative error, in what the model itself "
        "expects, and for the absolute one.</p>"
    )


def _calibrated(found: Findings) -> str:
    sure, careful = misjudged(found)
    reward, termination = found.reward, found.termination
    rows = [
        ("too sure of", _listed(sure)),
        ("too careful of", _listed(careful)),
        ("reward, mean absolute error", f"{reward.absolute:.3g}, which is {reward.in_spreads:.3g} of its spread"),
        (
            "reward, bias",
            f"{signed(reward.bias, '+.3g')}{_interval(reward.bias_between, '.2g')}; above 0 it promises too much",
        ),
        ("termination", termination_said(termination)),
    ]
    if termination is not None and termination.real:
        rows.append(
            (
                "predicted ends",
                f"{termination.predicted}, of which {termination.hits} happened; {termination.real} in all",
            )
        )
    return _facts(rows)


def _worst(found: Findings) -> str:
    rows = [
        (
            f"episode {place.episode}, step {place.step}",
            f"{place.dimension} ({percent(place.dominates)} of it)",
            f"{place.error:.3g}",
            f"{place.relative:.3g}",
            f"{place.score:.3g}",
            percent(place.rank),
        )
        for place in found.worst
    ]
    shares = ", ".join(f"{name} {percent(share)}" for name, share in list(found.shares.items())[:SHOWN_DIMENSIONS])
    headings = ("Transition", "Mostly in", "#Error", "#Relative error", "#Score", "#Scores below")
    return (
        f"<h3>The worst transitions</h3>{_table(headings, rows)}"
        '<p class="about">Scores below: the share of all transitions whose score is lower. Near 100 % the score saw it '
        f"coming.</p><p class=about>Of the squared error of all transitions: {esc(shares)}.</p>"
    )


def _how(found: Findings) -> str:
    about, rule = found.about, found.suggestion.rule
    acted = (
        "sampled actions, as in training, so that states differ from episode to episode"
        if about.sampled
        else "the mean action"
    )
    played = [(f"episode {n}", str(p.seed), whole(p.length), score(p.total)) for n, p in enumerate(about.played)]
    table = _table(("Fresh episode", "#Seed", "#Steps", "#Return"), played)
    if len(played) > FEW_PAIRS:
        table = f'<details class="many"><summary>{plural(len(played), "fresh episode")}</summary>{table}</details>'
    return (
        f'<p class="about">Real episodes were played with the policy of the newest checkpoint and {acted}; the model '
        "has not learned from them. A spread is the standard deviation of an observation’s number in the data that "
        "the model was fitted to, and of the reward in the fresh episodes. As in training, each prediction is of one "
        "member drawn at random; its score compares it with the others.</p>"
        '<p class="about">Masked rollouts start at real states that are followed by enough real steps, take the real '
        "actions, are ranked at every step and go on whether kept or not. The length needs at least "
        f"{LEAST_KEPT} kept rows at each step; the threshold is {rule.threshold:g} (--threshold), the gain "
        f"{rule.gain:g} (--gain). Below {FEW_EPISODES} episodes or {FEW_ROWS} transitions the suggestion rests on too "
        f"little, and says so.</p>{table}"
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_DIMENSIONS
    return (", ".join(names[:SHOWN_DIMENSIONS]) + (f" and {more} more" if more > 0 else "")) or "none"


def _around(each: Estimate, digits: int) -> str:
    return _interval(each.interval, f".{digits}f")


def _interval(each: Interval | None, form: str) -> str:
    return "" if each is None else f" [{each.low:{form}}, {each.high:{form}}]".replace("-", "−")
