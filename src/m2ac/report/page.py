"""The report as one HTML page that needs nothing else: no network, no other file."""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources

from m2ac.report.charts import WIDTH, Chart, Style, Variant, by_variant, styles, token
from m2ac.report.learning_charts import learning_charts
from m2ac.report.markup import esc, plural
from m2ac.report.page_runs import films, run_details
from m2ac.report.page_tables import comparison, overview, said
from m2ac.report.records import Record
from m2ac.report.rendering import at_night, data_colours, svg
from m2ac.report.summary import improvements, summarise
from m2ac.report.trust_charts import trust_charts

REFRESH = 5
"""Seconds after which a watched page reloads itself."""

ABOUT_PAIRS = (
    "How likely a run of one variant is to end with a higher return than one of another, where both have at least two "
    "finished runs; each is judged at its own end, however many steps that took. Where every run of one beats every "
    "run of the other the interval has no width, however few they are."
)

PACKAGES = ("m2ac", "jax", "numpy", "gymnasium", "mujoco")


def page(
    records: Sequence[Record],
    *,
    title: str,
    figures: Sequence[Chart] = (),
    refresh: bool = False,
    made: datetime | None = None,
) -> str:
    """The page of these runs, with further `figures`; `refresh` lets it reload itself."""
    groups = by_variant(records)
    ordered = [record for runs in groups.values() for record in runs]
    looks = styles(groups)
    drawn = {"curves": learning_charts(ordered), "figures": list(figures), "trust": trust_charts(ordered)}
    sections = list(_sections(ordered, looks, drawn))
    links = "".join(f'<a href="#{name}">{esc(heading)}</a>' for name, heading, _ in sections)
    body = "".join(
        f'<section id="{name}"><h2>{esc(heading)}</h2>{content}</section>' for name, heading, content in sections
    )
    main = (
        f'<main>{_filters(groups)}<p id="nothing" hidden>No run matches these filters. '
        f'<button type="button" class="everything">Show everything</button></p>{body}</main>'
    )
    head = _header(ordered, title, made or datetime.now(UTC), links, refresh=refresh)
    return document(title, head + main, refresh=refresh)


def charts_of(records: Sequence[Record]) -> list[Chart]:
    """The charts that the page of these runs draws by itself."""
    return learning_charts(records) + trust_charts(records)


def _sections(
    records: Sequence[Record], looks: Mapping[Variant, Style], drawn: Mapping[str, Sequence[Chart]]
) -> Iterator[tuple[str, str, str]]:
    """Id, heading and HTML of each section that there is something for."""
    rows = summarise(records)
    yield "overview", "Overview", overview(rows, looks) + said(rows)
    if drawn["figures"]:
        yield "figures", "The paper’s figures", grid(drawn["figures"], "figures")
    if drawn["curves"]:
        yield "curves", "Learning curves", grid(drawn["curves"], "curves")
    pairs = improvements(records)
    if pairs:
        yield "comparison", "Which is better", f'<p class="about">{ABOUT_PAIRS}</p>' + comparison(pairs, looks)
    moving = films(records, looks)
    if moving:
        yield "films", "Films", f'<div class="grid films">{moving}</div>'
    if drawn["trust"]:
        yield "trust", "Trust", _trust(drawn["trust"])
    yield "runs", "Runs", run_details(records, looks)


def _trust(charts: Sequence[Chart]) -> str:
    by_task: defaultdict[str, list[Chart]] = defaultdict(list)
    for chart in charts:
        by_task[chart.tasks[0]].append(chart)
    return "".join(
        f'<div class="group"><h3 class="task">{esc(task)}</h3>{grid(each, f"trust{number}")}</div>'
        for number, (task, each) in enumerate(by_task.items())
    )


def grid(charts: Sequence[Chart], prefix: str) -> str:
    """Charts beside and below each other; the prefix tells their ids from those of other grids."""
    return f'<div class="grid">{"".join(_figure(chart, f"{prefix}{n}") for n, chart in enumerate(charts))}</div>'


def _figure(chart: Chart, prefix: str) -> str:
    tasks = " ".join(map(token, chart.tasks))
    wide = " wide" if chart.figure.get_figwidth() > 1.4 * WIDTH else ""
    return (
        f'<figure class="chart{wide}" data-tasks="{esc(tasks)}"><h4>{esc(chart.title)}</h4>'
        f"{svg(chart.figure, prefix=prefix, label=chart.title)}<figcaption>{esc(chart.caption)}</figcaption></figure>"
    )


def _header(records: Sequence[Record], title: str, made: datetime, links: str, *, refresh: bool) -> str:
    done = sum(record.state == "finished" for record in records)
    tasks = len({record.env for record in records})
    facts = [
        f"<b>{plural(len(records), 'run')}</b>",
        "all finished" if done == len(records) else f"{done} finished, <em>{len(records) - done} unfinished</em>",
        plural(tasks, "task"),
        f'made <time datetime="{made.isoformat(timespec="seconds")}">{esc(f"{made:%Y-%m-%d %H:%M %Z}".strip())}</time>',
    ]
    if refresh:
        facts.append("watched: reloads itself")
    versions = _versions(records)
    below = (f"<p class=versions>{esc(versions)}</p>" if versions else "") + _shared(records)
    return header(title, facts, below, links)


def header(title: str, facts: Sequence[str], below: str, links: str) -> str:
    """The head of a page: its title, facts and what is below them as HTML, links to its sections."""
    return (
        f'<header><div class="top"><h1>{esc(title)}</h1><button type="button" id="theme" '
        'aria-label="light or dark" title="light or dark">◐</button></div>'
        f'<p class="facts">{" · ".join(facts)}</p>{below}<nav>{links}</nav></header>'
    )


def _shared(records: Sequence[Record]) -> str:
    """What was set for all runs of an algorithm, and so is not told of each."""
    shared = dict.fromkeys((record.algo.upper(), record.shared) for record in records if record.shared)
    return "".join(f"<p class=versions>all runs of {esc(algo)} have {esc(settings)}</p>" for algo, settings in shared)


def _versions(records: Sequence[Record]) -> str:
    """What the runs were made with, every version that occurs."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for record in records:
        packages = record.environment.get("packages")
        if not isinstance(packages, Mapping):
            continue
        for name in PACKAGES:
            if packages.get(name):
                found[name].add(str(packages[name]))
    return ", ".join(f"{name} {' and '.join(sorted(each))}" for name, each in found.items())


def _filters(variants: Mapping[Variant, Sequence[Record]]) -> str:
    """A chip for every task, algorithm, rollout length and setting; none where there is but one of a kind."""
    lengths = sorted({v.horizon for v in variants if v.horizon is not None})
    without = [("none", "no model rollouts")] if any(v.horizon is None for v in variants) else []
    usual = [("usual", "as usual")] if any(not v.settings for v in variants) else []
    facets = {
        "task": ("Task", [(v.task, v.task) for v in variants]),
        "algo": ("Algorithm", [(v.algo, v.algo.upper()) for v in variants]),
        "horizon": ("Rollout length", [*((str(length), f"H={length}") for length in lengths), *without]),
        "settings": ("Settings", [*usual, *sorted((v.settings, v.settings) for v in variants if v.settings)]),
    }
    fields = []
    for facet, (legend, values) in facets.items():
        chips = "".join(
            f'<label class="chip" title="{esc(text)}"><input type="checkbox" checked data-facet="{facet}" '
            f'value="{esc(token(value))}"><span>{esc(text)}</span></label>'
            for value, text in dict.fromkeys(values)
        )
        if len(dict.fromkeys(values)) > 1:
            fields.append(f'<fieldset><legend>{legend}</legend><div class="chips">{chips}</div></fieldset>')
    return (
        f'<form class="filters" autocomplete="off">{"".join(fields)}<p class="state"><span id="count" '
        'aria-live="polite"></span> <button type="button" class="everything" id="everything" hidden>Show everything'
        "</button></p></form>"
    )


def document(title: str, body: str, *, refresh: bool = False) -> str:
    """A whole page around its body, in the look of all pages here; nothing in it loads anything or runs a script."""
    assets = resources.files("m2ac.report")
    style, script = (assets.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    colours = data_colours([body])
    plain = "".join(f"--c{colour[1:]}:{colour};" for colour in colours)
    either = "".join(f"--c{colour[1:]}:light-dark({colour},{at_night(colour)});" for colour in colours)
    style += f":root{{{plain}}}@supports (color:light-dark(#000,#fff)){{:root{{{either}}}}}"
    # The only script that may run is this one, whatever else were to get into the page.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    reload = f'<meta http-equiv="refresh" content="{REFRESH}">' if refresh else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">{reload}'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><title>{esc(title)}</title><style>{style}</style></head>\n'
        f"<body>{body}<script>{script}</script></body></html>\n"
    )
