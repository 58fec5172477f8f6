"""Whether a message says enough: one line that names the place, the value received and the remedy."""

from typing import NamedTuple


class Words(NamedTuple):
    """What a message must hold; written by hand for every case, never taken from what the code said."""

    place: str
    value: str
    remedy: str


def lacking(text: str, words: Words) -> str:
    """What is wrong with the message, nothing if it says enough."""
    if "Traceback" in text or "\x1b" in text or not text.strip() or len(text.strip().splitlines()) != 1:
        return f"not one plain line: {text!r}"
    missing = [f"{name} {word!r}" for name, word in zip(Words._fields, words, strict=True) if word not in text]
    return f"no {', no '.join(missing)} in {text!r}" if missing else ""
