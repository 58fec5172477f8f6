"""Names and texts that try to leave their place: a short form of the campaign, and the pieces that keep them in."""

from pathlib import Path

import pytest

from faults import injections
from faults.boxed import NotHeldError
from m2ac.config import RunConfig
from m2ac.runs.directory import default_out


def test_no_injection_succeeds(tmp_path: Path) -> None:
    row = injections.run(15, tmp_path)
    assert row.failures == []
    assert (row.property, row.tried, row.held) == (injections.PROPERTY, 15, 15)


def test_there_are_enough_injections_and_each_has_a_name_of_its_own() -> None:
    assert injections.DEFAULT >= 90
    assert len(injections.CASES) >= injections.DEFAULT
    assert len({case.name for case in injections.CASES}) == len(injections.CASES)
    tried = " ".join(case.name for case in injections.CASES[: injections.DEFAULT])
    for name in (*injections.SINKS, *injections.KINDS, *injections.OWN):
        assert name in tried


def test_the_campaign_notices_what_steers_a_terminal_and_what_changes_outside(tmp_path: Path) -> None:
    for text in ("\x1b[2J", "\u202e", "\r", "\x85"):
        with pytest.raises(NotHeldError, match="reached the terminal"):
            injections._unharmed(text)
    file = tmp_path / "file"
    file.write_text("precious")
    before = injections._snapshot(tmp_path)
    assert injections._snapshot(tmp_path) == before
    file.write_text("gone")
    (tmp_path / "new").symlink_to("file")
    after = injections._snapshot(tmp_path)
    assert {name for name in after if before.get(name) != after[name]} == {"file", "new"}


@pytest.mark.parametrize(
    ("env", "out"),
    [
        ("..", "runs/_.-m2ac-s0"),
        ("../../x", "runs/_.-..-x-m2ac-s0"),
        ("-rf", "runs/_rf-m2ac-s0"),
        ("a\0b\nc", "runs/a-b-c-m2ac-s0"),
    ],
)
def test_the_default_directory_is_one_harmless_name(env: str, out: str) -> None:
    assert default_out(RunConfig(env=env)) == out


def test_long_names_are_cut_to_what_a_file_system_takes_and_stay_apart() -> None:
    one, two = (default_out(RunConfig(env="a" * 5_000 + end, horizon=8)) for end in "xy")
    assert one != two
    assert len(one) < 200
    assert one.startswith("runs/" + "a" * 120 + "-")
    assert one.endswith("-m2ac-h8-s0")
