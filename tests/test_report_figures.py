"""The paper's figures, drawn from made-up runs."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from m2ac.cli import main
from m2ac.experiments.sweep import figures_of
from m2ac.report.figures import base_task, noise_of, paper_figures
from m2ac.report.rendering import svg
from m2ac.runs.collecting import collect
from tests.test_report_page import HOSTILE, record, write_run

NOISY = "HalfCheetah-Noisy2"
RATES = (("0.25", "w = 0.25"), ("0.5", "w = 0.5"))


def runs(env, algo, horizon, *scores):
    return [record(seed, score, env=env, algo=algo, horizon=horizon) for seed, score in enumerate(scores)]


def of_rate(rate, horizon, *scores):
    return [
        replace(run, config={"mask": {"rate": rate}}, settings=f"mask.rate={rate}")
        for run in runs(NOISY, "m2ac", horizon, *scores)
    ]


def tagged(figure, tag):
    """How many parts of the drawing the page's filters show and hide under that tag."""
    return svg(figure, prefix="x").count(f'data-of="{tag}"')


def test_a_name_tells_the_task_and_its_noise():
    assert [base_task(env) for env in ("HalfCheetah-v5", NOISY, "Walker2d")] == [
        "HalfCheetah",
        "HalfCheetah",
        "Walker2d",
    ]
    assert [noise_of(env) for env in ("HalfCheetah-v5", "Walker2d-Noisy0", NOISY)] == [0.0, 0.05, 0.2]


def test_the_motivating_figure_has_return_over_length_in_the_most_noise_and_over_noise_at_the_longest():
    found = [*runs(NOISY, "m2ac", 1, 1.0, 3.0), *runs(NOISY, "m2ac", 10, 5.0), *runs("HalfCheetah-v5", "m2ac", 10, 9.0)]
    (chart,) = paper_figures("motivating", found)
    left, right = chart.figure.axes
    assert left.lines[0].get_xydata().tolist() == [[1, 2], [10, 5]]
    assert right.lines[0].get_xydata().tolist() == [[0, 9], [0.2, 5]]
    bar = left.collections[0].get_segments()[0]
    np.testing.assert_allclose(bar[:, 1], [1, 3])  # 2 ± √((1² + 1²)/2)
    assert tagged(chart.figure, "|m2ac||") == 2 * 6  # line, two rows of caps, bars, points of two places


def test_training_curves_are_means_over_runs_at_the_steps_they_share():
    (chart,) = paper_figures(
        "benchmarks", [*runs("Swimmer", "mbpo", 4, 10.0, 30.0), *runs("Swimmer", "sac", None, 7.0)]
    )
    curve, level = chart.figure.axes[0].lines
    assert curve.get_xydata().tolist() == [[1000, 0], [2000, 20]]
    assert level.get_ydata() == [7, 7]


def test_a_bar_goes_with_its_line_and_its_points_when_it_is_filtered():
    (chart,) = paper_figures("noisy", [*runs(NOISY, "m2ac", 1, 1.0, 3.0), *runs(NOISY, "mbpo", 1, 1.0, 3.0)])
    assert tagged(chart.figure, f"{NOISY}|m2ac|1|usual") == tagged(chart.figure, f"{NOISY}|mbpo|1|usual") == 5


def test_an_ablation_has_a_bar_for_each_value_and_length_with_the_bootstrap_interval_of_its_mean():
    found = [*of_rate(0.25, 1, 0.0, 1.0), *of_rate(0.5, 1, 4.0)]
    (chart,) = paper_figures("ablation", found, setting="mask.rate", labels=RATES)
    (axis,) = chart.figure.axes
    assert [bar.get_height() for bar in axis.patches] == [0.5, 4]
    interval = axis.collections[0].get_segments()[0]
    np.testing.assert_allclose(interval[:, 1], [0, 1])  # of two runs it spans both
    assert "90 % bootstrap intervals" in chart.caption


@pytest.mark.parametrize("drawing", ["motivating", "benchmarks", "noisy"])
def test_a_run_that_diverged_is_left_out_and_said(drawing):
    (chart,) = paper_figures(drawing, runs(NOISY, "m2ac", 1, 1.0, math.nan, 3.0))
    assert chart.caption.endswith("Left out: 1 run whose return is not a number.")
    (chart,) = paper_figures(drawing, runs(NOISY, "m2ac", 1, 1.0, 3.0))
    assert "Left out" not in chart.caption


def test_there_is_no_figure_before_a_run_is_finished():
    unfinished = [record(0, state="unfinished"), record(1, math.nan)]
    assert paper_figures("noisy", unfinished) == []


def test_runs_of_two_scales_are_two_figures_though_they_have_the_same_names(tmp_path):
    for scale in ("smoke", "desk"):
        for seed in range(2):
            write_run(tmp_path / scale / f"run{seed}", seed=seed)
            config = {"env": NOISY, "algo": "m2ac", "horizon": 1, "seed": seed, "steps": 500}
            (tmp_path / scale / f"run{seed}" / "config.json").write_text(json.dumps(config))
        note = {"experiment": "noisy", "runs": ["run0", "run1"]}
        (tmp_path / scale / "noisy.experiment.json").write_text(json.dumps(note))

    def drawn(*paths):
        return [(chart.title, len(chart.figure.axes[0].collections[-1].get_offsets())) for chart in charts(paths)]

    def charts(paths):
        return figures_of(collect(paths, warn=pytest.fail), paths)

    title = "Noisy environments with very few interactions"
    assert drawn(tmp_path) == [(f"{title} (desk)", 2), (f"{title} (smoke)", 2)]
    assert drawn(tmp_path / "desk") == [(title, 2)]
    assert drawn(tmp_path / "desk" / "run0") == []


@pytest.mark.parametrize("name", ["motivating", "benchmarks", "noisy", "ablation-mode"])
def test_hostile_runs_that_a_note_names_are_drawn_all_the_same(tmp_path, name):
    for seed, env in enumerate((HOSTILE, "HalfCheetah-Noisy7", "\ud800")):
        write_run(tmp_path / f"run{seed}", seed=seed)
        config = {"env": env, "algo": "m2ac", "horizon": 4, "seed": seed, "steps": 500}
        (tmp_path / f"run{seed}" / "config.json").write_text(json.dumps(config))
    rows = f"{'9' * 90},0,7,1e308,200,1.0\n{'9' * 400},0,7,-1e308,200,1.0\n"
    (tmp_path / "run0" / "evals.csv").open("a").write(rows)
    note = {"experiment": name, "runs": ["run0", "run1", "run2"]}
    (tmp_path / f"{name}.experiment.json").write_text(json.dumps(note))
    assert main(["report", str(tmp_path)]) == 0
    assert 'id="figures"' in (tmp_path / "report.html").read_text()
