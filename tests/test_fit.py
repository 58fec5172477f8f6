from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import check_gradient

from m2ac.dynamics import ensemble as ensembles
from m2ac.dynamics import fit as fits
from m2ac.dynamics import split as splits
from m2ac.dynamics.ensemble import init_ensemble, member_outputs, predict, predict_drawn, soft_clamp
from m2ac.dynamics.fit import ensemble_loss, examples_of, finish_fit, fit_slice, init_dynamics, start_fit
from m2ac.dynamics.split import UNCHANGING
from m2ac.model_config import ModelConfig
from m2ac.replay import add_real, empty_real, take_real
from m2ac.types import Transition

KEY = jax.random.key(1)
SMALL = ModelConfig(members=3, elites=2, hidden=16, layers=2, weight_decay=(1e-5, 2e-5, 3e-5), batch_size=32)


def experience(count, *, seed=0, obs_dim=2, dtype=np.float32) -> Transition:
    """A world with a known law: s' = s + 0.1 (a, s₀ a), r = s₀ − a, and an end where s'₀ > 1."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(count, obs_dim)) * [1.0, 30.0] + [0.0, 500.0]
    action = rng.uniform(-1, 1, (count, 1))
    next_obs = obs + 0.1 * np.concatenate([action, obs[:, :1] * action], axis=1)
    return Transition(
        *(jnp.array(x, dtype) for x in (obs, action, obs[:, 0] - action[:, 0], next_obs)),
        jnp.array(next_obs[:, 0] > 1.0),
    )


def real_with(count, capacity=600):
    return add_real(empty_real(capacity, 2, 1, slots=2 * capacity), experience(count), jnp.int32(count))


def fresh(config=SMALL, *, learns_termination=False):
    return init_dynamics(config, 2, 1, learns_termination=learns_termination, key=KEY)


def fit_ensemble(dynamics, real, config, *, key):
    """Line 5 of Algorithm 1 in one slice."""
    fit = start_fit(dynamics, real, config, key=key)
    return finish_fit(fit_slice(fit, real, jnp.int32(2**31 - 1), config), real, config)


def test_initial_weights_are_cut_at_two_standard_deviations_of_half_the_inverse_root_of_the_inputs():
    ensemble = init_ensemble(ModelConfig(hidden=200), 17, 6, learns_termination=False, key=KEY)
    weight = np.asarray(ensemble.params.members[0][1].weight)
    assert np.abs(weight).max() <= 2 / (2 * np.sqrt(200)) + 1e-6
    np.testing.assert_allclose(weight.std(), 0.8796 / (2 * np.sqrt(200)), rtol=0.02)  # 0.8796: of N(0,1) cut at ±2
    assert [layer.weight.shape for layer in ensemble.params.members[0]] == [(23, 200), *[(200, 200)] * 3, (200, 36)]


def test_members_start_different():
    ensemble = init_ensemble(SMALL, 2, 1, learns_termination=False, key=KEY)
    prediction, logits = predict(ensemble, jnp.ones((1, 2)), jnp.ones((1, 1)))
    assert np.unique(np.asarray(prediction.mean[:, 0, 0])).size == 3
    assert logits is None


def test_log_variances_stay_between_their_bounds():
    x = jnp.array([-1e3, -20.0, -3.0, 0.0, 7.0, 1e3])
    clamped = soft_clamp(x, jnp.array(-10.0), jnp.array(0.5))
    assert float(clamped.min()) >= -10.0
    assert float(clamped.max()) <= 0.5 + 1e-4
    np.testing.assert_allclose(clamped[2], -3.0, atol=0.05)


def reference_loss(params, inputs, rows, weight, decay, unit):
    """The same loss in plain NumPy, member by member."""
    total = 0.01 * np.sum(np.asarray(params.max_log_variance) - np.asarray(params.min_log_variance))
    for k, output in enumerate(member_outputs(params, inputs)):
        target = np.concatenate([np.asarray(rows[k].reward)[:, None], rows[k].next_obs - rows[k].obs], axis=1)
        target = (target - unit[0]) / unit[1]
        mean, log_variance = np.asarray(output.mean), np.asarray(output.log_variance)
        row = np.mean((mean - target) ** 2 / np.exp(log_variance) + log_variance, axis=1)
        if output.termination is not None:
            p = 1 / (1 + np.exp(-np.asarray(output.termination)))
            row = row - np.where(rows[k].terminated, np.log(p), np.log(1 - p))
        total += np.sum(row * np.asarray(weight)) / np.sum(np.asarray(weight))
        for d, layer in zip(decay, params.members[k], strict=True):
            total += d / 2 * np.sum(np.asarray(layer.weight) ** 2)
    return total


@pytest.mark.parametrize("learns_termination", [False, True])
def test_the_loss_and_its_gradient_against_numpy_and_finite_differences(learns_termination):
    with jax.enable_x64(True):
        config = ModelConfig(members=2, elites=1, hidden=3, layers=1, weight_decay=(0.3, 0.7))
        ensemble = init_ensemble(config, 2, 1, learns_termination=learns_termination, key=KEY)
        params = jax.tree.map(lambda x: jnp.array(x, jnp.float64), ensemble.params)
        rows = tuple(experience(5, seed=k, dtype=np.float64) for k in range(2))
        unit = np.array([0.3, 0.0, -0.1]), np.array([2.0, 0.05, 7.0])
        scaled = ensemble._replace(
            input_mean=jnp.array([0.0, 500.0, 0.0]),
            input_std=jnp.array([1.0, 30.0, 0.5]),
            target_mean=jnp.array(unit[0]),
            target_std=jnp.array(unit[1]),
        )
        examples = tuple(examples_of(scaled, r) for r in rows)
        weight = jnp.array([1.0, 1.0, 1.0, 0.0, 0.0])

        def loss(p):
            return ensemble_loss(p, examples, weight, config.weight_decay)[0]

        inputs = [example.inputs for example in examples]
        expected = reference_loss(params, inputs, rows, weight, (0.3, 0.7), unit)
        np.testing.assert_allclose(loss(params), expected, rtol=1e-12)
        check_gradient(loss, params)


def test_rows_of_weight_zero_do_not_matter():
    dynamics = fresh()
    rows = tuple(experience(4, seed=k) for k in range(3))
    changed = tuple(r._replace(reward=r.reward.at[3].set(1e6)) for r in rows)
    weight = jnp.array([1.0, 1.0, 1.0, 0.0])

    def loss(r):
        examples = tuple(examples_of(dynamics.ensemble, x) for x in r)
        return ensemble_loss(dynamics.ensemble.params, examples, weight, SMALL.weight_decay)[0]

    np.testing.assert_array_equal(loss(rows), loss(changed))


def test_the_split_holds_out_a_fifth_and_bootstraps_the_rest():
    real = real_with(100)
    split = start_fit(fresh(), real, SMALL, key=KEY).split
    assert (int(split.holdout), int(split.train)) == (20, 80)
    order = np.asarray(split.order)
    assert sorted(order[:100]) == list(range(100))
    assert sorted(order) == list(range(600))
    used = np.asarray(split.bootstrap)
    assert used.shape == (3, 600)
    assert (used.min(), used.max()) == (0, 79)
    assert len({tuple(row) for row in used}) == 3
    assert 40 < len(set(used[0, :80])) < 62  # of 80 drawn with replacement some 63 % are different


def test_the_holdout_is_limited():
    config = ModelConfig(**{**SMALL.__dict__, "holdout_max": 7})
    assert int(start_fit(fresh(), real_with(100), config, key=KEY).split.holdout) == 7


def test_inputs_are_standardised_with_the_train_part_alone():
    real = real_with(100)
    fit = start_fit(fresh(), real, SMALL, key=KEY)
    train = take_real(real, fit.split.order[20:100])
    inputs = np.concatenate([train.obs, train.action], axis=1)
    np.testing.assert_allclose(fit.ensemble.input_mean, inputs.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fit.ensemble.input_std, inputs.std(axis=0), rtol=1e-4)


SCALED = replace(SMALL, scale_targets=True)


def test_targets_are_standardised_with_the_train_part_alone_where_that_is_asked_for():
    real = real_with(100)
    fit = start_fit(fresh(), real, SCALED, key=KEY)
    train = take_real(real, fit.split.order[20:100])
    targets = np.concatenate([train.reward[:, None], train.next_obs - train.obs], axis=1)
    np.testing.assert_allclose(fit.ensemble.target_mean, targets.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(fit.ensemble.target_std, targets.std(axis=0), rtol=1e-4)
    plain = start_fit(fresh(), real, SMALL, key=KEY).ensemble
    np.testing.assert_array_equal(plain.target_mean, np.zeros(3))
    np.testing.assert_array_equal(plain.target_std, np.ones(3))


def test_predictions_are_in_the_units_of_the_targets():
    ensemble = fresh().ensemble
    shift, unit = np.array([5.0, -1.0, 0.0]), np.array([100.0, 1e-3, 2.0])
    scaled = ensemble._replace(target_mean=jnp.array(shift, jnp.float32), target_std=jnp.array(unit, jnp.float32))
    rows, member = experience(20), jnp.arange(20, dtype=jnp.int32) % 3
    plain, _ = predict(ensemble, rows.obs, rows.action)
    told, _ = predict(scaled, rows.obs, rows.action)
    drawn, _ = predict_drawn(scaled, rows.obs, rows.action, member)
    np.testing.assert_allclose(told.mean, np.asarray(plain.mean) * unit + shift, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(told.variance, np.asarray(plain.variance) * unit**2, rtol=1e-5)
    for one, all_members in zip(drawn, told, strict=True):
        np.testing.assert_allclose(one, all_members[member, jnp.arange(20)], rtol=1e-4, atol=1e-6)


def _fitted_to(rows, config):
    real = add_real(empty_real(600, 2, 1, slots=1200), rows, jnp.int32(rows.reward.shape[0]))
    return fit_ensemble(fresh(config), real, config, key=KEY)[0].ensemble


def test_with_scaled_targets_the_unit_of_the_reward_changes_nothing_but_the_reward():
    rows = experience(200)
    plain = _fitted_to(rows, SCALED)
    large = _fitted_to(rows._replace(reward=rows.reward * 1024), SCALED)  # a power of two, so that nothing is rounded
    jax.tree.map(np.testing.assert_array_equal, plain.params, large.params)
    np.testing.assert_array_equal(large.target_std, plain.target_std * np.array([1024.0, 1.0, 1.0]))


def test_scaled_targets_show_changes_below_the_smallest_deviation_that_a_model_begins_with():
    rows = experience(600)
    small = rows._replace(next_obs=rows.obs + 1e-3 * (rows.next_obs - rows.obs))  # 1e-4 per step; exp(-10 / 2) = 7e-3
    small = small._replace(obs=small.obs.at[:, 1].add(-500.0), next_obs=small.next_obs.at[:, 1].add(-500.0))
    change = np.asarray(small.next_obs - small.obs)[:, 0]

    def doubt(config):  # the deviation that a member expects, in deviations of the change itself
        prediction, _ = predict(_fitted_to(small, config), small.obs, small.action)
        return float(np.median(np.sqrt(prediction.variance[..., 1]))) / change.std()

    assert doubt(SMALL) > 10
    assert doubt(SCALED) < 0.3


@pytest.mark.parametrize("constant", [0.0, 3.1, -1e4])
def test_a_constant_reward_is_predicted(constant):
    rows = experience(300)
    ensemble = _fitted_to(rows._replace(reward=jnp.full(300, constant)), SCALED)
    assert float(ensemble.target_std[0]) == pytest.approx(UNCHANGING)
    prediction, _ = predict(ensemble, rows.obs, rows.action)
    np.testing.assert_allclose(prediction.mean[..., 0], constant, rtol=1e-4, atol=0.2)


def test_what_never_changes_is_expected_to_stay_as_surely_as_without_scaled_targets():
    rows = experience(300)
    goal = 0.1 * np.repeat(np.random.default_rng(0).normal(size=6), 50)  # another in each of six episodes
    rows = rows._replace(obs=rows.obs.at[:, 1].set(goal), next_obs=rows.next_obs.at[:, 1].set(goal))

    def doubt(config):
        prediction, _ = predict(_fitted_to(rows, config), rows.obs, rows.action)
        return float(np.median(np.sqrt(prediction.variance[..., 2])))

    assert doubt(SCALED) < doubt(SMALL) < 0.01


def test_changes_that_are_rounding_errors_are_none():
    rows = experience(300)
    noise = np.random.default_rng(0).normal(0.0, 1e-5, 300)
    rows = rows._replace(next_obs=rows.next_obs.at[:, 1].set(rows.obs[:, 1] + noise))  # 500 ± 30: 3e-5 is the least
    assert 0 < np.std(np.asarray(rows.next_obs - rows.obs)[:, 1]) < 3e-5
    fit = start_fit(fresh(), add_real(empty_real(300, 2, 1, slots=600), rows, jnp.int32(300)), SCALED, key=KEY)
    assert float(fit.ensemble.target_std[2]) == pytest.approx(UNCHANGING * float(fit.ensemble.input_std[1]))
    assert float(fit.ensemble.target_std[1]) < 0.1


@pytest.mark.parametrize("constant", [0.0, 3.1, -1e4])
def test_a_constant_input_is_left_unscaled(constant):
    rows = experience(50)
    rows = rows._replace(obs=rows.obs.at[:, 1].set(constant))
    real = add_real(empty_real(60, 2, 1), rows, jnp.int32(50))
    std = start_fit(fresh(), real, SMALL, key=KEY).ensemble.input_std
    assert float(std[1]) == 1.0


def test_every_epoch_visits_each_position_of_the_bootstrap_once_in_a_new_order():
    fit = start_fit(fresh(), real_with(100), SMALL, key=KEY)
    first = np.asarray(fit.shuffle)[:80]
    fit = fit_slice(fit, real_with(100), jnp.int32(3), SMALL)  # 80 rows in batches of 32: 3 batches an epoch
    second = np.asarray(fit.shuffle)[:80]
    assert int(fit.epoch) == 1
    assert sorted(first) == sorted(second) == list(range(80))
    assert (first != second).mean() > 0.9


def test_a_row_is_left_to_learn_from_whatever_share_is_held_out():
    split = splits.split_rows(real_with(200), ModelConfig(holdout_share=0.99999999), key=KEY)
    assert (int(split.holdout), int(split.train)) == (199, 1)


@pytest.mark.parametrize("count", [1, 300, 625, 626, 2500, 2501, 9999, 10_000])
def test_an_order_is_that_of_sorting_the_whole_buffer(count):
    capacity, place = 10_000, np.arange(10_000)
    assert capacity > 2 * splits.SORTED_AT_LEAST, "all of it would be sorted in any case"
    rank = np.where(place < count, np.asarray(jax.random.uniform(KEY, (capacity,))), 2.0)
    shuffled = jax.jit(splits.shuffled, static_argnums=0)(capacity, jnp.int32(count), key=KEY)
    np.testing.assert_array_equal(shuffled, np.argsort(rank, kind="stable"))


def test_a_fit_learns_the_law_of_its_world():
    dynamics, report = fit_ensemble(fresh(), real_with(500), SMALL, key=KEY)
    untrained = fresh()
    new = experience(200, seed=9)
    target = np.concatenate([np.asarray(new.reward)[:, None], new.next_obs - new.obs], axis=1)

    def error(ensemble):
        prediction, _ = predict(ensemble, new.obs, new.action)
        return np.mean((np.asarray(prediction.mean) - target) ** 2)

    assert error(dynamics.ensemble) < 0.1 * error(untrained.ensemble)
    assert np.all(np.asarray(report.holdout_mse) < 0.05)
    assert int(report.epochs) > 6


def test_a_fit_in_slices_equals_a_fit_in_one():
    real, config = real_with(200), ModelConfig(**{**SMALL.__dict__, "max_epochs": 7})
    whole, _ = fit_ensemble(fresh(), real, config, key=KEY)
    fit = start_fit(fresh(), real, config, key=KEY)
    slices = 0
    while not fit.done:
        fit = fit_slice(fit, real, jnp.int32(4), config)
        slices += 1
    sliced, _ = finish_fit(fit, real, config)
    assert slices == 9  # 7 epochs of 5 batches
    jax.tree.map(np.testing.assert_array_equal, whole, sliced)


@pytest.mark.parametrize(
    ("history", "best_epochs", "epochs"),
    [
        # One member; each number is its holdout loss after an epoch. It stops after patience + 1 epochs without a gain.
        ([5.0, 4.0, 3.0, 3.5, 3.2, 3.1], 3, 6),
        ([-1.0, -0.5, -0.2, -0.1], 1, 4),  # worse, though (best − loss)/best is positive: MBPO's rule would take it
        ([-1.0, -1.005, -1.009, -1.0099], 1, 4),  # better, but by less than 1 %
        ([-1.0, -1.02, -1.05, float("nan"), float("nan"), float("nan")], 3, 6),
    ],
)
def test_early_stopping_keeps_the_best_and_counts_its_patience(history, best_epochs, epochs):
    assert stopped(history, "size") == (epochs, best_epochs)


def stopped(history, improvement_of):
    """After how many epochs a fit with these holdout losses ends, and which of them it keeps."""
    one = {"members": 1, "elites": 1, "hidden": 2, "layers": 1, "weight_decay": (0.0, 0.0), "batch_size": 64}
    config = ModelConfig(**one, patience=2, patience_batches=0, improvement_of=improvement_of)
    fit = start_fit(fresh(config), real_with(50), config, key=KEY)
    losses = np.float32(history)
    for loss in losses:
        fit = fits.judged(fit, jnp.array([loss]), config)
        if fit.done:
            break
    return int(fit.epoch), int(np.flatnonzero(losses == fit.best_loss[0])[0]) + 1


@pytest.mark.parametrize(
    ("history", "best_epochs", "epochs"),
    [
        ([5.0, 4.0, 3.0, 3.5, 3.2, 3.1], 3, 6),  # above 0 the rules are the same
        ([-1.0, -0.5, -0.2, -0.1, -0.15, -0.3, -0.4], 4, 7),  # below it worse counts as better, and better as worse
        ([-1.0, -0.995, -0.99, -0.991], 1, 4),  # worse, but by less than 1 %
    ],
)
def test_mbpos_rule_takes_worse_for_better_below_zero(history, best_epochs, epochs):
    assert stopped(history, "value") == (epochs, best_epochs)


@pytest.mark.parametrize(("patience_batches", "epochs"), [(0, 4), (3, 4), (4, 5), (10, 11)])
def test_patience_lasts_a_number_of_batches_where_an_epoch_has_few(patience_batches, epochs):
    """An epoch is one batch here, and the loss is at its best after the first."""
    config = ModelConfig(**{**SMALL.__dict__, "batch_size": 64, "patience": 2, "patience_batches": patience_batches})
    fit = start_fit(fresh(), real_with(50), config, key=KEY)
    while not fit.done:
        fit = fits.judged(fit, jnp.ones(3), config)
    assert int(fit.epoch) == epochs


def test_each_member_returns_to_its_own_best_and_the_elites_are_the_best_of_them():
    config = ModelConfig(**{**SMALL.__dict__, "patience": 1})
    fit = start_fit(fresh(), real_with(100), config, key=KEY)

    def at(value):  # members whose weights all carry the number of the epoch
        return jax.tree.map(lambda x: jnp.full_like(x, value), fit.ensemble.params.members)

    for epoch, losses in enumerate([[3.0, 1.0, 9.0], [2.0, 5.0, 8.0], [4.0, 4.0, 7.0]]):
        fit = fit._replace(ensemble=fit.ensemble._replace(params=fit.ensemble.params._replace(members=at(epoch))))
        fit = fits.judged(fit, jnp.array(losses), config)
    assert [float(member[0].bias[0]) for member in fit.best] == [1.0, 0.0, 2.0]
    np.testing.assert_array_equal(fit.best_loss, [2.0, 1.0, 7.0])


def test_the_elites_have_the_lowest_holdout_loss():
    dynamics, report = fit_ensemble(fresh(), real_with(300), SMALL, key=KEY)
    assert list(np.asarray(dynamics.ensemble.elites)) == list(np.argsort(report.holdout_nll)[:2])
    by_error = ModelConfig(**{**SMALL.__dict__, "stop_on": "mse"})
    dynamics, report = fit_ensemble(fresh(by_error), real_with(300), by_error, key=KEY)
    assert list(np.asarray(dynamics.ensemble.elites)) == list(np.argsort(report.holdout_mse)[:2])


def test_a_fit_goes_on_from_the_last_one():
    real = real_with(200)
    config = ModelConfig(**{**SMALL.__dict__, "max_epochs": 3})
    once, first = fit_ensemble(fresh(), real, config, key=KEY)
    _, second = fit_ensemble(once, real, config, key=KEY)
    assert float(second.train_loss) < float(first.train_loss)
    assert int(optax.tree_utils.tree_get(once.optimiser, "count")) == 15


def test_more_rows_do_not_compile_again(compilations):
    config = ModelConfig(**{**SMALL.__dict__, "max_epochs": 2})
    more = [real_with(count) for count in (51, 120, 600)]
    dynamics = fresh()
    fit_ensemble(dynamics, real_with(50), config, key=KEY)
    assert compilations
    compilations.clear()
    for real in more:
        fit_ensemble(dynamics, real, config, key=KEY)
    assert not compilations


def test_termination_is_learned_where_nobody_knows_it():
    dynamics, _ = fit_ensemble(fresh(learns_termination=True), real_with(600), SMALL, key=KEY)
    new = experience(300, seed=5)
    _, logits = predict(dynamics.ensemble, new.obs, new.action)
    agreement = np.mean((np.asarray(logits) > 0) == np.asarray(new.terminated))
    assert np.asarray(new.terminated).mean() > 0.1
    assert agreement > 0.93


@pytest.mark.parametrize("learns_termination", [False, True])
def test_members_in_one_batched_product_say_the_same(monkeypatch, learns_termination):
    ensemble = fresh(learns_termination=learns_termination).ensemble
    rows = tuple(experience(30, seed=k) for k in range(3))
    examples = tuple(examples_of(ensemble, r) for r in rows)
    member = jnp.arange(30, dtype=jnp.int32) % 3

    def everything():
        loss = jax.grad(ensemble_loss, has_aux=True)(
            ensemble.params, examples, jnp.ones(30), (0.1,) * len(SMALL.weight_decay)
        )
        obs, action = rows[0].obs, rows[0].action
        return loss, predict(ensemble, obs, action), predict_drawn(ensemble, obs, action, member)

    apart = everything()
    monkeypatch.setattr(ensembles, "batched_members", lambda: True)
    batched = everything()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5), apart, batched)


def test_the_clamped_variance_in_one_step_is_that_of_the_clamped_logarithm():
    low, high = jnp.array(-10.0), jnp.array(0.5)
    x = jnp.concatenate([jnp.linspace(-30.0, 20.0, 1001), jnp.array([-jnp.inf, -1e30, -200.0, 200.0, 1e30, jnp.inf])])
    expected = np.exp(np.asarray(soft_clamp(x, low, high), np.float64))
    np.testing.assert_allclose(ensembles.soft_clamped_variance(x, low, high)[:-6], expected[:-6], rtol=2e-5)
    ends = np.exp(-10.0), np.exp(-10.0) + np.exp(0.5)
    np.testing.assert_allclose(
        ensembles.soft_clamped_variance(x, low, high)[-6:], [ends[0]] * 3 + [ends[1]] * 3, rtol=1e-6
    )
    assert np.isnan(ensembles.soft_clamped_variance(jnp.array(jnp.nan), low, high))
