"""Run directories kept at a URL."""

import threading

import fsspec
import pytest

from m2ac.runs.store import Store, is_url
from m2ac.settings import ConfigError

CHECKPOINT = ["checkpoints/step-1/manifest.json", "checkpoints/step-1/state"]
ALL = ["DONE", *CHECKPOINT, "config.json", "metrics.jsonl"]


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/far/runs"


@pytest.fixture
def run(tmp_path):
    run = tmp_path / "near" / "run"
    (run / "checkpoints" / "step-1").mkdir(parents=True)
    for name in ("config.json", "metrics.jsonl", *CHECKPOINT, "lock", ".half.tmp", "DONE"):
        (run / name).write_text(name)
    return run


def files(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_url_is_told_from_a_path():
    assert is_url("s3://bucket/runs")
    assert not is_url("runs/desk")
    assert not is_url("/data/a:b")


def test_what_was_sent_comes_back_without_locks_and_half_written_files(url, run, tmp_path):
    Store(url).send("a", run)
    back = tmp_path / "back"
    Store(url).fetch("a", back, checkpoints=True)
    assert sorted(files(back)) == ALL
    assert all(name == content for name, content in files(back).items())
    Store(url).fetch("a", back, checkpoints=False)
    assert sorted(files(back)) == ["DONE", "config.json", "metrics.jsonl"]


def test_a_run_that_is_not_there_leaves_nothing(url, tmp_path):
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "old").touch()
    Store(url).fetch("b", tmp_path / "back", checkpoints=True)
    assert not (tmp_path / "back").exists()


def test_logs_go_before_the_checkpoints_listed_earlier_and_the_end_goes_last(url, run, monkeypatch):
    store, sent = Store(url), []
    monkeypatch.setattr(store._files, "put_file", lambda here, there: sent.append(there.rpartition("runs/a/")[2]))
    store.send("a", run)
    assert sent == ["config.json", "metrics.jsonl", *CHECKPOINT[::-1], "DONE"]


def test_a_checkpoint_that_was_not_sent_to_its_end_is_none_and_goes_when_the_run_is_sent_again(url, run, tmp_path):
    Store(url).send("a", run)
    there = tmp_path / "far" / "runs" / "a"
    (there / "checkpoints" / "step-2").mkdir()
    (there / "checkpoints" / "step-2" / "state").write_text("ha")
    store = Store(url)
    store.fetch("a", tmp_path / "back", checkpoints=True)
    assert sorted(files(tmp_path / "back")) == ALL
    store.send("a", tmp_path / "back")
    assert sorted(files(there)) == ALL


def test_what_was_brought_is_not_sent_again(url, run, tmp_path, monkeypatch):
    Store(url).send("a", run)
    store = Store(url)
    store.fetch("a", tmp_path / "back", checkpoints=True)
    monkeypatch.setattr(store._files, "put_file", lambda here, there: pytest.fail(there))
    store.send("a", tmp_path / "back")


def test_no_name_in_a_store_leads_out_of_the_run(url, run, tmp_path, monkeypatch):
    store = Store(url)
    store.send("a", run)
    find = store._files.find
    monkeypatch.setattr(store._files, "find", lambda path: [*find(path), f"{path}/../../../near/run/config.json"])
    store.fetch("a", tmp_path / "some" / "back", checkpoints=True)
    assert sorted(files(tmp_path / "some")) == [f"back/{name}" for name in ALL]


def test_a_store_that_fails_for_a_while_has_everything_in_the_end(url, run, tmp_path, monkeypatch):
    monkeypatch.setattr("m2ac.runs.store.PAUSES", (0.0, 0.0))
    store, calls = Store(url), []
    put = store._files.put_file

    def fail_at_first(here, there):
        calls.append(there)
        if len(calls) < 4:
            raise ConnectionError("no route")
        put(here, there)

    monkeypatch.setattr(store._files, "put_file", fail_at_first)
    with store.mirrored("a", tmp_path / "work", every=0.01):
        run.rename(tmp_path / "work")
        for _ in range(500):
            if len(calls) > 1:
                break
            threading.Event().wait(0.01)
    assert len(calls) > 3
    assert sorted(files(tmp_path / "far" / "runs" / "a")) == ALL


def test_only_what_changed_is_sent_again_and_an_old_checkpoint_removed(url, run, tmp_path, monkeypatch):
    store = Store(url)
    store.send("a", run)
    (run / "metrics.jsonl").write_text("longer than before")
    (run / "checkpoints" / "step-1").rename(run / "checkpoints" / "step-2")
    sent, put = [], store._files.put_file
    monkeypatch.setattr(
        store._files, "put_file", lambda here, there: (sent.append(there.rpartition("runs/a/")[2]), put(here, there))
    )
    store.send("a", run)
    assert sent == ["metrics.jsonl", "checkpoints/step-2/state", "checkpoints/step-2/manifest.json"]
    assert sorted(files(tmp_path / "far" / "runs" / "a")) == [
        "DONE",
        "checkpoints/step-2/manifest.json",
        "checkpoints/step-2/state",
        "config.json",
        "metrics.jsonl",
    ]


def test_a_mirrored_run_goes_on_where_it_was_and_is_sent_as_it_goes(url, tmp_path):
    first = tmp_path / "first"
    with Store(url).mirrored("a", first):
        first.mkdir()
        (first / "metrics.jsonl").write_text("1\n")
    second, arrived = tmp_path / "second", threading.Event()
    there = tmp_path / "far" / "runs" / "a" / "metrics.jsonl"
    with Store(url).mirrored("a", second, every=0.05):
        assert (second / "metrics.jsonl").read_text() == "1\n"
        (second / "metrics.jsonl").write_text("1\n2\n")
        for _ in range(200):
            if there.read_text() == "1\n2\n":
                arrived.set()
                break
            arrived.wait(0.05)
    assert arrived.is_set()


def test_a_store_that_is_no_file_system_works_alike(run, tmp_path):
    Store("memory://bucket").send("a", run)
    Store("memory://bucket").fetch("a", tmp_path / "back", checkpoints=True)
    assert sorted(files(tmp_path / "back")) == ALL
    fsspec.filesystem("memory").rm("bucket", recursive=True)


def test_a_url_that_nothing_knows_is_refused():
    with pytest.raises(ConfigError, match=r"cannot use 'nothing://x'.*give another --out"):
        Store("nothing://x")
