"""User text on a terminal: what does not print as itself is shown as an escape."""

import sys

import pytest

from m2ac.escaping import LONGEST, visible, visible_line
from m2ac.settings import ConfigError, UserError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 中 text", "plain ü 中 text"),
        ("\x1b[2J\x1b]0;x\x07", r"\x1b[2J\x1b]0;x\x07"),
        ("\x9b31m\x7f\x00", r"\x9b31m\x7f\x00"),
        ("a\nb\rc\td\x85e\u2028f", r"a\nb\rc\td\x85e\u2028f"),
        ("\u202e\u2066\u200b\ufeff", r"\u202e\u2066\u200b\ufeff"),
        ("\udc80", r"\udc80"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
)
def test_what_does_not_print_is_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_no_character_at_all_steers_a_terminal_breaks_a_line_or_turns_the_writing() -> None:
    everything = visible("".join(map(chr, (*range(0x11000), *range(0xE0000, 0xE0200), sys.maxunicode))))
    assert everything.isprintable()
    assert len(everything.splitlines()) == 1
    assert not set(everything) & {chr(c) for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)}


def test_a_message_is_one_line_whose_middle_goes_where_it_is_too_long() -> None:
    assert visible_line(" two\n  lines\x1b ") == r"two lines\x1b"
    long = visible_line("start " + "x" * 10 * LONGEST + " remedy")
    assert len(long) == LONGEST + 3
    assert long.startswith("start x")
    assert long.endswith("x remedy")


@pytest.mark.parametrize("kind", [UserError, ConfigError])
def test_an_error_for_the_user_is_safe_wherever_it_is_shown(kind: type[UserError]) -> None:
    assert str(kind("no \x1b[31mfile\nthere")) == r"no \x1b[31mfile there"
