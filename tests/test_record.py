"""What benchmarks put on record."""

import json

from benchmarks.record import keep_commands, keep_rows, read_rows


def row(seed, score, **more):
    return {"task": "T", "algo": "m2ac", "horizon": 1, "seed": seed, **more, "step": 10, "episode": 0, "return": score}


def scores(path):
    return [(found["seed"], found["return"]) for found in read_rows(path)]


def test_rows_of_runs_made_elsewhere_stay_and_a_runs_own_are_replaced(tmp_path):
    table = tmp_path / "t.csv"
    keep_rows(table, [row(0, 0.1), row(1, 0.2)])
    keep_rows(table, [row(1, 1 / 3), row(2, 5.0, settings="--x 1")])
    assert scores(table) == [("0", "0.1"), ("1", "0.3333333333333333"), ("2", "5.0")]
    assert [found["settings"] for found in read_rows(table)] == ["", "", "--x 1"]


def test_the_same_command_on_another_processor_is_another_run(tmp_path):
    table = tmp_path / "t.csv"
    keep_rows(table, [row(0, 1.0, cpu="A")])
    keep_rows(table, [row(0, 2.0, cpu="B")])
    assert scores(table) == [("0", "1.0"), ("0", "2.0")]


def test_commands_are_listed_under_the_machine_that_last_ran_them(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        about = {"python": "3", "cpu": name, "cores_usable": 1, "packages": {}, "git": {"commit": "not told"}}
        (tmp_path / name / "environment.json").write_text(json.dumps(about))
    listed = tmp_path / "l.json"
    keep_commands(listed, {"one": tmp_path / "a", "two": tmp_path / "a"})
    keep_commands(listed, {"two": tmp_path / "b", "three": tmp_path / "b"})
    found = json.loads(listed.read_text())
    assert [(each["environment"]["cpu"], each["commands"]) for each in found] == [
        ("a", ["one"]),
        ("b", ["two", "three"]),
    ]
