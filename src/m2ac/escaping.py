"""Text from users and from files, made safe to show: nothing in it steers a terminal or hides what it is."""

import re

LONGEST = 2_000
"""Characters of a line that may quote a file; what is longer loses its middle."""


def visible(text: str) -> str:
    r"""The text on one line, in which whatever does not print as itself stands as an escape such as \x1b or \u202e.

    That is every control character, hence every ANSI and OSC sequence, every line separator, every mark that turns the
    direction of writing or has no width, and halves of surrogate pairs.
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def visible_line(text: str) -> str:
    """A message, which may quote anything, as one line of bearable length; its own line breaks become spaces."""
    line = visible(re.sub(r"[ \t\r\n]+", " ", text).strip())
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
