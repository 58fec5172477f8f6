"""Several seeds trained together are, seed for seed, what separate trainings are."""

import os
import signal
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from strange_envs import Plain
from tiny import tiny

from m2ac import M2AC, MBPO, SAC, ConfigError, learn_together
from m2ac.agent import Agent
from m2ac.algorithms import seed_phases
from m2ac.algorithms.seeds import ManySeeds
from m2ac.algorithms.state import State
from m2ac.algorithms.training import Training
from m2ac.config import AgentConfig, is_read
from m2ac.dynamics.fit import finish_fit, fit_slice, start_fit
from m2ac.envs.notices import EnvWarning
from m2ac.envs.world import EnvError, World
from m2ac.imagination.rollout import masked_rollouts
from m2ac.learners.sac import sample_action
from m2ac.replay import sample_obs
from m2ac.resolving import resolve
from m2ac.runs.checkpoint import fingerprint
from m2ac.settings import override

SEEDS = (3, 11)
CASES: dict[str, tuple[str, str]] = {
    "m2ac": ("m2ac", "mbpo"),
    "m2ac to the letter": ("m2ac", "epoch"),
    "mbpo": ("mbpo", "mbpo"),
    "sac": ("sac", "mbpo"),
}
each_case = pytest.mark.parametrize("case", list(CASES))


def configured(case: str, **settings: Any) -> AgentConfig:
    algo, rhythm = CASES[case]
    small = {**tiny(algo), "retain": 2}  # one size for both rhythms: one program
    return resolve(override(AgentConfig(algo=algo, rhythm=rhythm), {**small, **settings}), {}, action_dim=1, steps=120)


def world(seed: int, env: Any = Plain) -> World:
    return World(env(), seed=seed, stream="train")


def alone(case: str, seed: int, **settings: Any) -> Training:
    """Its ensemble learns when episodes terminate."""
    return Training(configured(case, seed=seed, **settings), world(seed))


def together(case: str, env: Any = Plain, **settings: Any) -> ManySeeds:
    return ManySeeds(configured(case, **settings), [world(seed, env) for seed in SEEDS])


def owned(state: State) -> State:
    """A copy that outlives the next update, to which the arrays are donated."""
    return jax.tree.map(lambda x: np.array(x) if isinstance(x, jax.Array) else x, state)


def assert_same(a: Any, b: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


def assert_close(a: Any, b: Any, tolerance: float) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), a, b)


def of_seed(i: int, tree: Any) -> Any:
    return jax.tree.map(lambda x: x[i], tree)


class Told(NamedTuple):
    """One seed's state amid the random steps, after the first step that is learned from, and some steps later."""

    explored: State
    begun: State
    later: State
    metrics: dict[str, Any]


STAGES = (30, 51, 60)
FOLD = 1  # of the fits' keys: one that stops at different epochs for the two seeds, before rounding has grown


@cache
def stories(case: str) -> tuple[list[Told], list[Told]]:
    """Every seed's story in a training of its own, and in one with the others."""
    apart = []
    for seed in SEEDS:
        training, states, metrics = alone(case, seed), [], {}
        for until in STAGES:
            for progress in training.run(until):
                metrics = progress.metrics or metrics
            states.append(owned(training.state))
        apart.append(Told(*states, metrics))
    many, all_states, all_metrics = together(case), [], ()
    for until in STAGES:
        for progress in many.run(until):
            all_metrics = progress.metrics or all_metrics
        all_states.append(many.states())
    return apart, [Told(*states, own) for *states, own in zip(*all_states, all_metrics, strict=True)]


@each_case
def test_what_does_not_depend_on_rounding_is_the_same_bit_for_bit(case: str) -> None:
    for own, shared in zip(*stories(case), strict=True):
        assert_same(shared.explored, own.explored)  # networks, random steps, episodes
        for state, other in ((shared.begun, own.begun), (shared.later, own.later)):
            assert state.counters == other.counters
            assert state.episode[:2] == other.episode[:2]
            assert_same([x[:50] for x in state.real.rows], [x[:50] for x in other.real.rows])
            assert_same((state.real.size, state.real.cursor), (other.real.size, other.real.cursor))
            if other.dynamics is not None:
                assert_same(state.dynamics.ensemble.elites, other.dynamics.ensemble.elites)
                assert_same(state.imagined._replace(rows=None), other.imagined._replace(rows=None))
        if CASES[case][1] == "mbpo":  # the first step with the policy, not yet learned
            assert_same(shared.begun.real, own.begun.real)


@each_case
def test_what_was_fitted_imagined_and_learned_is_the_same_but_for_rounding(case: str) -> None:
    for own, shared in zip(*stories(case), strict=True):
        assert_close(shared.begun, own.begun, 1e-4)
        assert_close(shared.later, own.later, 1e-4)
        assert int(own.later.counters.updates) == (35 if CASES[case][1] == "epoch" else 10)


@each_case
def test_metrics_are_those_of_every_seed(case: str) -> None:
    apart, together = stories(case)
    for own, shared in zip(apart, together, strict=True):
        assert shared.metrics.keys() == own.metrics.keys()
        for name, value in own.metrics.items():
            if not name.startswith("time/"):
                np.testing.assert_allclose(shared.metrics[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    assert together[0].metrics["sac/critic_loss"] != together[1].metrics["sac/critic_loss"]
    assert together[0].later.episode.number != together[1].later.episode.number  # episodes end when they end


def explored(case: str, **settings: Any) -> tuple[list[State], ManySeeds]:
    """Trainings after their random steps, and one of all their seeds."""
    many = together(case, **settings)
    list(many.run(50))
    return many.states(), many


def test_a_fit_that_stops_early_is_not_touched_by_the_others() -> None:
    model = {"max_epochs": 60, "patience": 1, "patience_batches": 1, "batch_size": 16, "scale_targets": False}
    states, many = explored("m2ac", model={**model, "improvement": 0.1, "learning_rate": 0.003})
    config, real, keys = many.config.model, many._arrays.real, many._streams.fit
    assert many._arrays.dynamics is not None
    fits = seed_phases.start_fit(many._arrays.dynamics, real, keys, np.int32(FOLD), config)
    alone = [
        start_fit(s.dynamics, s.real, config, key=jax.random.fold_in(k, FOLD))
        for s, k in zip(states, keys, strict=True)
    ]
    for i, fit in enumerate(alone):
        assert_same(of_seed(i, (fits.split, fits.shuffle)), (fit.split, fit.shuffle))
        assert_same(jax.random.key_data(fits.key[i]), jax.random.key_data(fit.key))
    waiting: dict[int, Any] = {}
    while not np.all(fits.done):
        fits = seed_phases.fit_slice(fits, real, np.int32(4), config)  # three batches are an epoch
        waiting = {i: of_seed(i, fits._replace(key=None)) for i in range(2) if fits.done[i]} | waiting
    dynamics, report = seed_phases.finish_fit(fits, real, config)
    for i, (state, fit) in enumerate(zip(states, alone, strict=True)):
        assert_same(of_seed(i, fits._replace(key=None)), waiting[i])
        while not fit.done:
            fit = fit_slice(fit, state.real, np.int32(4), config)
        own_dynamics, own_report = finish_fit(fit, state.real, config)
        assert int(report.epochs[i]) == int(own_report.epochs)
        assert_close(of_seed(i, (dynamics.ensemble, report)), (own_dynamics.ensemble, own_report), 1e-3)
    assert report.epochs[0] != report.epochs[1]
    assert max(report.epochs) < 60


def test_every_seed_draws_the_members_it_draws_alone() -> None:
    states, many = explored("m2ac")

    def members(state: Any, key: Any) -> Any:
        starts = sample_obs(state.real, 40, key=key)
        policy = state.learner.policy
        ensemble = state.dynamics.ensemble
        return masked_rollouts(partial(sample_action, policy), ensemble, starts, many.imagination, key=key).member

    drawn = jax.jit(jax.vmap(members))(many._arrays, many._streams.imagine)
    for state, key, row in zip(states, many._streams.imagine, drawn, strict=True):
        assert_same(row, jax.jit(members)(state, key))
    assert (np.asarray(drawn[0]) != np.asarray(drawn[1])).any()


def test_a_state_of_one_seed_is_trained_on_alone_or_put_back_again() -> None:
    many = together("m2ac")
    list(many.run(55))
    apart = []
    for i, seed in enumerate(SEEDS):
        training = Training(configured("m2ac", seed=seed), world(seed), state=many.state_of(i))
        assert training.rejoin()
        list(training.run(60))
        apart.append(training)
    again = ManySeeds(many.config, [world(seed) for seed in SEEDS], states=many.states())
    assert [fingerprint(s) for s in again.states()] == [fingerprint(s) for s in many.states()]
    list(many.run(60))
    for i, training in enumerate(apart):
        assert_close(many.state_of(i), training.state, 1e-4)
        obs = np.array([[0.1, 0.2]], np.float32)
        np.testing.assert_allclose(many.acting_policy(i)(obs), training.acting_policy()(obs), atol=1e-5)


def test_nothing_compiles_after_the_second_cycle(compilations: list[str]) -> None:
    many = together("m2ac")
    list(many.run(76))
    before = len(compilations)
    list(many.run(105))
    assert many.counters.fits == 3
    assert compilations[before:] == []


class Breaking(Plain):
    """The second of them raises at its 63rd step."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.number, self.taken = type(self).made, 0

    def step(self, action: Any) -> Any:
        self.taken += 1
        if self.number == 2 and self.taken == 63:
            raise OSError("the cable is loose")
        return super().step(action)


def test_a_world_that_fails_leaves_every_seed_whole_and_in_step() -> None:
    many = together("sac", Breaking)
    with pytest.raises(EnvError, match="the cable is loose"):
        list(many.run(100))
    for state in many.states():
        assert state.counters.steps == int(state.real.size) == 62
        assert state.episode.length == 0
    list(many.run(70))
    assert [s.counters.steps for s in many.states()] == [70, 70]


# Agents that learn together

ROOM = {"replay.capacity": 120, "retain": 2}  # as above: the same programs


def agents(kind: type[Agent] = M2AC, **settings: Any) -> list[Agent]:
    room = {name: value for name, value in ROOM.items() if is_read(name, kind.algo)}
    return [kind(Plain(), seed=seed, **{**tiny(kind.algo), **room, **settings}) for seed in SEEDS]


def state_of(agent: Agent) -> State:
    assert agent._training is not None
    return agent._training.state


def test_agents_that_learn_together_are_those_that_learn_apart(tmp_path: Path) -> None:
    apart, joined = agents(), agents()
    for agent in apart:
        agent.learn(58).learn(2)
    learn_together(joined, 58)
    learn_together(joined, 2)
    obs = np.array([0.3, -0.2], np.float32)
    for i, (own, shared) in enumerate(zip(apart, joined, strict=True)):
        assert shared.num_timesteps == 60
        assert_close(state_of(shared), state_of(own), 1e-4)
        action = shared.predict(obs, deterministic=True)[0]
        np.testing.assert_allclose(action, own.predict(obs, deterministic=True)[0], atol=1e-4)
        assert len(shared.evaluate(1, eval_env=Plain())) == 1
        shared.save(tmp_path / str(i))
        loaded = M2AC.load(tmp_path / str(i), Plain())
        assert fingerprint(state_of(loaded)) == fingerprint(state_of(shared))
        np.testing.assert_array_equal(loaded.predict(obs, deterministic=True)[0], action)
        own.learn(2)
        assert_close(state_of(loaded.learn(2)), state_of(own), 1e-4)


def test_functions_are_held_against_what_happened_to_each() -> None:
    joined = agents(M2AC, termination_fn=lambda obs, action, next_obs: next_obs[0] > -99)
    with pytest.warns(EnvWarning, match=r"termination function is wrong in \d+ of the last 50 steps: it has 50 ends"):
        learn_together(joined, 51)


def test_a_callback_sees_agents_that_are_up_to_date_and_stops_by_false() -> None:
    joined, seen = agents(SAC), []

    def callback(given: Any, progress: Any) -> bool:
        assert given is joined
        assert [m["step"] for m in progress.metrics] == [agent.num_timesteps for agent in joined]
        seen.append((progress.step, [int(state_of(agent).real.size) for agent in joined]))
        return len(seen) < 2

    learn_together(joined, 120, callback, progress_bar=True)
    assert seen == [(75, [75, 75]), (100, [100, 100])]
    learn_together(joined, 3)
    assert [agent.num_timesteps for agent in joined] == [103, 103]


def test_a_signal_leaves_the_agents_whole() -> None:
    joined = agents(SAC)
    with pytest.raises(KeyboardInterrupt):  # SIGTERM: a shell starts background jobs that ignore SIGINT
        learn_together(joined, 120, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert [agent.num_timesteps for agent in joined] == [76, 76]
    assert [int(state_of(agent).real.size) for agent in joined] == [76, 76]


def test_buffers_of_different_room_are_made_alike() -> None:
    first, second = agents(SAC, random_steps=60, **{"replay.capacity": None})
    first.learn(80, lambda agent, progress: False)
    second.learn(50)
    learn_together([first, second], 5)
    assert [state_of(agent).real.rows.reward.shape for agent in (first, second)] == [(100,), (100,)]  # twice 50


def far(kind: type[Agent]) -> list[Agent]:
    first, second = agents(kind)
    return [first, second.learn(5)]


def sharing() -> list[Agent]:
    env = Plain()
    return [SAC(env, seed=seed, **tiny("sac")) for seed in SEEDS]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (list, "agents must not be empty; make some that differ in their seed"),
        (
            lambda: [agents()[0], agents(horizon=3)[1]],
            "agents must differ in their seed alone, but agents[1] has horizon=3; let it learn apart",
        ),
        (lambda: [agents()[0], agents(MBPO)[1]], "but agents[1] has algo=mbpo; let it learn apart"),
        (lambda: agents(SAC)[:1] * 2, "agents[0] and agents[1] have the same seed; every agent must have one of its"),
        (sharing, "agents[0] and agents[1] have the same env; every agent must have one of its own"),
        (
            lambda: [agents()[0], agents(reward_fn=lambda obs, action, next_obs: obs[0])[1]],
            "agents must have one reward_fn, but agents[1] has another; give the same to all",
        ),
        (
            lambda: [SAC("Pendulum-v1", seed=0, **tiny("sac")), SAC("MountainCarContinuous-v0", seed=1, **tiny("sac"))],
            "agents must have the same task, but agents[1] has <TimeLimit<",
        ),
        (
            lambda: far(SAC),
            "agents must be equally far, but agents[1] has taken 5 steps and made 0 updates, agents[0] 0 and 0; "
            "let those behind learn on their own first",
        ),
    ],
)
def test_agents_that_cannot_learn_together_are_refused_with_the_remedy(made: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        learn_together(made(), 10)
    assert message in str(caught.value)


def test_agents_that_began_in_another_way_are_refused() -> None:
    first, second = agents(SAC, random_steps=None)
    first.learn(400, lambda agent, progress: False)  # a fifth of a short run is random
    second.learn(500, lambda agent, progress: False)
    before = [fingerprint(state_of(agent)) for agent in (first, second)]
    with pytest.raises(ConfigError) as caught:
        learn_together([first, second], 10)
    assert [fingerprint(state_of(agent)) for agent in (first, second)] == before, "a refusal changes nothing"
    assert str(caught.value) == (
        "agents must have begun alike, but agents[1] began with random_steps=100; "
        "let all begin with the same total_timesteps"
    )


def test_learning_nothing_together_is_refused() -> None:
    with pytest.raises(ConfigError, match="total_timesteps must be a positive whole number, got 0"):
        learn_together(agents(SAC), 0)
