"""A short form of the campaign's row on numbers that are not finite."""

from pathlib import Path

from faults import numbers


def test_numbers_that_are_not_finite_are_caught_told_and_never_stored(tmp_path: Path) -> None:
    row = numbers.run(40, tmp_path)
    assert row.failures == []
    assert row.tried == row.held == 40


def test_every_kind_of_case_is_among_those_tried() -> None:
    names = [case.name for case in numbers.cases()]
    assert len(names) == len(set(names)) > 500
    for part in ("random reset", "evaluation", "3e+38", "reward_fn", ".critics", "checkpoint", "rollouts", "predict"):
        assert any(part in name for name in names)
