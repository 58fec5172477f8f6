"""The loop of Algorithm 1: reductions, determinism, compilation, time limits."""

import json
import subprocess
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny

from m2ac.algorithms.training import Training
from m2ac.config import AgentConfig
from m2ac.dynamics.uncertainty import one_vs_rest
from m2ac.envs import make_env, terminations
from m2ac.envs.world import EnvError, World
from m2ac.imagination.mask import rank_mask
from m2ac.learners.sac import values
from m2ac.resolving import resolve
from m2ac.runs import checkpoint
from m2ac.runs.checkpoint import fingerprint
from m2ac.settings import override

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def training(algo="m2ac", *, env=None, termination_fn=terminations.never, steps=150, **settings) -> Training:
    """A small training on Pendulum, ready to run."""
    base = override(AgentConfig(algo=algo), {**tiny(algo), **settings})
    world = World(env or make_env("Pendulum-v1"), seed=base.seed, stream="train")
    config = resolve(base, {}, action_dim=world.action_dim, steps=steps)
    return Training(config, world, termination_fn=termination_fn)


def ran(training: Training, until: int) -> list:
    return list(training.run(until))


def assert_same(a, b) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_m2ac_that_keeps_everything_unpenalised_is_mbpo_bit_for_bit():
    mbpo = training("mbpo")
    m2ac = training("m2ac", mask={"rate": 1.0, "penalty": 0.0})
    for each in (mbpo, m2ac):
        ran(each, 110)
    assert_same(m2ac.state, mbpo.state)
    assert int(mbpo.state.imagined.counts.sum()) == 3 * 2 * 100


def test_the_rank_of_m2ac_at_rate_one_keeps_everything_bit_for_bit():
    everything, ranked = training("mbpo"), training("mbpo")
    scored = everything.imagination._replace(score=one_vs_rest)
    everything.imagination = scored
    ranked.imagination = scored._replace(mask=rank_mask((Fraction(1),) * 2))
    for each in (everything, ranked):
        ran(each, 110)
    assert_same(ranked.state, everything.state)


def test_a_mask_and_a_penalty_change_what_is_learned():
    mbpo, m2ac = training("mbpo"), training("m2ac")
    for each in (mbpo, m2ac):
        ran(each, 80)
    assert fingerprint(mbpo.state._replace(imagined=None)) != fingerprint(m2ac.state._replace(imagined=None))


@pytest.mark.parametrize("rhythm", ["mbpo", "epoch"])
def test_without_imagined_data_the_learner_is_sac_bit_for_bit(rhythm):
    sac, m2ac = training("sac", rhythm=rhythm), training("m2ac", rhythm=rhythm)
    m2ac.imagination = m2ac.imagination._replace(mask=lambda u, alive, h: jnp.zeros_like(alive))
    for each in (sac, m2ac):
        ran(each, 110)
    assert int(m2ac.state.imagined.counts.sum()) == 0
    assert m2ac.state.counters.updates == sac.state.counters.updates > 50
    assert_same(m2ac.state.learner, sac.state.learner)
    assert_same(m2ac.state.real, sac.state.real)


def test_another_seed_gives_another_state():
    states = [training(seed=seed) for seed in (0, 1)]
    for each in states:
        ran(each, 60)
    assert fingerprint(states[0].state) != fingerprint(states[1].state)


TWO_CYCLES = """
import sys, json
from m2ac.algorithms.training import Training
from m2ac.config import AgentConfig
from m2ac.resolving import resolve
from m2ac.settings import override
from m2ac.envs import find_task, make_env
from m2ac.envs.world import EnvError, World
from m2ac.runs.checkpoint import fingerprint

settings = json.loads(sys.argv[1])
world = World(make_env("HalfCheetah"), seed=3, stream="train")
config = resolve(override(AgentConfig(seed=3), settings), {}, action_dim=world.action_dim, steps=400)
training = Training(config, world, termination_fn=find_task("HalfCheetah").terminated)
for _ in training.run(config.random_steps + 2 * config.model_every):
    pass
print(fingerprint(training.state))
"""


@pytest.mark.parametrize("rhythm", ["mbpo", "epoch"])
def test_two_processes_with_one_seed_end_in_the_same_state(rhythm):
    """With networks and batches of full size, so that products are spread over threads as in a real run."""
    settings = {"rhythm": rhythm, "horizon": 2, "model_every": 10, "random_steps": 300, "model": {"max_epochs": 3}}
    command = [sys.executable, "-c", TWO_CYCLES, json.dumps(settings)]
    hashes = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert len(hashes[0].strip()) == 64
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("rhythm", ["mbpo", "epoch"])
@pytest.mark.parametrize("stop", ["nonstop", "hardstop"])
def test_nothing_compiles_after_the_second_cycle(rhythm, stop, compilations, monkeypatch):
    monkeypatch.setattr("m2ac.algorithms.training.FIT_SLICE", 2)  # several slices a fit
    under_test = training(rhythm=rhythm, mask={"stop": stop}, steps=300, seed=7, horizon=3)
    ran(under_test, 100)
    assert compilations, "the listener hears nothing"
    fits, before = under_test.state.counters.fits, len(compilations)
    ran(under_test, 300)
    assert under_test.state.counters.fits == fits + 8
    assert compilations[before:] == []


def test_the_interleaved_rhythm_models_every_cycle_and_learns_after_every_step():
    under_test = training(updates_per_step=2, steps=120)
    seen = [(p.step, p.phase, under_test.state.counters.updates) for p in under_test.run(101)]
    learning = [(step, updates) for step, phase, updates in seen if phase == "learning"]
    assert learning[0] == (51, 2)
    assert dict(learning) == {step: 2 * (step - 50) for step in range(51, 102)}
    assert [step for step, phase, _ in seen if phase == "imagining"] == [50, 50, 75, 75, 100, 100]
    assert under_test.state.counters.fits == 3


def test_the_epoch_rhythm_collects_models_and_learns_in_turn():
    under_test = training(rhythm="epoch", steps=120)
    phases = []
    for progress in under_test.run(110):
        if not phases or phases[-1] != (progress.step, progress.phase):
            phases.append((progress.step, progress.phase))
    turns = [p for p in phases if p[1] in ("collecting", "imagining", "learning")]
    assert turns == [
        *[(50, "imagining"), (50, "learning")],
        *[(75, "collecting"), (75, "imagining"), (75, "learning")],
        *[(100, "collecting"), (100, "imagining"), (100, "learning")],
        *[(110, "collecting"), (110, "imagining"), (110, "learning")],
    ]
    assert under_test.state.counters.updates == 25 + 25 + 25 + 10


def test_the_sizes_of_the_paper_follow_from_the_rhythms():
    from m2ac.algorithms.state import rollouts_per_phase, rows_per_phase

    mbpo = resolve(AgentConfig(horizon=4), {}, action_dim=6, steps=25_000)
    epoch = resolve(AgentConfig(horizon=10, rhythm="epoch"), {}, action_dim=6, steps=25_000)
    assert (mbpo.model_every, rollouts_per_phase(mbpo), mbpo.retain) == (250, 25_000, 4)
    assert (epoch.model_every, rollouts_per_phase(epoch), epoch.retain) == (1000, 100_000, 1)
    assert (rows_per_phase(mbpo), rows_per_phase(epoch)) == (25_000, 249_995)


def test_metrics_say_what_the_mask_kept():
    under_test = training(horizon=4, steps=100)
    metrics = [p.metrics for p in under_test.run(75) if p.metrics]
    assert len(metrics) == 1
    assert metrics[0]["trust/kept_by_step"] == [40, 30, 20, 10]
    assert metrics[0]["trust/share_kept"] == 0.25
    assert metrics[0]["trust/rows_kept"] == 100
    assert metrics[0]["trust/uncertainty_kept"] < metrics[0]["trust/uncertainty_dropped"]
    assert metrics[0]["trust/nonfinite_rows"] == 0
    assert {"model/epochs", "model/holdout_nll", "sac/critic_loss", "sac/value", "time/fit", "step"} <= set(metrics[0])


def test_metrics_say_how_many_ends_the_mask_kept():
    always = training(horizon=4, steps=100, termination_fn=lambda obs, action, next_obs: jnp.array(True))
    metrics = next(p.metrics for p in always.run(75) if p.metrics)
    assert metrics["trust/alive_by_step"] == [100, 0, 0, 0]
    assert (metrics["trust/terminated_rows"], metrics["trust/terminated_kept"]) == (100, 40)


def test_a_mask_that_keeps_nothing_leaves_training_to_the_real_rows():
    under_test = training(mask={"rate": 0.0001})
    ran(under_test, 80)
    assert int(under_test.state.imagined.counts.sum()) == 0
    assert under_test.state.counters.updates == 30


class Endless(gym.Env):
    """Reward 1 at every step, no end but the time limit of its wrapper."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action):
        return self._obs(), 1.0, False, False, {}

    def _obs(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


@pytest.mark.parametrize("algo", ["sac", "m2ac"])
def test_a_time_limit_does_not_end_the_bootstrap(algo):
    """With γ = 0.9 the endless sum is 10; the sum of the 5 steps an episode lasts would be 4.1."""
    env = gym.wrappers.TimeLimit(Endless(), 5)
    under_test = training(
        algo,
        env=env,
        termination_fn=None,
        steps=400,
        updates_per_step=10,
        sac={"discount": 0.9, "temperature": 1e-8, "learning_rate": 3e-3, "target_rate": 0.05, "hidden": 32},
        model={"max_epochs": 30, "learning_rate": 1e-2},
    )
    ran(under_test, 300)
    state = under_test.state
    assert state.episode.number == 60
    assert not np.asarray(state.real.rows.terminated).any()
    q = values(state.learner.critics, state.real.rows.obs[:300], state.real.rows.action[:300])
    np.testing.assert_allclose(np.mean(q), 10.0, rtol=0.1)


class Ending(Endless):
    """Terminates after the third step, so that the sum is 1 + 0.9 + 0.81 at the start."""

    def reset(self, *, seed=None, options=None):
        self._left = 3
        return super().reset(seed=seed)

    def step(self, action):
        self._left -= 1
        return self._obs(), 1.0, self._left == 0, False, {}

    def _obs(self):
        return np.array([self._left / 3, 0.0], np.float32)


def test_a_termination_ends_the_bootstrap():
    under_test = training(
        "sac",
        env=Ending(),
        termination_fn=None,
        steps=400,
        updates_per_step=10,
        sac={"discount": 0.9, "temperature": 1e-8, "learning_rate": 3e-3, "target_rate": 0.05, "hidden": 32},
    )
    ran(under_test, 300)
    state = under_test.state
    obs = jnp.array([[1.0, 0.0], [2 / 3, 0.0], [1 / 3, 0.0]])
    q = np.mean(values(state.learner.critics, obs, jnp.zeros((3, 1))), axis=0)
    np.testing.assert_allclose(q, [2.71, 1.9, 1.0], rtol=0.06)


def test_every_episode_is_reset_with_its_own_seed_from_the_run():
    seeds = []

    class Watched(Endless):
        def reset(self, *, seed=None, options=None):
            seeds.append(seed)
            return super().reset(seed=seed)

    under_test = training("sac", env=gym.wrappers.TimeLimit(Watched(), 10), termination_fn=None, steps=80)
    ran(under_test, 55)
    assert seeds == [under_test.world.seed_of(episode) for episode in range(6)]
    assert len(set(seeds)) == 6
    assert None not in seeds


@pytest.mark.parametrize("stop_at", [30, 57, 75, 99])
def test_a_training_rejoined_in_the_middle_of_an_episode_goes_on_as_if_nothing_had_been(stop_at):
    whole = training(steps=120)
    ran(whole, 110)
    first = training(steps=120)
    for progress in first.run(110):
        if progress.step >= stop_at and progress.settled:
            break
    second = training(steps=120)
    second.state = jax.tree.map(lambda x: x.copy() if isinstance(x, np.ndarray) else x, first.state)
    assert second.rejoin()
    ran(second, 110)
    assert_same(second.state, whole.state)


def test_a_world_that_cannot_be_replayed_begins_a_new_episode():
    class Forgetful(Endless):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=None)

    first = training("sac", env=gym.wrappers.TimeLimit(Forgetful(), 1000), termination_fn=None)
    ran(first, 60)
    second = training("sac", env=gym.wrappers.TimeLimit(Forgetful(), 1000), termination_fn=None)
    second.state = first.state
    assert not second.rejoin()
    assert (second.state.episode.number, second.state.episode.length) == (1, 0)
    ran(second, 70)


def test_a_world_that_must_not_be_replayed_is_left_alone():
    class Machine(Endless):
        steps = 0

        def step(self, action):
            Machine.steps += 1
            return super().step(action)

    first = training("sac", env=gym.wrappers.TimeLimit(Machine(), 1000), termination_fn=None)
    ran(first, 60)
    second = training("sac", env=gym.wrappers.TimeLimit(Machine(), 1000), termination_fn=None, rejoin=False)
    second.state, before = first.state, Machine.steps
    assert not second.rejoin()
    assert (Machine.steps, second.state.episode.length) == (before, 0)


def test_a_run_that_ends_before_its_random_steps_has_learned_nothing_yet():
    for rhythm in ("mbpo", "epoch"):
        under_test = training(rhythm=rhythm)
        ran(under_test, 40)
        assert under_test.state.counters.updates == under_test.state.counters.fits == 0


class Breaking(Endless):
    """Raises at its 63rd step."""

    def __init__(self):
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 63:
            raise OSError("the cable is loose")
        return super().step(action)


@pytest.mark.parametrize("rhythm", ["mbpo", "epoch"])
def test_an_environment_that_fails_leaves_everything_before_it_whole(rhythm):
    under_test = training("sac", rhythm=rhythm, env=Breaking(), termination_fn=None)
    with pytest.raises(EnvError, match=r"raised OSError: the cable is loose, .* in train episode 0 .*, step 63"):
        ran(under_test, 100)
    state = under_test.state
    assert state.counters.steps == int(state.real.size) == 62
    assert (state.episode.number, state.episode.length) == (1, 0)
    ran(under_test, 100)
    assert under_test.state.counters.steps == 100
    assert under_test.state.episode.length == 38


def test_a_ring_smaller_than_a_block_of_collection_holds_the_newest_steps():
    under_test = training("sac", env=gym.wrappers.TimeLimit(Endless(), 7), termination_fn=None, replay={"capacity": 30})
    ran(under_test, 50)
    whole = training("sac", env=gym.wrappers.TimeLimit(Endless(), 7), termination_fn=None)
    ran(whole, 50)
    newest = np.asarray(whole.state.real.rows.obs[20:50])
    assert int(under_test.state.real.size) == 30
    np.testing.assert_array_equal(np.sort(under_test.state.real.rows.obs, axis=0), np.sort(newest, axis=0))


def without_times(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


def told_by(training: Training, until: int) -> list[dict[str, Any]]:
    return [without_times(p.metrics) for p in training.run(until) if p.metrics is not None]


@pytest.mark.parametrize("algo", ["m2ac", "sac"])
@pytest.mark.parametrize("rhythm", ["mbpo", "epoch"])
def test_a_training_left_at_any_point_ends_with_the_same_state_and_the_same_metrics(algo, rhythm, tmp_path):
    steps, settings = 90, {"rhythm": rhythm, "random_steps": 20, "model_every": 15, "model.max_epochs": 1}
    whole, told, points = training(algo, steps=steps, **settings), [], set()
    for i, progress in enumerate(whole.run(steps)):
        if progress.metrics is not None:
            told.append(without_times(progress.metrics))
            points |= {i - 1, i, i + 1}  # around the end of a cycle, where there is most to get wrong
        points |= {i} if i % 25 == 0 else set()
    assert told[-1]["step"] == steps
    for point in sorted(points):
        left, seen = training(algo, steps=steps, **settings), []
        for i, progress in enumerate(left.run(steps)):
            seen += [without_times(progress.metrics)] if progress.metrics is not None else []
            if i == point:
                break
        cycle, losses = left.unfinished()
        checkpoint.save(tmp_path / "left", left.state, left.config, losses=losses, cycle=cycle)
        found = checkpoint.load(tmp_path / "left")
        world = World(make_env("Pendulum-v1"), seed=left.config.seed, stream="train")
        resumed = Training(found.config, world, termination_fn=terminations.never, state=found.state)
        resumed.take_up(found.manifest["cycle"], found.losses)
        assert resumed.rejoin()
        seen += told_by(resumed, steps)
        assert fingerprint(resumed.state) == fingerprint(whole.state), point
        assert seen == told, point


def test_m2ac_whose_rule_is_to_keep_all_is_mbpo_bit_for_bit():
    masked, everything = training("m2ac", **{"mask.rule": "all"}), training("mbpo")
    ran(masked, 90)
    ran(everything, 90)
    assert_same(masked.state, everything.state)


def test_a_threshold_is_part_of_the_state_and_of_the_metrics(tmp_path):
    def make(state=None):
        made = training("m2ac", **{"mask.rule": "threshold", "horizon": 3})
        return (
            made if state is None else Training(made.config, made.world, termination_fn=terminations.never, state=state)
        )

    whole = make()
    told = told_by(whole, 120)
    assert all(metrics["trust/border"] > 0 for metrics in told)
    assert all(metrics["trust/share_kept"] > 0.5 for metrics in told)
    assert int(whole.state.imagined.border.phases) == len(told)
    left = make()
    ran(left, 80)
    checkpoint.save(tmp_path / "left", left.state, left.config)
    again = make(checkpoint.load(tmp_path / "left").state)
    assert again.rejoin()
    ran(again, 120)
    assert fingerprint(again.state) == fingerprint(whole.state)
