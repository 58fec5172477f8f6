"""Numbers that are not finite: left out, counted, told with their place, and one too many ends the training."""

import re
from functools import cache
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from strange_envs import Plain
from tiny import tiny

from m2ac.algorithms.numbers import NumbersError, Place, Skips, check_dynamics, mean_of_finite, skips_of
from m2ac.algorithms.seeds import ManySeeds
from m2ac.algorithms.training import Training
from m2ac.algorithms.watch import notices, reward_range, value_bounds, watch_metrics
from m2ac.config import AgentConfig
from m2ac.dynamics.fit import best_members, finish_fit, fit_is_finite, fit_slice, fit_slice_guarded, start_fit
from m2ac.envs.world import EnvError, World
from m2ac.finite import first_faulty
from m2ac.learner_config import SACConfig
from m2ac.learners.choice import learner_of
from m2ac.learners.sac import SACLosses, init_sac, update, update_many, update_many_guarded
from m2ac.resolving import resolve
from m2ac.runs.checkpoint import named_arrays
from m2ac.settings import override
from m2ac.types import Transition

KEY = jax.random.key(5)
LEARNER = learner_of(AgentConfig())
CONFIG = SACConfig(hidden=8, batch_size=6, target_entropy=-2.0)
UPDATES = 6


def batches(*, seed: int = 0) -> Transition:
    rng = np.random.default_rng(seed)
    shape = (UPDATES, 6)
    return Transition(
        obs=jnp.array(rng.normal(size=(*shape, 3)), jnp.float32),
        action=jnp.array(rng.uniform(-1, 1, (*shape, 2)), jnp.float32),
        reward=jnp.array(rng.normal(size=shape), jnp.float32),
        next_obs=jnp.array(rng.normal(size=(*shape, 3)), jnp.float32),
        terminated=jnp.zeros(shape, dtype=bool),
    )


def learner() -> Any:
    return init_sac(CONFIG, 3, 2, key=KEY)


def assert_same(a: Any, b: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


def assert_close(a: Any, b: Any) -> None:
    """Equal but for the last digits: another program may add in another order."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6), a, b)


def is_finite(tree: Any) -> bool:
    floats = [x for x in map(np.asarray, jax.tree.leaves(tree)) if np.issubdtype(x.dtype, np.floating)]
    return all(np.isfinite(x).all() for x in floats)


# The learner


def test_guarded_updates_are_the_fast_ones_where_nothing_is_wrong() -> None:
    fast, losses, finite = update_many(learner(), batches(), CONFIG, key=KEY)
    guarded = update_many_guarded(learner(), batches(), CONFIG, key=KEY)
    assert bool(finite)
    assert_close(guarded.state, fast)
    assert_close(guarded.losses, losses)
    assert not guarded.faulty.any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_an_update_with_a_reward_that_is_too_large_is_left_out_and_the_others_are_made(value: float) -> None:
    given = batches()
    bad = given._replace(reward=given.reward.at[2, 4].set(value))
    _, _, finite = update_many(learner(), bad, CONFIG, key=KEY)
    assert not bool(finite)
    guarded = update_many_guarded(learner(), bad, CONFIG, key=KEY)
    faulty = np.asarray(guarded.faulty)
    assert np.flatnonzero(faulty.any(axis=1)).tolist() == [2]
    assert faulty[2, LEARNER.parts.index("critic_loss")]
    assert not np.isfinite(np.asarray(guarded.losses.critic_loss)[2])
    assert is_finite(guarded.state)
    assert_same(guarded.state, guarded_without(2))
    assert_close(guarded.state, made_without(given, 2))
    assert int(optax.tree_utils.tree_get(guarded.state.critic_optimiser, "count")) == UPDATES - 1


@cache
def guarded_without(left_out: int) -> Any:
    """The state where that update is left out because of another of its numbers."""
    given = batches()
    bad = given._replace(next_obs=given.next_obs.at[left_out, 1, 0].set(jnp.nan))
    return update_many_guarded(learner(), bad, CONFIG, key=KEY).state


@cache
def jitted_update() -> Any:
    return jax.jit(lambda s, b, n: update(s, b, n, CONFIG)[0])


def made_without(given: Transition, left_out: int) -> Any:
    """The state after the same updates, one at a time, each with its own noise, without one of them."""
    state = learner()
    draws = jax.random.normal(KEY, (UPDATES, 2, 6, 2))
    for i in range(UPDATES):
        if i != left_out:
            state = jitted_update()(state, jax.tree.map(lambda x, i=i: x[i], given), draws[i])
    return state


def test_a_gradient_whose_square_overflows_counts_as_one_that_is_not_finite() -> None:
    given = batches()
    bad = given._replace(reward=given.reward.at[5].set(2e19))  # the last update: nothing comes after it
    _, losses, finite = update_many(learner(), bad, CONFIG, key=KEY)
    assert not bool(finite)
    assert np.isfinite(losses.critic_loss[:5]).all()
    assert np.flatnonzero(np.any(update_many_guarded(learner(), bad, CONFIG, key=KEY).faulty, axis=1)).tolist() == [5]


def test_skips_in_a_row_are_counted_across_calls() -> None:
    def skips(pattern: str, before: int) -> Skips:
        faulty = np.zeros((len(pattern), len(LEARNER.parts)), bool)
        faulty[:, 0] = [letter == "x" for letter in pattern]
        losses = SACLosses(*(np.where(faulty[:, 0], np.inf, 1.0).astype(np.float32) for _ in SACLosses._fields))
        return skips_of(LEARNER, losses, faulty, before=before)

    assert skips("xx.x", 3)[:4] == (3, 5, 1, 3)
    assert skips("..xxx.", 7)[:4] == (3, 3, 0, 4)
    assert skips("xxx", 2)[:4] == (3, 5, 5, 2)
    assert skips("x", 0).what.startswith("critic_loss inf, policy_loss inf")


def test_means_leave_out_what_is_not_finite() -> None:
    assert mean_of_finite(np.array([1.0, np.nan, 3.0, np.inf])) == 2.0
    assert np.isnan(mean_of_finite(np.array([np.nan])))


# Trainings


class Spiky(Plain):
    """A reward of 1e30 at every step from the given one on, counted over all episodes."""

    def __init__(self, spikes_from: int = 60, spikes_until: int = 10_000) -> None:
        self.taken, self.spikes = 0, range(spikes_from, spikes_until)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        self.taken += 1
        return obs, 1e30 if self.taken in self.spikes else reward, terminated, truncated, info


def configured(algo: str, **settings: Any) -> AgentConfig:
    small = {**tiny(algo), "retain": 2, **settings}
    return resolve(override(AgentConfig(algo=algo), small), {}, action_dim=1, steps=120)


def training(algo: str = "sac", env: gym.Env | None = None, **settings: Any) -> Training:
    config = configured(algo, **settings)
    return Training(config, World(env or Plain(), seed=config.seed, stream="train"))


def metrics_of(under_test: Any, until: int) -> list[Any]:
    return [progress.metrics for progress in under_test.run(until) if progress.metrics]


def test_skipped_updates_are_counted_in_the_metrics_of_their_cycle_and_the_means_are_of_the_others() -> None:
    under_test = training(env=Spiky(60, 61))
    told = metrics_of(under_test, 100)
    assert [m["step"] for m in told] == [75, 100]
    assert all(0 < m["sac/skipped_updates"] < 25 for m in told)
    assert told[0]["sac/skipped_because"].startswith("critic_loss inf")
    assert all(np.isfinite(value) for name, value in told[0].items() if name.startswith("sac/") and "be" not in name)
    assert told[0]["sac/critic_loss"] < 1e6
    assert is_finite(under_test.state)
    assert under_test.state.counters.updates == 50


def test_a_training_in_which_nothing_is_skipped_says_so() -> None:
    told = metrics_of(training(), 75)
    assert told[0]["sac/skipped_updates"] == 0
    assert told[0]["watch/value_beyond"] == 0
    assert "sac/skipped_because" not in told[0]
    assert notices(told[0], seed=0) == {}


def test_too_many_skips_in_a_row_stop_the_training_with_what_and_where_and_leave_it_whole() -> None:
    under_test = training(env=Spiky(1), skips_allowed=7, seed=4)
    with pytest.raises(NumbersError) as caught:
        list(under_test.run(120))
    message = str(caught.value)
    assert message.startswith("8 updates in a row were skipped because their numbers were not finite")
    assert "skips_allowed is 7; the last with critic_loss inf" in message
    assert "in update 7 at step 58 (seed 4); the largest real reward is 1e+30 and the largest observation" in message
    assert message.endswith("scale them to about 1, or lower sac.learning_rate (0.0003)")
    assert under_test.state.counters[:2] == (58, 8)
    assert under_test.state.counters.skips == 8
    assert is_finite(under_test.state)
    again = Training(under_test.config, under_test.world, state=under_test.state)  # counts on
    with pytest.raises(NumbersError, match="9 updates in a row"):
        list(again.run(120))


def test_an_update_that_is_made_ends_the_row_of_skips() -> None:
    under_test = training(env=Spiky(60, 61), skips_allowed=24)
    list(under_test.run(100))
    assert under_test.state.counters.skips < 24


@pytest.mark.parametrize("field", ["policy", "critics", "targets", "log_temperature", "critic_optimiser"])
def test_a_damaged_learner_is_named_in_the_same_cycle(field: str) -> None:
    under_test = training(seed=2)
    list(under_test.run(55))
    under_test.state = damaged(under_test.state, f".learner.{field}")
    with pytest.raises(NumbersError if field != "policy" else EnvError) as caught:
        list(under_test.run(75))
    if field == "policy":
        assert "action [nan] is not finite in train episode" in str(caught.value)
    else:
        assert f"the learner's {field} are not finite before update 5 at step 56 (seed 2)" in str(caught.value)


def damaged(state: Any, prefix: str, value: float = np.nan) -> Any:
    """The state with a number replaced in the last floating-point array whose path begins so."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    place = [
        i
        for i, name in enumerate(names)
        if re.match(rf"{re.escape(prefix)}([.\[]|$)", name)
        and np.issubdtype(np.asarray(leaves[i][1]).dtype, np.floating)
    ][-1]
    array = np.array(leaves[place][1])
    array[(0,) * array.ndim] = value
    values = [leaf for _, leaf in leaves]
    values[place] = jnp.asarray(array)
    return jax.tree.unflatten(structure, values)


def test_a_state_that_is_not_finite_is_refused_before_training_begins() -> None:
    good = training()
    bad = damaged(good.state, ".learner.critics")
    with pytest.raises(NumbersError) as caught:
        Training(good.config, good.world, state=bad)
    assert str(caught.value) == (
        "state.learner.critics[1][2].bias[0] is nan; a training cannot begin with it, go on from an earlier checkpoint"
    )
    assert first_faulty(named_arrays(good.state)) is None
    assert first_faulty(named_arrays(bad)) == (".learner.critics[1][2].bias[0]", pytest.approx(np.nan, nan_ok=True))


# Several seeds


def together(env: Any = Plain, algo: str = "sac", **settings: Any) -> ManySeeds:
    worlds = [World(env() if i else Plain(), seed=seed, stream="train") for i, seed in enumerate((3, 11))]
    return ManySeeds(configured(algo, **settings), worlds)


def test_of_several_seeds_only_those_with_faults_skip() -> None:
    many, alone = together(lambda: Spiky(60, 61)), together()
    spiky, fine = metrics_of(many, 75)[0][::-1], metrics_of(alone, 75)[0]
    assert spiky[0]["sac/skipped_updates"] > 0
    assert spiky[1]["sac/skipped_updates"] == 0
    assert_close(many.state_of(0).learner, alone.state_of(0).learner)
    assert spiky[1]["sac/critic_loss"] == pytest.approx(fine[0]["sac/critic_loss"], rel=1e-4)
    assert is_finite(many.states())


def test_too_many_skips_of_one_seed_stop_all_and_name_it() -> None:
    many = together(lambda: Spiky(1), skips_allowed=3)
    with pytest.raises(NumbersError, match=r"4 updates in a row .* in update 3 at step 54 \(seed 11\)"):
        list(many.run(100))
    assert [state.counters.skips for state in many.states()] == [0, 4]
    assert is_finite(many.states())
    again = ManySeeds(many.config, many.worlds, states=many.states())
    assert [state.counters.skips for state in again.states()] == [0, 4]


# The model


def explored(env: gym.Env, **settings: Any) -> Training:
    under_test = training("m2ac", env, **settings)
    list(under_test.run(50))
    return under_test


def test_a_guarded_slice_is_the_fast_one_where_nothing_is_wrong() -> None:
    under_test = explored(Plain())
    state, config = under_test.state, under_test.config.model
    fit = start_fit(state.dynamics, state.real, config, key=KEY)
    fast, guarded = (f(fit, state.real, np.int32(250), config) for f in (fit_slice, fit_slice_guarded))
    assert bool(fit_is_finite(fast))
    assert_close(guarded._replace(key=None), fast._replace(key=None))


def test_batches_that_are_not_finite_are_skipped_and_counted_and_the_members_stay_finite() -> None:
    under_test = training("m2ac", Spiky(7, 8), **{"model.batch_size": 8})
    told = metrics_of(under_test, 75)[0]
    assert 0 < told["model/skipped_batches"] < told["model/batches"]
    assert is_finite(under_test.state)
    assert "model/skipped_batches" not in notices(told, seed=0)
    assert notices(told, seed=0)["batches"].startswith(f"{told['model/skipped_batches']} of {told['model/batches']} ba")


def test_a_first_fit_that_nobody_can_judge_stops_the_training() -> None:
    under_test = training("m2ac", Spiky(1), seed=6)
    with pytest.raises(NumbersError) as caught:
        list(under_test.run(75))
    assert str(caught.value).startswith(
        "no member of the model has a finite holdout loss after its first fit, before update 0 at step 50 (seed 6); "
        "the largest real reward is 1e+30"
    )
    assert is_finite(under_test.state)


def test_a_later_fit_that_nobody_can_judge_leaves_the_model_as_it_was() -> None:
    under_test = training("m2ac", Spiky(70, 76), skips_allowed=1000, **{"model.holdout_share": 0.9})
    before: list[Any] = []
    told = []
    for progress in under_test.run(100):
        told += [progress.metrics] if progress.metrics else []
        if progress.step == 75 and progress.metrics:
            before.append(under_test.state.dynamics)
    assert [m["model/refused"] for m in told] == [0, 1]
    assert_same(under_test.state.dynamics, before[0])
    assert told[1]["trust/rows_kept"] > 0
    assert is_finite(under_test.state)


def test_elites_are_chosen_among_the_members_with_a_finite_loss() -> None:
    loss = jnp.array([jnp.nan, 3.0, -jnp.inf, 1.0, jnp.inf])
    assert best_members(loss, 2).tolist() == [3, 1]
    assert best_members(loss, 4).tolist() == [3, 1, 3, 1]
    assert best_members(jnp.array([2.0, 0.0, 1.0]), 2).tolist() == [1, 2]


def test_a_damaged_member_is_named() -> None:
    under_test = explored(Plain(), seed=3)
    under_test.state = damaged(under_test.state, ".dynamics.ensemble.params.members[1]")
    with pytest.raises(
        NumbersError, match=r"the model's member 1 are not finite in its fit before update 0 at step 50"
    ):
        list(under_test.run(75))
    with pytest.raises(NumbersError, match=r"member 0, optimiser"):
        check_dynamics(np.array([True, False, False, True]), Place(1, 2, 3))


def test_a_member_without_a_finite_loss_keeps_its_weights_and_is_no_elite() -> None:
    under_test = explored(Plain())
    state, config = under_test.state, under_test.config.model
    fit = start_fit(state.dynamics, state.real, config, key=KEY)
    fit = fit_slice(fit, state.real, np.int32(250), config)
    spoiled = damaged(fit.best, "[0]")
    dynamics, report = finish_fit(fit._replace(best=spoiled), state.real, config)
    assert not np.isfinite(report.holdout_nll[0])
    assert 0 not in dynamics.ensemble.elites


# The watch over values


def test_the_bounds_of_values_by_hand() -> None:
    low, high = value_bounds(-2.0, 1.0, 0.5, 0.9)
    width = (10 + 4.5) - (-20 - 4.5)
    np.testing.assert_allclose((low, high), (-24.5 - 0.1 * width - 1, 14.5 + 0.1 * width + 1))
    low, high = value_bounds(1.0, 2.0, 0.0, 0.5)
    np.testing.assert_allclose((low, high), (0 - 0.4 - 1, 4 + 0.4 + 1))  # critics start at zero


def test_values_beyond_the_bounds_are_told() -> None:
    def told(value: float) -> dict[str, Any]:
        losses = SACLosses(*(np.full(4, x, np.float32) for x in (1.0, 1.0, 0.1, 0.5, value)))
        config = SACConfig(discount=0.9, temperature=0.1)
        learner = learner_of(AgentConfig(algo="sac", sac=config))
        return watch_metrics(losses, np.array([-1.0, 1.0]), learner) | {"sac/value": value, "step": 500}

    assert told(11.0)["watch/value_beyond"] == 0
    beyond = told(-20.0)
    assert beyond["watch/value_beyond"] == 1
    text = notices(beyond, seed=8)["values"]
    assert text.startswith(
        "the critics' mean value -20 in the cycle up to step 500 (seed 8) is beyond what the rewards allow, "
    )


def test_only_stored_rewards_set_the_bounds() -> None:
    under_test = training()
    list(under_test.run(60))
    real = under_test.state.real
    rewards = np.asarray(real.reward)[: int(real.size)]
    assert int(real.size) < real.capacity
    np.testing.assert_array_equal(reward_range(real), [rewards.min(), rewards.max()])
    shifted = real._replace(reward=jnp.where(jnp.arange(real.capacity) < real.size, real.reward + 50, 0.0))
    assert float(reward_range(shifted)[0]) > 0
