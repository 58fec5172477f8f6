"""The paper's figures as data: which runs, what is typed for them, and what they cost."""

import pytest

from m2ac.cli import main
from m2ac.cli.parsing import parse
from m2ac.cli.reproducing import numbers
from m2ac.config import RunConfig
from m2ac.experiments import cost
from m2ac.experiments.figures import EXPERIMENTS, find_experiment
from m2ac.experiments.trial import DESK, PAPER, SCALES, SMOKE, Trial
from m2ac.resolving import resolve
from m2ac.settings import ConfigError


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("motivating", (4 + 3) * 2 * 10),  # four lengths in Noisy2, three more tasks at the longest
        ("benchmarks", 4 * (4 * 2 + 3) * 7),
        ("noisy", 2 * 4 * 4 * 2 * 10),
        ("ablation-rate", 6 * 4 * 10),
        ("ablation-penalty", 3 * 4 * 10),
        ("ablation-mode", 2 * 4 * 10),
        ("ablation-uncertainty", 3 * 4 * 10),
    ],
)
def test_a_figure_at_the_papers_scale_has_every_run_once(name, count):
    trials = find_experiment(name).trials(PAPER)
    assert len(trials) == count
    assert len({trial.name for trial in trials}) == count
    assert [trial.seed for trial in trials] == sorted(trial.seed for trial in trials)


def test_the_benchmarks_have_the_papers_budgets():
    steps = {trial.env: trial.steps for trial in find_experiment("benchmarks").trials(PAPER)}
    assert steps == {"HalfCheetah-v5": 200_000, "Walker2d": 200_000, "Swimmer": 200_000, "Humanoid": 300_000}
    steps = {trial.env: trial.steps for trial in find_experiment("noisy").trials(PAPER)}
    assert {steps[env] for env in steps if env.startswith("HalfCheetah")} == {25_000}
    assert {steps[env] for env in steps if env.startswith("Walker2d")} == {50_000}


@pytest.mark.parametrize("scale", [DESK, PAPER, SMOKE], ids=lambda scale: scale.name)
def test_figures_share_the_runs_they_have_in_common(scale):
    noisy = {trial.name: trial for trial in find_experiment("noisy").trials(scale)}
    for name in ("motivating", "ablation-uncertainty", "ablation-rate", "ablation-mode", "ablation-penalty"):
        for trial in find_experiment(name).trials(scale):
            if not trial.settings:
                assert noisy[trial.name] == trial


def test_the_papers_own_choice_in_an_ablation_is_what_m2ac_does_unasked():
    plain = resolve(RunConfig(algo="m2ac", horizon=4), {}, action_dim=1, steps=100)
    for experiment in EXPERIMENTS.values():
        if experiment.setting is None:
            continue
        trials = experiment.trials(PAPER)
        studied = {dict(trial.settings).get(experiment.setting) for trial in trials}
        (unasked,) = {value for value, _ in experiment.labels} - studied
        value = getattr(plain.mask, experiment.setting.partition(".")[2])
        assert str(value) == unasked


def test_fewer_seeds_are_fewer_runs_of_the_same_kind():
    for scale in SCALES.values():
        for experiment in EXPERIMENTS.values():
            one = experiment.trials(scale._replace(seeds=1))
            assert one == [trial for trial in experiment.trials(scale) if trial.seed == 0]


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_what_is_typed_for_every_kind_of_run_is_understood(scale):
    kinds = {cost.kind(trial): trial for experiment in EXPERIMENTS.values() for trial in experiment.trials(scale)}
    by_settings = {(trial.algo, trial.settings, trial.scale): trial for trial in kinds.values()}
    for trial in by_settings.values():
        config = parse(RunConfig, trial.arguments[1:], "m2ac train")
        assert (config.env, config.algo, config.horizon) == (trial.env, trial.algo, trial.horizon)
        for name, value in trial.settings:
            group, _, field = name.partition(".")
            assert str(getattr(getattr(config, group), field)) in (
                value,
                str(float(value)) if value[0].isdigit() else "",
            )


def test_a_name_is_fit_for_a_file_system():
    trial = Trial("my.envs:Robot-v0", "m2ac", 3, 1, 100, (("mask.rate", "0.25"),))
    assert trial.name == "my.envs_Robot-v0-m2ac-h3-s1-mask.rate-0.25"


def test_runs_can_be_picked_by_number():
    assert numbers("3", 9) == [3]
    assert numbers("1,4,7-9,8", 9) == [1, 4, 7, 8, 9]
    for wrong in ("0", "10", "4-2", "a", "", "1-"):
        with pytest.raises(ConfigError, match=r"only must be numbers in \[1, 9\]"):
            numbers(wrong, 9)


def test_workers_take_the_next_run_when_they_are_free():
    assert cost.wall_time([3.0, 1.0, 1.0, 1.0], 2) == 3.0
    assert cost.wall_time([1.0, 1.0, 3.0], 2) == 4.0
    assert cost.wall_time([], 2) == 0.0


def test_a_run_costs_what_one_of_its_kind_took_in_proportion_to_its_steps():
    short, long = (Trial("HalfCheetah-v5", "m2ac", 1, 0, steps) for steps in (10_000, 20_000))
    measured = {cost.kind(short): cost.Measured(600.0, 10_000)}
    assert cost.seconds(long, measured=measured) == 1200.0
    assert cost.seconds(long) != 1200.0


def test_the_estimate_is_near_what_runs_took():
    # Seconds of the runs in results/learning.json on one core with the other busy.
    for trial, took in (
        (Trial("HalfCheetah-v5", "m2ac", 10, 0, 25_000), 3486),
        (Trial("HalfCheetah-v5", "mbpo", 1, 0, 25_000), 3772),
        (Trial("HalfCheetah-v5", "sac", None, 0, 50_000), 759),
        (Trial("HalfCheetah-v5", "ppo", None, 0, 215_000), 118),
    ):
        assert took / 2 < cost.seconds(trial) < took * 2


def test_a_faster_core_needs_less_time_for_all_but_the_start():
    trial = Trial("HalfCheetah-v5", "m2ac", 1, 0, 25_000)
    assert cost.seconds(trial, speed=2.0) - cost.START == pytest.approx((cost.seconds(trial) - cost.START) / 2)


def test_a_dry_run_tells_every_variant_and_the_sum(capsys, tmp_path):
    assert (
        main(["reproduce", "benchmarks", "--scale", "paper", "--dry-run", "--out", str(tmp_path), "--workers", "8"])
        == 0
    )
    told = capsys.readouterr().out
    rows = [line for line in told.splitlines() if line.startswith(("HalfCheetah", "Walker2d", "Swimmer", "Humanoid"))]
    assert len(rows) == 4 * 11
    assert "308 runs, 0 of them finished" in told
    assert "core hours" in told
    assert "wall time with 8 workers" in told
    assert not list(tmp_path.iterdir())


def test_the_commands_of_a_figure_can_be_had_for_another_engine(capsys):
    assert main(["reproduce", "ablation-mode", "--scale", "desk", "--commands", "--only", "2"]) == 0
    assert capsys.readouterr().out == (
        "m2ac train --env HalfCheetah-Noisy2 --algo m2ac --horizon 1 --seed 0 --steps 25000 --mask.stop hardstop "
        "--out runs/desk/HalfCheetah-Noisy2-m2ac-h1-s0-mask.stop-hardstop\n"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["noise"], 'there is no experiment "noise". Perhaps you meant "noisy"?'),
        (["noisy", "--workers", "0"], "workers must be in [1, 10000], got 0"),
        (["noisy", "--out", "s3://bucket/runs"], "out must be a directory without --ray, got 's3://bucket/runs'"),
        (["noisy", "--retries", "-1"], "retries must be in [0, 1000], got -1"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(capsys, args, message):
    assert main(["reproduce", *args]) == 2
    assert message in capsys.readouterr().err


def test_without_a_name_the_figures_are_listed(capsys):
    assert main(["reproduce"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in (*EXPERIMENTS, *SCALES))
