import json

import pytest

from m2ac import bench
from m2ac.bench import Timing, bench_config, fit_flops, layer_products, measure, rollout_flops, sac_flops
from m2ac.cli import main
from m2ac.settings import override


def test_products_of_a_network_by_hand():
    """3 → 5 → 2: 15 and 10 weights, each a multiplication and an addition."""
    assert layer_products([3, 5, 2]) == [30, 20]


def test_the_work_of_each_phase_at_the_sizes_of_halfcheetah():
    config = bench_config()
    assert sac_flops(config) == pytest.approx(0.58e9, rel=0.01)
    assert fit_flops(config.model) == pytest.approx(1.40e9, rel=0.01)
    assert rollout_flops(config, 7) == pytest.approx(1.99e6, rel=0.01)


def test_the_first_call_is_told_apart_and_the_fastest_of_the_others_counts(monkeypatch):
    """The first call takes 9 s, the others 4, 2 and 3 for two units of work."""
    clock = iter([0.0, 9.0, 10.0, 14.0, 20.0, 22.0, 30.0, 33.0])
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    timing = measure("phase", "unit", lambda: None, units=2, repeats=3, flops=6e9)
    assert (timing.first_call, timing.seconds, timing.median) == (9.0, 1.0, 1.5)
    assert timing.gflops() == 6.0


def test_every_phase_runs_at_small_sizes():
    """With the functions of training itself; at full size `m2ac bench --quick` takes half a minute."""
    small = bench_config(
        sac={"hidden": 8, "batch_size": 8},
        model={"hidden": 8, "layers": 1, "weight_decay": (0.0, 0.0), "members": 3, "elites": 2, "batch_size": 8},
        updates_per_step=1,
        model_every=20,
        rollouts_per_update=2,
    )
    for timing in (
        bench.sac_updates(small, repeats=1, rows=50, updates=3),
        bench.ensemble_steps(small, repeats=1, rows=50, batches=2),
        bench.imagined_rows(small, repeats=1, rows=50),
        bench.imagined_rows(override(small, {"mask": {"rate": 1.0, "penalty": 0.0}}), repeats=1, rows=50),
        *bench.cycle_steps(small, stored=(50, 80), repeats=1),
        *bench.start_up(["--model.hidden", "8", "--sac.hidden", "8", "--rollouts-per-update", "1"]),
        bench.acting(repeats=1, sampled=True),
        bench.gemm(32, repeats=1),
    ):
        assert 0 < timing.seconds <= timing.median
        assert timing.first_call > 0


def test_the_command_prints_shares_of_the_peak_and_writes_its_numbers(monkeypatch, capsys, tmp_path):
    known = [
        Timing("matrix product 2048³", "product", 0.05, 0.06, 0.1, 10e9),
        Timing("SAC update", "update", 4e-3, 5e-3, 3.0, 0.4e9),
        Timing("acting", "action", 12e-6, 13e-6, 0.0, None),
    ]
    monkeypatch.setattr(bench, "timings", lambda *, quick: iter(known))
    file = tmp_path / "bench.json"
    assert main(["bench", "--quick", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["SAC", "update", "4", "ms", "5", "ms", "3.0s", "100", "50%"]
    assert lines[3].split() == ["acting", "12", "µs", "13", "µs", "0.0s"]
    written = json.loads(file.read_text())
    assert written["peak_gflops"] == 200.0
    assert written["timings"][1]["seconds"] == 4e-3
    assert "jax" in written["environment"]["packages"]
