"""Text and numbers as HTML: whatever comes from users or files passes through `esc`."""

import html
import json
import math
from collections.abc import Mapping
from typing import Any

from m2ac.escaping import visible

NOTHING = "–"


def esc(text: object) -> str:
    """Anything as text that neither ends an element or an attribute nor hides what it is."""
    return html.escape(visible(str(text)), quote=True)


def esc_lines(text: str) -> str:
    """The same of text whose line breaks are meant."""
    return "\n".join(map(esc, text.split("\n")))


def as_json(values: Mapping[str, Any]) -> str:
    """Settings to be read, as escaped text."""
    return esc_lines(json.dumps(values, indent=2, ensure_ascii=False, default=str))


def score(value: float | None) -> str:
    """5,657 or −144.1 or 0.25: as many digits as a return is worth."""
    if value is None or not math.isfinite(value):
        return NOTHING
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}".replace("-", "−")


def whole(value: int) -> str:
    """16,000."""
    return f"{value:,}".replace("-", "−")


def span(low: int, high: int) -> str:
    """16,000 or 16,000 to 25,000."""
    return whole(low) if low == high else f"{whole(low)} to {whole(high)}"


def duration(seconds: float | None) -> str:
    """45 s, 12 min or 3 h 05."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d}"


def percent(share: float) -> str:
    """67 %."""
    return f"{100 * share:.0f} %"


def plural(count: int, word: str) -> str:
    """1 run, 2 runs."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
