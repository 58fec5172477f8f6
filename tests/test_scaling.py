"""Observations whose units are far from 1, shifted and scaled."""

import re

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from m2ac import M2AC, MBPO, SAC, learn_together
from m2ac.algorithms import phases
from m2ac.config import RunConfig
from m2ac.model_config import ModelConfig
from m2ac.resolving import as_written, resolve
from m2ac.runs import checkpoint
from m2ac.runs.checkpoint import fingerprint
from m2ac.runs.policy import load_policy, save_policy
from m2ac.scaling import no_scaling, scaling_of, usual_size
from m2ac.settings import ConfigError, from_dict, to_dict


def test_only_what_is_far_from_some_units_is_touched():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((1000, 6))
    noise = (noise - noise.mean(0)) / noise.std(0)
    #          usual, wide, hot,   tiny, constant, constant and large
    spread = [1.0, 1000.0, 5.0, 1e-5, 0.0, 0.0]
    mean = [3.0, 0.0, 300.0, 0.0, 2.0, 1e5]
    scaling = scaling_of(noise * spread + mean)
    np.testing.assert_allclose(scaling.shift, [0, 0, 300, 0, 0, 1e5], atol=1e-9)
    np.testing.assert_allclose(scaling.scale, [1, 1e-3, 0.2, 1e5, 1, 1], rtol=1e-6)
    assert scaling.settled


def test_the_noise_of_a_sensor_at_rest_is_no_unit():
    at_rest = np.random.default_rng(0).normal(0.0, 1e-12, (500, 1))
    assert scaling_of(at_rest).idle


class Waking(gym.Env):
    """A sensor that says next to nothing during the random steps and 0 or 1 later; rewards of some hundred."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action):
        self.steps += 1
        return self._obs(), 300.0 * float(action[0]), False, self.steps % 20 == 0, {}

    def _obs(self):
        return np.array([self.np_random.normal(0, 1e-6) if self.steps < 60 else self.steps % 2], np.float32)


def test_a_sensor_that_wakes_up_and_large_rewards_are_told():
    with pytest.warns() as told:
        SAC(Waking(), seed=0, **{name: SMALL[name] for name in SMALL if name != "model"}).learn(80)
    far, reward = sorted(str(each.message) for each in told)
    assert re.match(r"observation\[0\] is 1 at step 6\d, .*e\+0[56] times its spread in the first steps", far)
    assert re.match(r"rewards are of the size of 1\.\de\+02, and .* learn best from rewards of about 1; divide", reward)


def test_rewards_of_some_units_are_not_remarked_on():
    assert usual_size(np.array([-20.0, 20.0])) is None
    assert usual_size(np.array([-60.0, 60.0])) == 60.0  # the spread
    assert usual_size(np.array([-41.0, -39.0])) == 40.0  # the mean


def test_what_is_usual_keeps_every_bit():
    obs = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    scaling = scaling_of(obs)
    assert scaling.idle
    assert scaling.apply(obs) is obs


def test_a_large_shift_leaves_what_float32_would_lose():
    obs = 1e6 + np.arange(8.0)[:, None]
    seen = scaling_of(obs).apply(obs)
    assert seen.dtype == np.float32
    np.testing.assert_allclose(np.diff(seen[:, 0]), np.full(7, 1 / obs.std()), rtol=1e-5)


@given(arrays(np.float32, (12, 3), elements=st.floats(-(2**20), 2**20, width=32)))
def test_undoing_gives_back_the_observation(obs):
    scaling = scaling_of(obs)
    size = np.abs(obs).max(axis=0) + 1 / scaling.scale
    assert np.all(np.abs(scaling.undo(scaling.apply(obs)) - obs) <= 1e-5 * size)


class Strange(gym.Env):
    """A point to be held at 0, told in units that nobody would choose; float64, awkward bounds."""

    action_space = gym.spaces.Box(np.array([-3.0]), np.array([0.5]), dtype=np.float64)
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, units=(1e5, 1e-4), offset=(3e5, 0.0)):
        self.units, self.offset = np.array(units), np.array(offset)

    def _obs(self):
        return np.array([self.x, self.v]) * self.units + self.offset

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.v, self.t = self.np_random.uniform(-1, 1), 0.0, 0
        return self._obs(), {}

    def step(self, action):
        self.v = 0.9 * self.v + 0.1 * (float(action[0]) + 1.25)
        self.x, self.t = self.x + 0.1 * self.v, self.t + 1
        return self._obs(), -(self.x**2), abs(self.x) > 3, self.t >= 50, {}


SMALL = {
    "random_steps": 60,
    "updates_per_step": 1,
    "model_every": 20,
    "model": {"members": 2, "elites": 2, "hidden": 8, "layers": 1, "weight_decay": (0.0, 0.0), "max_epochs": 2},
    "sac": {"hidden": 8, "batch_size": 16},
}


def test_the_buffers_hold_what_networks_see_and_the_policy_takes_what_the_environment_gives():
    agent = M2AC(Strange(), seed=0, **SMALL).learn(100)
    state = agent._training.state
    assert state.scaling.settled
    seen = np.asarray(state.real.rows.obs)[:60]
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(seen.std(axis=0), 1, rtol=1e-3)
    obs = np.array([2e5, 3e-4])
    plain = type(agent._acting_policy())(agent._acting_policy().layers)
    np.testing.assert_array_equal(agent._acting_policy()(obs), plain(state.scaling.apply(obs)))


def test_a_function_of_ones_own_is_given_the_environments_observations():
    met = []

    def fell(obs, action, next_obs):
        met.append(obs)
        return next_obs[0] > 6e5  # only in the environment's units does any row come near

    agent = M2AC(Strange(), seed=0, termination_fn=fell, **SMALL).learn(100)
    how = agent._training.imagination
    row = np.zeros(2, np.float32)
    assert not how.termination_fn(row, np.zeros(1, np.float32), row)
    far = agent._training.state.scaling.apply(np.array([7e5, 0.0]))
    assert how.termination_fn(row, np.zeros(1, np.float32), far)


def assert_functions_saw_the_environments_units(agent, fits):
    """Every imagined row of a `telling` agent: its reward is where it began, and it ended where it came below 3e5."""
    state = agent._training.state
    counts = np.asarray(state.imagined.counts)
    assert counts.tolist() == [40] * fits + [0] * (2 - fits)  # two rollouts of a step for each of 20
    rows = [np.asarray(x)[: counts.sum()] for x in state.imagined.rows]
    obs, _, reward, next_obs, terminated = rows
    assert not state.scaling.idle
    np.testing.assert_allclose(reward, state.scaling.undo(obs)[:, 0] / 1e5, rtol=1e-5)
    np.testing.assert_array_equal(terminated, state.scaling.undo(next_obs)[:, 0] < 3e5)
    assert 0 < terminated.mean() < 1


def below(obs, action, next_obs):
    return next_obs[0] < 3e5


def pressure(obs, action, next_obs):
    return obs[0] / 1e5


def telling(seed):
    """An agent whose imagined rows show what its functions were given; its model is bad enough for some to end."""
    how = {**SMALL, "horizon": 1, "rollouts_per_update": 2, "retain": 2}
    how["model"] = {**SMALL["model"], "scale_targets": False}
    return MBPO(Strange(), seed=seed, termination_fn=below, reward_fn=pressure, **how)


def test_seeds_that_learn_together_give_their_functions_the_environments_observations():
    agents = [telling(seed) for seed in (0, 1)]
    for fits in (1, 2):  # the first settles the scaling, the second goes on with it
        learn_together(agents, 61 if fits == 1 else 20)
        for agent in agents:
            assert_functions_saw_the_environments_units(agent, fits)
    first, second = (agent._training.state.scaling.shift for agent in agents)
    assert abs(first - second)[0] > 100, "each seed has its own"
    for agent, shift in zip(agents, (first, second), strict=True):  # and goes on alone as it would have
        middle = np.zeros(2, np.float32)
        reward = agent._training.imagination.reward_fn(middle, np.zeros(1, np.float32), middle)
        assert reward == pytest.approx(shift[0] / 1e5)


def test_what_fails_while_observations_are_scaled_leaves_the_agents_as_they_were(monkeypatch):
    agents = [telling(seed) for seed in (0, 1)]

    def full(real, scaling):
        raise MemoryError("no room for a second buffer")

    with monkeypatch.context() as patched:
        patched.setattr(phases, "rescaled", full)
        with pytest.raises(MemoryError):
            learn_together(agents, 61)
    for agent in agents:
        state = agent._training.state
        assert (state.counters.steps, bool(state.scaling.settled)) == (60, False)
        assert np.asarray(state.real.rows.obs)[:60, 0].mean() > 1e5, "as the environment gave them"


def test_a_training_left_and_taken_up_anywhere_ends_the_same(tmp_path):
    whole = M2AC(Strange(), seed=0, **SMALL).learn(100)
    for left_at in (30, 60, 61, 83):
        first = M2AC(Strange(), seed=0, **SMALL)
        first.learn(100, lambda agent, progress, at=left_at: progress.step < at)
        first.save(tmp_path / str(left_at))
        second = M2AC.load(tmp_path / str(left_at), Strange())
        second.learn(100 - second.num_timesteps)
        assert fingerprint(second._training.state) == fingerprint(whole._training.state)


def test_scaled_observations_are_learned_as_plain_ones_are():
    """Units are a matter of taste: with and without odd ones, the networks see nearly the same."""
    odd = SAC(Strange(), seed=0, random_steps=60, scale_observations=True, sac={"hidden": 8}).learn(70)
    plain = SAC(Strange((1e3, 1e3), (0.0, 0.0)), seed=0, random_steps=60, sac={"hidden": 8}).learn(70)
    seen = [np.asarray(agent._training.state.real.rows.obs)[:60] for agent in (odd, plain)]
    np.testing.assert_allclose(seen[0], seen[1] - seen[1].mean(axis=0) + seen[0].mean(axis=0), atol=0.05)


def test_a_saved_policy_takes_what_the_environment_gives(tmp_path):
    agent = SAC(Strange(), seed=0, random_steps=60, sac={"hidden": 8}).learn(70)
    policy = agent._acting_policy()
    save_policy(tmp_path / "policy", policy)
    obs = np.array([[2e5, 3e-4], [4e5, -1e-4]])
    np.testing.assert_array_equal(load_policy(tmp_path / "policy")(obs), policy(obs))


def test_known_tasks_are_left_alone_and_ppo_has_its_own_way():
    assert not M2AC("Pendulum-v1")._prepared(100).config.scale_observations
    assert M2AC(Strange())._prepared(100).config.scale_observations
    assert not resolve(RunConfig(algo="ppo"), {}, action_dim=1, steps=4000).scale_observations
    with pytest.raises(ConfigError, match="scale_observations has no meaning for algo=ppo"):
        RunConfig(algo="ppo", scale_observations=True)


def save_as_before(directory, training, monkeypatch, *, schema, without):
    """A checkpoint as an earlier version wrote it, which knew neither these arrays nor scaled targets."""
    arrays, settings = checkpoint.named_arrays, checkpoint.to_dict
    monkeypatch.setattr(checkpoint, "SCHEMA", schema)
    monkeypatch.setattr(
        checkpoint,
        "named_arrays",
        lambda state, prefix="": {
            name: array for name, array in arrays(state, prefix).items() if prefix or not name.startswith(without)
        },
    )

    def then(config):
        values = settings(config)
        del values["model"]["scale_targets"]
        return values

    monkeypatch.setattr(checkpoint, "to_dict", then)
    checkpoint.save(directory, training.state, training.config)
    monkeypatch.undo()


def test_a_checkpoint_from_before_scaling_is_read_as_unscaled(tmp_path, monkeypatch):
    training = SAC("Pendulum-v1", seed=0, random_steps=20, sac={"hidden": 8}).learn(30)._training
    save_as_before(tmp_path / "old", training, monkeypatch, schema=3, without=".scaling")
    found = checkpoint.load(tmp_path / "old")
    assert found.state.scaling.idle
    assert not no_scaling(3).settled


def test_a_checkpoint_from_before_targets_were_scaled_is_read_and_goes_on_without(tmp_path, monkeypatch):
    small = {"model": {"hidden": 8, "scale_targets": False}, "sac": {"hidden": 8}, "model_every": 10}
    training = M2AC(Strange(), seed=0, random_steps=20, **small).learn(40)._training
    save_as_before(tmp_path / "old", training, monkeypatch, schema=4, without=".dynamics.ensemble.target")
    found = checkpoint.load(tmp_path / "old")
    assert found.config.model.scale_targets is False
    assert fingerprint(found.state) == fingerprint(training.state)


def test_what_an_earlier_version_wrote_of_a_run_is_read_as_it_was_then():
    values = to_dict(RunConfig())
    del values["model"]["scale_targets"]
    assert from_dict(RunConfig, as_written(values)).model.scale_targets is False
    now = to_dict(RunConfig(model=ModelConfig(scale_targets=True)))
    assert as_written(now) == now
    assert as_written(["damaged"]) == ["damaged"]


@pytest.mark.parametrize(
    ("env", "model", "scaled", "lowest"),
    [
        (Strange(), {}, True, -4.0),
        ("Pendulum-v1", {}, False, -10.0),
        ("Pendulum-v1", {"scale_targets": True}, True, -4.0),
        ("HalfCheetah-Noisy2", {}, False, -5.0),
        ("HalfCheetah-Noisy2", {"scale_targets": True}, True, -4.0),
        ("HalfCheetah-v5", {"min_log_variance": -10.0}, False, -10.0),
        ("Walker2d", {}, False, -10.0),
        (Strange(), {"min_log_variance": -7.0}, True, -7.0),
    ],
)
def test_targets_are_scaled_for_tasks_that_nobody_knows_by_name(env, model, scaled, lowest):
    resolved = M2AC(env, model=model)._prepared(100).config.model
    assert (resolved.scale_targets, resolved.min_log_variance) == (scaled, lowest)
