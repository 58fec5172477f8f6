"""Every run on a report's page: what made it, what it was made with, and what one should know of it."""

import base64
from collections.abc import Mapping, Sequence

from m2ac.report.charts import Style, Variant
from m2ac.report.markup import as_json, duration, esc, plural, score, whole
from m2ac.report.page_tables import variant_cell
from m2ac.report.records import Record
from m2ac.report.series import evaluations, measured, seconds

COUNTED = {
    "trust/nonfinite_rows": "imagined transitions that were not finite, and dropped",
    "model/skipped_batches": "steps of the model's fit that were not finite, and skipped",
    "model/refused": "fits of the model that were refused",
    "sac/skipped_updates": "updates that were not finite, and skipped",
    "ddpg/skipped_updates": "updates that were not finite, and skipped",
    "ppo/skipped_updates": "updates that were not finite, and skipped",
    "watch/value_beyond": "cycles in which the critics' values were beyond what the rewards allow",
}
"""Metrics that are 0 as long as all is well."""


def run_details(records: Sequence[Record], looks: Mapping[Variant, Style]) -> str:
    """An element for each run that opens on a click."""
    return "".join(_run(number, record, looks) for number, record in enumerate(records, 1))


def _run(number: int, record: Record, looks: Mapping[Variant, Style]) -> str:
    variant = Variant.of(record)
    found = evaluations(record)
    last = f"{score(found[-1].score)} at {whole(found[-1].step)}" if found else "no evaluation yet"
    state = "" if record.state == "finished" else '<span class="badge">unfinished</span>'
    film = f'<p><a href="#film-{number}">Its film is above.</a></p>' if record.film else ""
    told = "".join(f"<li>{notice}</li>" for notice in notices(record))
    settings = f"<p>Set apart by <code>{esc(record.settings)}</code></p>" if record.settings else ""
    environment = _block("Environment and versions", as_json(record.environment)) if record.environment else ""
    return (
        f'<details class="run" id="run-{number}" data-of="{esc(variant.tag)}"><summary>'
        f'<span class="task">{esc(record.env)}</span>{variant_cell(variant, looks)}'
        f'<span class="seed">seed {record.seed}</span>{state}'
        f'<span class="last">{last}</span></summary><div class="body">'
        f'<div class="command"><code>{esc(record.command)}</code><button type="button" class="copy">copy</button></div>'
        f"<p>Directory <code>{esc(record.name)}</code>, {whole(record.steps)} steps, {duration(seconds(record))}</p>"
        f"{settings}{f'<ul class={chr(34)}notices{chr(34)}>{told}</ul>' if told else ''}{film}"
        f"{_block('Every setting', as_json(record.config))}{environment}</div></details>"
    )


def notices(record: Record) -> list[str]:
    """What one should know before trusting the run, as HTML."""
    found = []
    if record.state != "finished":
        found.append("It is not finished; the command above continues it where its directory is.")
    for name, text in COUNTED.items():
        count = round(sum(value for _, value in measured(record, name)))
        if count:
            found.append(f"{whole(count)} {text} (<code>{name}</code>)")
    earlier = record.environment.get("earlier")
    if isinstance(earlier, list) and earlier:
        found.append(f"It was interrupted and continued {plural(len(earlier), 'time')}.")
    return found


def _block(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary><pre>{text}</pre></details>"


def films(records: Sequence[Record], looks: Mapping[Variant, Style]) -> str:
    """The policies in motion, of the runs that have a film."""
    found = []
    for number, record in enumerate(records, 1):
        if record.film:
            variant = Variant.of(record)
            data = base64.b64encode(record.film).decode("ascii")
            found.append(
                f'<figure class="film" id="film-{number}" data-of="{esc(variant.tag)}">'
                f'<img src="data:image/webp;base64,{data}" alt="{esc(f"{record.env}, {variant.name}, in motion")}">'
                f"<figcaption><b>{esc(record.env)}</b> {variant_cell(variant, looks)} seed {record.seed}</figcaption>"
                "</figure>"
            )
    return "".join(found)
