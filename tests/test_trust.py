"""Whether a model deserves its trust, in worlds in which that is known; and the command on a run that is real."""

import json
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_rollout import adding_ensemble, imagine
from tiny import arguments, tiny

from m2ac.cli import main
from m2ac.cli.parsing import parse
from m2ac.config import RunConfig
from m2ac.dynamics.ensemble import init_ensemble
from m2ac.model_config import MaskConfig, ModelConfig
from m2ac.report import trust_pictures
from m2ac.report.trust_page import trust_page
from m2ac.trust import calibration, places, ranking, suggest, telling
from m2ac.trust.findings import About, Played, find, quantiles
from m2ac.trust.measure import Fresh, Masked, Measured, kept_at, measure, starts_of
from m2ac.trust.resampling import RESAMPLES, Interval, interval, resampled
from m2ac.trust.suggest import Rule
from m2ac.types import Transition

KEY = jax.random.key(0)
EPISODES, STEPS = 6, 150
RNG = np.random.default_rng(0)


def walk(steps=STEPS, episodes=EPISODES, *, moves=lambda rng, n: rng.normal(size=(n, 3)), seed=0, terminated=()):
    """Episodes of three numbers that change as `moves` says, without reward; the last of `terminated` steps end."""
    rng = np.random.default_rng(seed)
    obs, next_obs = [], []
    for _ in range(episodes):
        path = np.concatenate([rng.normal(size=(1, 3)), moves(rng, steps)]).cumsum(axis=0).astype(np.float32)
        obs.append(path[:-1])
        next_obs.append(path[1:])
    count = steps * episodes
    rows = Transition(
        obs=np.concatenate(obs),
        action=np.zeros((count, 1), np.float32),
        reward=rng.normal(size=count).astype(np.float32),
        next_obs=np.concatenate(next_obs),
        terminated=np.isin(np.arange(count), terminated),
    )
    step = np.tile(np.arange(steps), episodes)
    return Fresh(rows, np.repeat(np.arange(episodes), steps), step, rows.obs)


def measured(**changes) -> Measured:
    """A model that is off by one spread everywhere, with scores that say nothing; to be changed."""
    fresh = changes.pop("fresh", walk())
    count = len(fresh.episode)
    masked = Masked(
        error=np.tile(np.linspace(0.1, 1.0, 10)[:, None], count // 5),
        score=np.zeros((10, count // 5)),
        alive=np.ones((10, count // 5), dtype=bool),
        keep=np.ones((10, count // 5), dtype=bool),
        episode=fresh.episode[::5],
    )
    defaults = Measured(
        fresh=fresh,
        error=np.ones(count),
        relative=np.ones(count),
        scores={name: np.zeros(count) for name in ("ovr", "ova", "nll", "gjs")},
        off=np.ones((count, 4)),
        deviations=RNG.normal(size=(count, 4)),
        reward_error=np.zeros(count),
        reward_spread=1.0,
        ending=None,
        open_loop=np.tile(np.linspace(0.1, 1.0, 10)[:, None], count),
        masked=masked,
    )
    return defaults._replace(**changes)


ABOUT = About("runs/x", "Walk", "m2ac", 100, 1, "rate 0.5", True, "ovr", True, (Played(1, -3.0, STEPS),) * EPISODES)


# What a score is worth as a mask


def test_a_score_that_is_the_error_gains_all_that_an_oracle_gains():
    error = RNG.exponential(size=900)
    found = ranking.reliability(error**3, error, np.repeat(np.arange(6), 150))
    assert found.share == pytest.approx(1.0)
    np.testing.assert_allclose(found.kept, found.oracle)
    assert found.interval == pytest.approx((1.0, 1.0))


def test_a_constant_score_gains_nothing():
    error = np.sort(RNG.exponential(size=900))  # in an order that a stable sort would take for knowledge
    found = ranking.reliability(np.zeros(900), error, np.repeat(np.arange(6), 150))
    assert found.share == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(found.kept, error.mean())


def test_a_score_that_is_the_wrong_way_round_gains_less_than_nothing():
    error = RNG.exponential(size=500)
    assert ranking.reliability(-error, error, np.zeros(500, dtype=int)).share < -0.5


def test_the_error_of_what_is_kept_by_hand():
    # Ten rows with errors 0 … 9, of which the score knows the order: at a half, 0 to 4 are kept.
    error = np.arange(10.0)
    kept = ranking.kept_error(ranking.places(error), error)
    at = {round(float(rate), 2): value for rate, value in zip(ranking.RATES, kept, strict=True)}
    assert (at[0.1], at[0.5], at[1.0]) == pytest.approx((0.0, 2.0, 4.5))
    # A row without a score is kept last; a row drawn twice counts twice.
    unknown = ranking.kept_error(ranking.places(np.array([np.nan, 1.0])), np.array([5.0, 1.0]))
    assert (unknown[9], unknown[-1]) == pytest.approx((1.0, 3.0))
    twice = ranking.kept_error(ranking.places(np.array([0.0, 1.0])), np.array([1.0, 4.0]), np.array([2.0, 1.0]))
    assert twice[-1] == pytest.approx(2.0)


# Calibration


def test_a_calibrated_gaussian_is_on_the_diagonal():
    deviations = RNG.normal(size=(4000, 3))
    found = calibration.calibration(deviations, np.repeat(np.arange(8), 500))
    np.testing.assert_allclose(found.obs, calibration.LEVELS, atol=0.02)
    np.testing.assert_allclose(found.inside[:, 0], calibration.LEVELS, atol=0.03)
    assert found.between is not None
    assert all(low <= obs <= high for obs, (low, high) in zip(found.obs, found.between, strict=True))
    assert np.abs(found.bias).max() < 0.02


def test_the_dimension_of_which_the_model_is_too_sure_is_named():
    deviations = RNG.normal(size=(900, 4)) * [1.0, 1.0, 4.0, 0.2]
    found = find(measured(deviations=deviations), ABOUT, Rule())
    assert telling.misjudged(found) == (["obs[1]"], ["obs[2]"])


def test_precision_recall_and_the_brier_score_by_hand():
    probability, real = np.array([0.9, 0.8, 0.1, 0.4]), np.array([True, False, False, True])
    found = calibration.termination_quality(probability, real)
    assert (found.real, found.predicted, found.hits) == (2, 2, 1)
    assert found.expected == pytest.approx(2.2)
    assert (found.precision, found.recall) == (0.5, 0.5)
    assert found.brier == pytest.approx((0.01 + 0.64 + 0.01 + 0.36) / 4)
    assert found.brier_of_share == pytest.approx(0.25)
    none = calibration.termination_quality(np.zeros(3), np.zeros(3, dtype=bool))
    assert np.isnan(none.precision)
    assert np.isnan(none.recall)
    assert "no episode terminated" in telling.termination_said(none)
    assert telling.termination_said(None) == "known for this task, not learned"


def test_the_reward_has_a_bias_and_an_error():
    found = calibration.reward_quality(np.array([1.0, -0.5, 1.0, 0.5]), 2.0, np.array([0, 0, 1, 1]))
    assert (found.absolute, found.in_spreads, found.bias) == (0.75, 0.375, 0.5)
    assert found.bias_between == (0.25, 0.75)


# Where the model is wrong


def test_a_model_that_is_wrong_in_one_dimension_is_told_so():
    # It leaves everything as it is; the world moves its second number alone.
    fresh = walk(moves=lambda rng, n: rng.normal(size=(n, 3)) * [0.0, 1.0, 0.0])
    fresh = fresh._replace(rows=fresh.rows._replace(reward=np.zeros_like(fresh.rows.reward)))
    found = measure(adding_ensemble([0], obs_dim=3), fresh, imagine(), score="ova", horizon=3, key=KEY)
    np.testing.assert_allclose(np.sqrt(np.mean(found.off**2, axis=1)), found.error, rtol=1e-3)  # the draws are the same
    assert places.shares_of_error(found)["obs[1]"] == pytest.approx(1.0)
    worst = places.worst(found, "ova")
    assert {place.dimension for place in worst} == {"obs[1]"}
    moved = np.abs(fresh.rows.next_obs - fresh.rows.obs)[:, 1]
    assert (worst[0].episode, worst[0].step) == (moved.argmax() // STEPS, moved.argmax() % STEPS)
    assert worst[0].error == pytest.approx(moved.max() / 2, rel=1e-3)  # one of four numbers: the root of a fourth


def test_the_error_is_told_by_what_explains_it():
    fresh = walk()
    error = np.where(fresh.observed[:, 2] > 0, 2.0, 1.0) + 0.01 * RNG.random(len(fresh.episode))
    found = places.relations(measured(fresh=fresh, error=error))
    assert found[0].of == "obs[2]"
    assert found[0].explains > 0.6
    by_time = places.relations(measured(fresh=fresh, error=fresh.step + RNG.random(len(fresh.step))))
    assert by_time[0].of == "step of the episode"
    assert by_time[0].explains > 0.95


# Rollouts


def test_the_model_alone_is_off_by_what_the_world_moves():
    # The world adds 1 to each number, the model 0: off by h after h steps, whatever is kept.
    fresh = walk(moves=lambda rng, n: np.ones((n, 3)), steps=30)
    found = measure(adding_ensemble([0, 0], obs_dim=3), fresh, imagine(), score="ovr", horizon=5, key=KEY)
    np.testing.assert_allclose(np.nanmedian(found.open_loop, axis=1), [1, 2, 3, 4, 5], rtol=1e-4)
    np.testing.assert_allclose(np.median(found.masked.error, axis=1), [1, 2, 3, 4, 5], rtol=1e-4)
    assert found.masked.error.shape == (5, EPISODES * (30 - 4))
    assert kept_at(found.masked, 0.25).sum(axis=1).tolist() == [EPISODES * 26 // 4] * 5
    kept = quantiles(found.masked.error, found.masked.keep)
    starts = EPISODES * 26
    assert kept.rows.tolist() == [starts * (5 - h) // 12 for h in range(5)]  # ⌊(H − h)/(2(H + 1)) · B⌋
    assert found.ending is None


def test_rollouts_start_where_the_episode_goes_on_for_long_enough():
    episode = np.array([0, 0, 0, 1, 2, 2])
    assert starts_of(episode, 1).tolist() == [0, 1, 2, 3, 4, 5]
    assert starts_of(episode, 2).tolist() == [0, 1, 4]
    assert starts_of(episode, 3).tolist() == [0]
    assert starts_of(episode, 7).tolist() == []
    assert starts_of(np.zeros(101, dtype=int), 1, most=3).tolist() == [0, 50, 100]


def test_rollouts_are_as_long_as_the_longest_episode_where_that_is_short():
    fresh = walk(steps=4, episodes=2)
    found = measure(adding_ensemble([0, 0], obs_dim=3), fresh, imagine(), score="ovr", horizon=20, key=KEY)
    assert found.masked.error.shape == (4, 2)
    assert np.isnan(found.open_loop[4:]).all()


def test_the_learned_end_is_judged_by_its_probability():
    config = ModelConfig(members=2, elites=1, hidden=2, layers=1, weight_decay=(0.0, 0.0))
    ensemble = init_ensemble(config, 3, 1, learns_termination=True, key=KEY)
    zeros = jax.tree.map(jnp.zeros_like, ensemble.params.members)
    members = tuple((first, last._replace(bias=last.bias.at[-1].set(np.log(3.0)))) for first, last in zeros)
    ensemble = ensemble._replace(params=ensemble.params._replace(members=members))
    fresh = walk(steps=10, episodes=2, terminated=(9,))
    found = measure(ensemble, fresh, imagine(termination_fn=None), score="ovr", horizon=2, key=KEY)
    np.testing.assert_allclose(found.ending, 0.75, rtol=1e-5)
    assert found.masked.alive[0].all()
    assert 0 < found.masked.alive[1].sum() < 12  # a quarter of 18 goes on, give or take
    quality = find(found, ABOUT, Rule()).termination
    assert (quality.real, quality.predicted, quality.precision, quality.recall) == (1, 20, 0.05, 1.0)


# The suggestion


@pytest.mark.parametrize(
    ("curve", "length"), [([0.1, 0.4, 0.5, 0.6, 0.3], 3), ([0.6, 0.1], 0), ([0.1, 0.2], 2), ([0.1, np.nan, 0.1], 1)]
)
def test_the_length_is_the_longest_that_stays_within_the_threshold(curve, length):
    assert suggest.longest_within(np.array(curve), 0.5) == length


def test_the_rate_is_the_largest_that_pays():
    kept = np.where(ranking.RATES <= 0.6, 0.5, 1.0)
    assert suggest.largest_that_pays(kept, 0.1) == 0.6
    assert suggest.largest_that_pays(np.ones(20), 0.1) == 1.0
    assert suggest.largest_that_pays(np.linspace(0.905, 1.0, 20), 0.1) == 1.0


def test_the_suggestion_on_curves_that_are_known():
    # Off by 0.1 h after h steps, and the fifth of the rows with the highest score is off by ten times as much.
    score = np.tile(np.arange(5.0), EPISODES * STEPS // 5)
    relative = np.where(score == 4, 10.0, 1.0)
    given = measured(scores={"ovr": score}, relative=relative, error=np.ones_like(score))
    found = suggest.suggest(given, "ovr", Rule())
    assert found.horizon == (5.0, Interval(5.0, 5.0))
    assert found.rate == (0.95, Interval(0.95, 0.95))  # 15 of 95 rows are off by 10: 13 % less than 20 of 100
    assert found.rate_absolute.value == 1.0
    assert suggest.suggest(given, "ovr", Rule(threshold=0.8, gain=0.5)).horizon.value == 8
    assert suggest.suggest(given, "ovr", Rule(gain=0.5)).rate.value == 0.8  # 1 is below 2.8/2, and (80 + 50)/85 is not
    most = suggest.suggest(given._replace(relative=np.where(score >= 2, 10.0, 1.0)), "ovr", Rule(gain=0.5))
    assert most.rate.value == 0.5  # (40 + 100)/50 is 2.8, below 6.4/2, and (40 + 150)/55 is not
    assert any("by the absolute error the rate would be 1" in doubt for doubt in most.doubts)


def test_the_length_is_that_of_the_rows_which_the_suggested_rate_keeps():
    # Half of the rollouts go wrong at once, and the score knows it. All rows together bear nothing.
    given = measured()
    bad = np.arange(len(given.masked.episode)) % 2 == 0
    error = np.where(bad, 9.0, given.masked.error)
    masked = given.masked._replace(error=error, score=np.tile(bad * 1.0, (10, 1)), keep=given.masked.keep & ~bad)
    knows = np.arange(900) % 2 == 0
    given = given._replace(masked=masked, scores={"ovr": knows * 1.0}, relative=np.where(knows, 9.0, 1.0))
    found = suggest.suggest(given, "ovr", Rule(gain=0.7))
    assert (found.rate.value, found.horizon.value) == (0.5, 5.0)  # 1 is below 0.3 · 5, and (50 + 45)/55 is not
    assert (found.horizon_of_paper.value, found.horizon_of_all.value) == (5.0, 0.0)


def test_few_data_and_a_length_without_an_end_are_doubted():
    fresh = walk(steps=40, episodes=2)
    given = measured(fresh=fresh)
    found = suggest.suggest(given, "ovr", Rule(threshold=5.0))
    doubts = " ".join(found.doubts)
    assert found.horizon.value == 0  # 16 rows are no median
    assert "too few data: 2 episodes with 80 transitions" in doubts
    assert "fewer than 20 rows" in doubts
    assert "not even one step" not in doubts  # nothing is known of it
    wrong = suggest.suggest(measured(), "ovr", Rule(threshold=1e-6))
    assert any("not even one step" in doubt for doubt in wrong.doubts)
    assert "only 78 % of" not in doubts  # 31 of 40 states are followed by ten steps
    short = suggest.suggest(measured(fresh=walk(steps=15, episodes=60)), "ovr", Rule())
    assert any("only 40 % of the states are followed by 10 real steps" in doubt for doubt in short.doubts)
    endless = suggest.suggest(measured(), "ovr", Rule(threshold=5.0))
    assert endless.horizon.value == endless.looked == 10
    assert any("a longer --horizon than 10 may show more" in doubt for doubt in endless.doubts)
    broken = measured(error=np.where(np.arange(900) == 7, np.inf, 1.0))
    assert any("1 predictions are not finite" in doubt for doubt in suggest.suggest(broken, "ovr", Rule()).doubts)


def test_a_gain_of_one_lucky_episode_is_not_suggested():
    # In one episode of six the score tells the error; in the others it is the wrong way round, by less.
    score = np.tile(np.arange(2.0), EPISODES * STEPS // 2)
    first = np.repeat(np.arange(EPISODES) == 0, STEPS)
    relative = np.where(first, np.where(score == 1, 30.0, 0.0), np.where(score == 1, 1.0, 2.0))
    found = suggest.suggest(measured(scores={"ovr": score}, relative=relative), "ovr", Rule())
    assert found.rate.value == 1.0
    assert found.rate.interval is not None
    assert found.rate.interval.low < 1


def test_episodes_are_resampled_as_a_whole():
    episode = np.array([0, 0, 1, 2, 2, 2])
    drawn = np.array(list(resampled(episode)))
    assert drawn.shape == (RESAMPLES, 6)
    assert (drawn[:, 0] == drawn[:, 1]).all()
    assert (drawn[:, [0, 2, 3]].sum(axis=1) == 3).all()
    assert list(resampled(np.zeros(5, dtype=int))) == []
    assert interval([]) is None


# The page and the numbers


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_a_handful_of_transitions_is_drawn_too(count):
    error, score = np.arange(count)[::-1] + 1.0, np.arange(count) + 1.0
    found = find(measured(), ABOUT, Rule())
    few = found.measured._replace(error=error, relative=error, scores=dict.fromkeys(found.measured.scores, score))
    figure = trust_pictures.clouds(found._replace(measured=few)).figure
    assert [len(axis.lines) for axis in figure.axes] == [1] * 8


def test_the_page_is_whole_whatever_was_measured():
    hostile = "</script><b>\u202e"
    one = measured(error=np.full(900, np.nan), relative=np.full(900, np.nan), ending=np.zeros(900))
    for given in (measured(), one, measured(fresh=walk(episodes=1, steps=900))):
        found = find(given, ABOUT._replace(env=hostile, run=hostile), Rule())
        text = trust_page(found)
        assert "default-src 'none'" in text
        assert hostile not in text
        assert len(re.findall("<section", text)) == 6
        json.dumps(telling.numbers(found), default=np.ndarray.tolist)
        assert all("\n" not in line for line in telling.lines(found))


RUNS_OWN = [
    MaskConfig(),
    MaskConfig(rate=0.8, penalty=0.01),
    MaskConfig(rule="threshold"),
    MaskConfig(rule="all", penalty=0.5),
]


@pytest.mark.parametrize("own", RUNS_OWN)
@pytest.mark.parametrize("rate", [1.0, 0.35])
def test_the_suggestion_can_be_typed_whatever_mask_the_run_itself_had(own, rate):
    found = find(measured(), ABOUT._replace(ranks=own.rule == "rank", score="gjs"), Rule())
    suggestion = found.suggestion._replace(rate=suggest.Estimate(rate, None))
    typed = telling.options(found._replace(suggestion=suggestion))
    mask = parse(RunConfig, typed.split(), "m2ac train", default=RunConfig(mask=own)).mask
    if rate == 1:  # nothing is worth dropping, and so there is nothing to pay for either
        assert mask.is_idle
    else:
        assert (mask.rule, mask.rate) == ("rank", 0.35)
        assert mask.uncertainty == (own.uncertainty if own.rule == "rank" else "gjs")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A tiny run of an environment that nobody knows, whose end the model has to learn."""
    path = tmp_path_factory.mktemp("trust") / "run"
    sys.path.insert(0, str(Path(__file__).parent))
    assert main(["train", "--env", "strange_envs:Plain-v0", "--out", str(path), *SHORT, *arguments(tiny("m2ac"))]) == 0
    return path


SHORT = ["--steps", "100", "--eval-episodes", "1", "--final-episodes", "1", "--no-tensorboard"]
ENV = ["--env", "strange_envs:Plain-v0"]


def test_a_run_is_examined_from_end_to_end(run, tmp_path, capsys):
    capsys.readouterr()
    assert main(["trust", str(run), *ENV, "--episodes", "3", "--horizon", "4", "--json", str(tmp_path / "n.json")]) == 0
    said = capsys.readouterr().out
    assert "strange_envs:Plain-v0, m2ac at step 100: 3 fresh episodes with sampled actions" in said
    assert "too few data: 3 episodes" in said
    assert "learned; " in said
    told = json.loads((tmp_path / "n.json").read_text())
    assert told["transitions"] == sum(episode["length"] for episode in told["episodes"])
    assert len(told["open_loop"]["median"]) == 4
    assert told["termination"]["real"] <= 3
    page = (run / "trust.html").read_text()
    assert page.startswith("<!doctype html>")
    assert f"--horizon {max(1, int(told['suggestion']['horizon']['value']))}" in said
    assert not (run / "trust.json").exists()


def test_the_same_seed_says_the_same_and_another_place_can_be_given(run, tmp_path, capsys):
    told = []
    for name, options in (("a", ()), ("b", ()), ("c", ("--mean",))):
        args = ["trust", str(run), *ENV, "--episodes", "2", "--horizon", "2", "--out", str(tmp_path / name), *options]
        assert main(args) == 0
        told.append(json.loads((tmp_path / name / "trust.json").read_text()))
    assert told[0] == told[1]
    assert (told[0]["actions"], told[2]["actions"]) == ("sampled", "mean")
    assert told[0]["episodes"] != told[2]["episodes"]


def test_what_cannot_be_examined_is_refused_in_one_line(run, tmp_path, capsys):
    sac = tmp_path / "sac"
    assert main(["train", "--algo", "sac", "--out", str(sac), *SHORT, *arguments(tiny("sac"))]) == 0
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text((run / "config.json").read_text())
    capsys.readouterr()
    for args, words in (
        ([str(sac)], ["algo=sac", "has no model", "m2ac or mbpo"]),
        ([str(bare), *ENV], ["has no checkpoint yet", "train it for longer"]),
        ([str(run), "--env", "Pendulum-v1"], ["give --env strange_envs:Plain-v0"]),
        ([str(run), *ENV, "--episodes", "0"], ["episodes must be at least 1"]),
        ([str(run), *ENV, "--gain", "1"], ["gain must be in (0, 1)"]),
        ([str(tmp_path / "nowhere")], ["nowhere"]),
    ):
        assert main(["trust", *args]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert all(word in err for word in words), err


def test_a_model_that_expects_other_ends_than_come_is_told_of_and_the_numbers_say_so_too():
    few = calibration.TerminationQuality(10, 3.0, 3, 3, 1.0, 0.3, 0.01, 0.01)
    found = find(measured(), ABOUT, Rule())._replace(termination=few)
    said = [doubt for doubt in telling.doubts_of(found) if "expects 3 ends where 10 came" in doubt]
    assert len(said) == 1
    phantoms = found._replace(termination=few._replace(real=2, expected=111.0))
    assert any("expects 1.1e+02 ends where 2 came" in doubt for doubt in telling.doubts_of(phantoms))
    assert telling.numbers(found)["suggestion"]["doubts"] == telling.doubts_of(found)
    for enough in (few._replace(expected=6.0), few._replace(real=4, expected=0.0)):
        assert not any("ends where" in doubt for doubt in telling.doubts_of(found._replace(termination=enough)))


def test_an_error_that_is_the_same_everywhere_goes_with_nothing():
    assert places.relation("obs[0]", RNG.normal(size=100), np.ones(100)).explains == 0.0
