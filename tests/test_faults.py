"""A short form of the fault campaign; `make faults` runs the whole."""

from pathlib import Path

import pytest

from faults import determinism, failing_disk, fuzz, kills, memory, signals, writer
from faults.row import Row


def held(row: Row) -> None:
    assert row.failures == []
    assert row.held == row.tried > 0


def test_the_same_seed_ends_in_the_same_state(tmp_path: Path) -> None:
    held(determinism.run(1, tmp_path))


def test_killed_runs_end_as_if_they_had_not_been(tmp_path: Path) -> None:
    held(kills.run(1, tmp_path))


def test_stopped_runs_save_in_time_and_end_as_if_they_had_not_been(tmp_path: Path) -> None:
    held(signals.run(1, tmp_path))


def test_a_killed_writer_leaves_a_checkpoint(tmp_path: Path) -> None:
    held(writer.run(25, tmp_path))


def test_a_disk_that_fails_leaves_the_old_checkpoint_and_a_clear_error(tmp_path: Path) -> None:
    held(failing_disk.run(120, tmp_path))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    held(fuzz.run(300, tmp_path))


def test_memory_is_measured(tmp_path: Path) -> None:
    row = memory.run(20_000, tmp_path)  # so short a run may still grow: what is shown is that it is measured
    assert row.tried == 1
    assert row.held == 1 or "MiB after the third cycle" in row.failures[0]


@pytest.mark.parametrize("damage", fuzz.DAMAGES)
def test_every_damage_damages(damage: fuzz.Damage, tmp_path: Path) -> None:
    import random

    from faults.small import CONFIG, at_step
    from m2ac.runs import checkpoint

    checkpoint.save(tmp_path / "a", at_step(1), CONFIG)
    data = (tmp_path / "a" / checkpoint.STATE).read_bytes()
    assert any(damage(data, data[::-1], random.Random(seed)) != data for seed in range(3))
