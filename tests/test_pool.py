"""Many runs on this machine, with commands in place of trainings that do as the test says."""

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from m2ac.cli.worker import wait_for
from m2ac.runs import pool
from m2ac.runs.board import PlainBoard, RichBoard, counts, make_board
from m2ac.runs.jobs import Job, Outcome, last_words, standing, verdict
from m2ac.runs.pool import run_all
from m2ac.settings import ConfigError

# A run: each call does the next of the things that `plan` has, and says what core it is on.
ACT = """
import json, os, signal, sys, time
directory = sys.argv[sys.argv.index("--out") + 1]
os.makedirs(directory, exist_ok=True)
with open(directory + "/calls", "a") as file:
    file.write(f"{sys.argv[sys.argv.index('--core') + 1]} {time.time()} ")
plan = sys.argv[sys.argv.index("train") + 1].split(",")
done = open(directory + "/calls").read().count("\\n")
todo = plan[min(done, len(plan) - 1)]
with open(directory + "/calls", "a") as file:
    file.write(todo + "\\n")
def log(step):
    with open(directory + "/metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "seconds": 1.5}) + "\\n")
if todo == "further":
    log(10 * (done + 1))
    sys.exit("m2ac: the env broke")
if todo == "fail":
    sys.exit("m2ac: the env broke")
if todo == "wrong":
    print("m2ac: rate must be less", file=sys.stderr)
    sys.exit(2)
if todo == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if todo == "long":
    signal.signal(signal.SIGTERM, lambda *_: (open(directory + "/saved", "w").close(), sys.exit(143)))
    log(5)
    time.sleep(60)
time.sleep(0.3 if todo == "slow" else 0)
open(directory + "/DONE", "w").close()
"""


class Notes:
    """A board that remembers."""

    def __init__(self):
        self.messages, self.most = [], 0

    def show(self, running, waiting, ended):
        self.most = max(self.most, len(running))

    def message(self, text):
        self.messages.append(text)

    def close(self):
        pass


@pytest.fixture
def acting(monkeypatch, tmp_path):
    script = tmp_path / "act.py"
    script.write_text(ACT)
    monkeypatch.setattr(pool, "worker", lambda: [sys.executable, str(script)])

    def jobs(*plans):
        return [Job(f"run{i}", ("train", plan), tmp_path / "out" / f"run{i}", 100) for i, plan in enumerate(plans)]

    return jobs


def calls(job):
    return (job.directory / "calls").read_text().split("\n")[:-1] if (job.directory / "calls").exists() else []


def run(jobs, *, workers=2, retries=2):
    notes = Notes()
    ended = run_all(jobs, workers=workers, retries=retries, board=notes)
    return {outcome.job.name: outcome for outcome in ended.outcomes}, notes


def test_every_run_is_made_once_and_a_finished_one_not_again(acting):
    jobs = acting("ok", "ok", "ok")
    ended, _ = run(jobs)
    assert {outcome.state for outcome in ended.values()} == {"finished"}
    ended, _ = run(jobs)
    assert [len(calls(job)) for job in jobs] == [1, 1, 1]
    assert {outcome.attempts for outcome in ended.values()} == {0}


def test_a_run_that_fails_is_tried_again_until_it_has_failed_too_often(acting):
    jobs = acting("fail,killed,ok", "fail")
    ended, notes = run(jobs)
    assert ended["run0"].state == "finished"
    assert ended["run0"].attempts == 3
    assert ended["run1"] == Outcome(jobs[1], "failed", 3, "m2ac: the env broke")
    assert "trying run0 again: killed by SIGKILL" in notes.messages
    assert "failed: run1: m2ac: the env broke" in notes.messages


def test_a_run_that_comes_further_each_time_has_every_attempt_again(acting):
    (job,) = acting("further,further,further,further,ok")
    ended, _ = run([job], retries=0)
    assert ended["run0"].state == "finished"
    assert len(calls(job)) == 5


def test_wrong_input_is_not_tried_again(acting):
    (job,) = acting("wrong")
    ended, _ = run([job])
    assert ended["run0"] == Outcome(job, "failed", 1, "m2ac: rate must be less")


def test_no_more_run_at_once_than_there_are_workers_and_each_has_a_core(acting):
    ended, notes = run(acting(*["slow"] * 6), workers=2)
    assert notes.most == 2
    assert all(outcome.state == "finished" for outcome in ended.values())
    cores = {call.split()[0] for outcome in ended.values() for call in calls(outcome.job)}
    assert cores <= {str(core) for core in pool.usable_cores()}
    assert len(cores) == min(2, len(pool.usable_cores()))


def test_a_signal_is_passed_on_once_and_everything_saved(acting):
    jobs = acting("long", "long", "ok")
    started = time.monotonic()
    threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    ended, notes = run(jobs)
    assert time.monotonic() - started < 30
    assert {name: outcome.state for name, outcome in ended.items()} == dict.fromkeys(
        ("run0", "run1", "run2"), "stopped"
    )
    assert all((job.directory / "saved").exists() for job in jobs[:2])
    assert not jobs[2].directory.exists()
    assert "stopping: 2 runs are saved and continued by the same command" in notes.messages


def test_a_worker_is_asked_to_save_when_whoever_started_it_is_killed(tmp_path):
    child = (
        "import os, signal, sys, time; from m2ac.cli.worker import end_with_parent; end_with_parent(os.getppid());"
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(tmp_path / 'saved')!r}, 'w').close(), os._exit(0)));"
        f"open({str(tmp_path / 'ready')!r}, 'w').close(); time.sleep(60)"
    )
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]).wait()"
    process = subprocess.Popen([sys.executable, "-c", parent])
    _until((tmp_path / "ready").exists)
    process.kill()
    process.wait()
    _until((tmp_path / "saved").exists)


def test_a_worker_whose_starter_died_before_it_could_ask_ends_too():
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux tells")
    code = "from m2ac.cli.worker import work; work(['--parent', '999999999', '--core', '0', 'envs'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")


def test_an_error_here_lets_every_run_save_before_it_is_told(acting):
    class Broken(Notes):
        def show(self, running, waiting, ended):
            if all((job.directory / "metrics.jsonl").exists() for job in running):
                raise BrokenPipeError

    jobs = acting("long", "long")
    with pytest.raises(BrokenPipeError):
        run_all(jobs, workers=2, retries=2, board=Broken())
    assert all((job.directory / "saved").exists() for job in jobs)


def test_a_finished_run_of_another_scale_is_not_taken_for_this_one(acting):
    (job,) = acting("ok")
    run([job])
    (job.directory / "config.json").write_text(json.dumps({"steps": job.steps}))
    run([job])
    (job.directory / "config.json").write_text(json.dumps({"steps": 400}))
    with pytest.raises(ConfigError, match="holds a finished run of 400 steps, not 100; give another --out"):
        run([job])


def test_a_worker_keeps_to_one_core_and_another_takes_the_next(tmp_path):
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("this system knows no affinity")
    code = (
        "import os, sys; from m2ac.cli.worker import keep_to_one_core; keep_to_one_core(None);"
        "print(*os.sched_getaffinity(0), flush=True); sys.stdin.read()"
    )
    env = os.environ | {"TMPDIR": str(tmp_path)}
    start = lambda: subprocess.Popen(  # noqa: E731
        [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    usable = sorted(os.sched_getaffinity(0))
    first = start()
    assert first.stdout.readline().split() == [str(usable[0])]
    second = start()
    assert second.stdout.readline().split() == [str(usable[min(1, len(usable) - 1)])]
    for process in (first, second):
        process.communicate("")
    third = start()
    assert third.stdout.readline().split() == [str(usable[0])]
    third.communicate("")


def test_a_worker_waits_for_the_one_before_it_to_leave(tmp_path):
    (tmp_path / "lock").touch()
    hold = f"import fcntl, time; f = open({str(tmp_path / 'lock')!r}, 'rb'); fcntl.flock(f, fcntl.LOCK_EX);"
    process = subprocess.Popen(
        [sys.executable, "-c", hold + "print(1, flush=True); time.sleep(1.5)"], stdout=subprocess.PIPE
    )
    process.stdout.readline()
    began = time.monotonic()
    wait_for(tmp_path)
    assert 0.5 < time.monotonic() - began < 20
    process.communicate()
    wait_for(tmp_path)
    wait_for(tmp_path / "nothing")


def test_how_far_a_run_has_come_is_read_from_its_logs(tmp_path):
    job = Job("run", (), tmp_path / "run", 1000)
    assert standing(job) == (0, 0.0, None)
    assert last_words(job) == "nothing was said"
    job.directory.mkdir()
    (job.directory / "metrics.jsonl").write_text('{"step": 250, "seconds": 9.5}\n{"step": 500, "sec')
    assert standing(job) == (250, 9.5, None)
    rows = (
        "step,episode,seed,return,length,seconds\n250,0,1,1.0,200,9.0\n300,1,2,3.0,200,10.0\n300,2,3,5.0,200,10.5\n30"
    )
    (job.directory / "evals.csv").write_text(rows)
    assert standing(job) == (300, 10.5, 4.0)


@pytest.mark.parametrize("value", ['"x"', "[1]", "NaN", "Infinity", "1" + "0" * 400, "null", "{}"])
def test_a_damaged_log_stops_nobody(tmp_path, value):
    job = Job("run", (), tmp_path / "run", 1000)
    job.directory.mkdir()
    (job.directory / "metrics.jsonl").write_text(f'{{"step": {value}, "seconds": {value}}}\n{"[" * 20_000}\n')
    (job.directory / "evals.csv").write_text(f"{'9' * 400},0,1,nan,200,inf\n")
    assert standing(job) == (0, 0.0, None)
    os.remove(job.directory / "metrics.jsonl")
    os.mkfifo(job.directory / "metrics.jsonl")
    assert standing(job) == (0, 0.0, None)


def test_what_a_run_said_is_one_line_that_steers_no_terminal(tmp_path):
    job = Job("run", (), tmp_path / "run", 1000)
    job.log.parent.mkdir(parents=True)
    job.log.write_text("\x1b[2J" + "x" * 50_000)
    assert last_words(job).startswith("\\x1b[2J")
    assert len(last_words(job)) < 3000


def test_a_run_that_was_done_before_it_was_stopped_is_finished(tmp_path):
    job = Job("run", (), tmp_path, 1000)
    (tmp_path / "DONE").touch()
    assert verdict(job, 1, "", began_at=0, attempt=1, retries=1, stopped=True) == Outcome(job, "finished", 1)


def test_an_exit_without_an_end_is_a_failure(tmp_path):
    job = Job("run", (), tmp_path / "run", 1000)
    assert verdict(job, 0, "", began_at=0, attempt=1, retries=1, stopped=False) == 2
    assert verdict(job, 0, "", began_at=0, attempt=2, retries=1, stopped=False) == Outcome(job, "failed", 2, "")


def test_the_plain_board_tells_every_change_once(tmp_path, capsys):
    a, b = (Job(name, (), tmp_path / name, 100) for name in ("a\x1b[2J", "b"))
    board = PlainBoard(sys.stdout, interval=1e9)
    board.show([a], [b], [])
    board.show([a], [b], [])
    board.show([b], [], [Outcome(a, "finished", 1)])
    board.show([], [], [Outcome(a, "finished", 1), Outcome(b, "failed", 3, "why")])
    assert capsys.readouterr().out.splitlines() == [
        "1 running, 1 waiting",
        "finished: a\\x1b[2J  0/100  eval -  0s",
        "1 running, 1 finished",
        "failed: b  0/100  eval -  0s",
        "1 finished, 1 failed",
    ]
    assert counts([], [], []) == "nothing to do"


def test_the_live_board_shows_what_runs_and_what_ended_last(tmp_path):
    from rich.console import Console

    jobs = [Job(f"run{i}", (), tmp_path / f"run{i}", 100) for i in range(3)]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(RichBoard(console).table(jobs[:1], jobs[1:2], [Outcome(jobs[2], "failed", 2, "why")]))
    shown = console.export_text()
    assert "1 running, 1 waiting, 1 failed" in shown
    assert "run0" in shown
    assert "✗" in shown
    assert isinstance(make_board(sys.stderr), PlainBoard)


def _until(holds, seconds=30.0):
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_worker_is_a_module_that_exists():
    assert importlib.util.find_spec(pool.worker()[2]) is not None
