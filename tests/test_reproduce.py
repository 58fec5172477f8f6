"""A figure from nothing to its page, for real: on this machine, killed on the way, and on a Ray cluster."""

import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from waiting import until

from m2ac.cli import main
from m2ac.cli.reproducing import _exit_code
from m2ac.experiments.figures import find_experiment
from m2ac.experiments.trial import SMOKE
from m2ac.runs import cluster
from m2ac.runs.board import PlainBoard
from m2ac.runs.book import Ended
from m2ac.runs.directory import RunDirectory
from m2ac.runs.jobs import Job, Outcome
from m2ac.settings import ConfigError

ONLY = "1-3"  # One-vs-Rest, One-vs-All and the negative likelihood at length 1, first seed
TRIALS = find_experiment("ablation-uncertainty").trials(SMOKE)[:3]


def start(out):
    command = ["reproduce", "ablation-uncertainty", "--scale", "smoke", "--only", ONLY, "--workers", "2"]
    return subprocess.Popen(
        [sys.executable, "-m", "m2ac", *command, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def returns(folder):
    """Step, episode, seed, return and length of every evaluation episode of every run, to the last digit."""
    rows = {}
    for trial in TRIALS:
        own = RunDirectory.read(folder / trial.name).read_evals()
        rows[trial.name] = [{name: value for name, value in row.items() if name != "seconds"} for row in own]
    return rows


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """The figure, whose command was killed after its first run had finished and then called again."""
    out = tmp_path_factory.mktemp("reproduced")
    process = start(out)
    until(lambda: list(out.glob("*/DONE")) or process.poll() is not None)
    assert process.poll() is None, process.stdout.read()
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.glob("*/DONE")}
    again = start(out)
    told, _ = again.communicate(timeout=600)
    assert again.returncode == 0, told
    return out, finished, told


def test_an_experiment_that_was_killed_finishes_without_repeating_what_was_done(reproduced):
    out, finished, told = reproduced
    assert finished
    for path, before in finished.items():
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert all((out / trial.name / "DONE").exists() for trial in TRIALS)
    assert "3 finished" in told
    assert f"report: {out / 'ablation-uncertainty.html'}" in told


def test_the_page_has_the_figure_and_every_run(reproduced):
    out, _, _ = reproduced
    page = (out / "ablation-uncertainty.html").read_text()
    assert "Uncertainty estimation" in page
    assert "One-vs-All" in page
    assert all(trial.name in page for trial in TRIALS)


def test_a_cluster_that_loses_a_node_gives_the_same_numbers(reproduced, tmp_path, monkeypatch):
    ray_cluster = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed: pip install 'm2ac[ray]'")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # other tests would have all of the processor
    small = {"object_store_memory": 80 * 2**20}
    nodes_here = ray_cluster.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    nodes = [nodes_here.add_node(num_cpus=1, **small) for _ in range(2)]
    jobs = [Job(trial.name, tuple(trial.arguments), tmp_path / trial.name, trial.steps) for trial in TRIALS]
    lost = threading.Event()

    def lose_a_node():
        until(lambda: len(list(tmp_path.glob("*/evals.csv"))) == 2)  # two runs are under way, one on each
        nodes_here.remove_node(nodes[1], allow_graceful=False)
        lost.set()

    thread = threading.Thread(target=lose_a_node, daemon=True)
    thread.start()
    try:
        ended = cluster.run_on_ray(
            jobs,
            address=nodes_here.address,
            needs=cluster.Needs(),
            retries=2,
            board=PlainBoard(sys.stderr, interval=10),
        )
    finally:
        nodes_here.shutdown()
    assert lost.is_set()
    assert {outcome.state for outcome in ended.outcomes} == {"finished"}
    local, _, _ = reproduced
    assert returns(tmp_path) == returns(local)


@pytest.mark.parametrize(("with_gpu", "platform"), [(False, "cpu"), (True, "cuda")])
def test_a_run_on_a_node_sees_a_gpu_only_where_it_has_been_given_one(tmp_path, monkeypatch, with_gpu, platform):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    code = "import os; print(os.environ['JAX_PLATFORMS'])"
    monkeypatch.setattr(cluster, "worker", lambda: [sys.executable, "-c", code])
    assert cluster._train("a", (), str(tmp_path / "a"), store=None, with_gpu=with_gpu) == (0, platform)


def test_what_no_node_has_is_said_and_what_ray_refuses_is_a_wrong_input():
    said = []
    board = SimpleNamespace(message=said.append)
    nodes = [{"Alive": True, "Resources": {"CPU": 4.0}}, {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}]
    ray = SimpleNamespace(remote=lambda **_: lambda task: task, nodes=lambda: nodes)
    cluster._task(ray, cluster.Needs(cpus=4), board)
    assert said == []
    cluster._task(ray, cluster.Needs(cpus=1, gpus=1), board)
    assert said == ["no node has 1 cores and 1 GPUs; runs wait until one joins the cluster"]

    def refuse(**_):
        raise ValueError("1.5 GPUs are not whole")

    with pytest.raises(ConfigError, match=r"Ray refuses --cpus 1 --gpus 1\.5: .* not whole; give others"):
        cluster._task(SimpleNamespace(remote=refuse), cluster.Needs(gpus=1.5), board)


def test_a_run_that_was_made_here_does_not_give_way_to_one_in_a_store(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "runs" / "smoke" / TRIALS[0].name / "checkpoints" / "step-1"
    own.mkdir(parents=True)
    store = f"file://{tmp_path}/far"
    command = ["reproduce", "ablation-uncertainty", "--scale", "smoke", "--only", "1", "--ray", "auto"]
    assert main([*command, "--out", store]) == 2
    assert "holds a run that was made here" in capsys.readouterr().err
    assert own.exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_exit_code_tells_the_signal(number, code, tmp_path):
    job = Job("run", (), tmp_path / "run", 100)
    assert _exit_code(Ended([Outcome(job, "stopped", 1), Outcome(job, "failed", 1)], number)) == code
    assert _exit_code(Ended([Outcome(job, "finished", 1), Outcome(job, "failed", 1)], None)) == 1
    assert _exit_code(Ended([Outcome(job, "finished", 1)], number)) == 0


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "127.0.0.1:99999"])
def test_without_a_cluster_the_word_is_plain(capsys, tmp_path, address):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'm2ac[ray]'")
    out = str(tmp_path)
    assert main(["reproduce", "noisy", "--scale", "smoke", "--ray", address, "--only", "1", "--out", out]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith(f"m2ac: cannot reach a Ray cluster at '{address}'")
    assert said.endswith("start one with ray start --head")
