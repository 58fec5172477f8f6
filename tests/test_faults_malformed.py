"""The campaign's row of malformed environments and configurations, in short."""

from pathlib import Path

import pytest

from faults import malformed
from faults.told import Words, lacking


def test_malformed_environments_and_configurations_are_met_by_one_clear_line(tmp_path: Path) -> None:
    row = malformed.run(24, tmp_path)
    assert row.failures == []
    assert row.tried == row.held == 24


def test_the_row_has_the_cases_it_promises() -> None:
    names = [case.name for case in malformed.CASES]
    assert malformed.DEFAULT == len(names) >= 60
    assert [case.name for case in malformed.evenly(10_000)] == names
    assert len({id(case) for case in malformed.evenly(24)}) == 24


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ("steps must be at least 3, got 2; take more", ""),
        ("steps must be at least 3; take more", "no value 'got 2'"),
        ("steps must be at least 3, got 2", "no remedy 'take more'"),
        ("it must be at least 3, got 2; take more", "no place 'steps'"),
        ("steps must be at least 3, got 2;\ntake more", "not one plain line"),
        ("steps must be at least 3, got 2; \x1b[1mtake more", "not one plain line"),
        ("", "not one plain line"),
    ],
)
def test_a_message_that_says_too_little_is_found_out(message: str, missing: str) -> None:
    said = lacking(message, Words("steps", "got 2", "take more"))
    assert said.startswith(missing)
    assert bool(said) is bool(missing)


def test_a_case_that_does_not_hold_is_counted_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(scratch: Path) -> str:
        raise ZeroDivisionError("of a case")

    cases = [malformed.Case("good", lambda scratch: ""), malformed.Case("bad", lambda scratch: "taken")]
    monkeypatch.setattr(malformed, "CASES", [*cases, malformed.Case("worse", raises)])
    row = malformed.run(3, tmp_path)
    assert (row.tried, row.held) == (3, 1)
    assert row.failures == ["bad: taken", "worse: raised ZeroDivisionError: of a case"]
