"""The agent: it learns, acts, is saved and loaded."""

import inspect
import json
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
from strange_envs import Plain, Unrepeatable
from tiny import tiny

from m2ac import M2AC, MBPO, SAC, AgentConfig, ConfigError, RunConfig
from m2ac.agent import AGENTS, Agent
from m2ac.envs.notices import EnvWarning
from m2ac.envs.world import EnvError
from m2ac.runs import checkpoint
from m2ac.runs.checkpoint import MANIFEST, STATE, CheckpointError, fingerprint

OBS = np.array([1.0, 0.0, 0.5])


def make(algo: str, env: Any = "Pendulum-v1", **others: Any) -> Agent:
    return AGENTS[algo](env, **{**tiny(algo), **others})


def state_of(agent: Agent) -> str:
    assert agent._training is not None
    return fingerprint(agent._training.state)


class Story(NamedTuple):
    """An agent that learned 70 steps, was saved amid its first episode, and learned 30 more."""

    saved: Path
    then: str  # its state at that time
    action: np.ndarray
    agent: Agent


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Story]:
    told = {}
    for algo in AGENTS:
        agent = make(algo, gym.make("Pendulum-v1"), seed=3).learn(70)
        saved = tmp_path_factory.mktemp("agents") / algo
        agent.save(saved)
        then, action = state_of(agent), agent.predict(OBS, deterministic=True)[0]
        told[algo] = Story(saved, then, action, agent.learn(30))
    return told


each_algo = pytest.mark.parametrize("algo", list(AGENTS))


# Acting


@each_algo
def test_predict_gives_one_action_per_observation_within_bounds(stories: dict[str, Story], algo: str) -> None:
    agent = stories[algo].agent
    for shape in [(3,), (1, 3), (5, 3)]:
        for deterministic in (True, False):
            actions, state = agent.predict(np.full(shape, 100.0), "kept", None, deterministic)
            assert actions.shape == (*shape[:-1], 1)
            assert actions.dtype == np.float32
            assert (np.abs(actions) <= 2).all()
            assert state == "kept"


def test_a_deterministic_action_repeats_and_a_sampled_one_does_not(stories: dict[str, Story]) -> None:
    agent = stories["m2ac"].agent
    first, again = (agent.predict(OBS, deterministic=True)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert len({float(agent.predict(OBS)[0][0]) for _ in range(10)}) == 10
    rows = agent.predict(np.stack([OBS, -OBS]), deterministic=True)[0]
    np.testing.assert_allclose(rows[0], first, rtol=1e-6)
    assert rows[0] != rows[1]


@pytest.mark.parametrize("shape", [(), (2,), (5, 2), (1, 5, 3)])
def test_an_observation_of_another_shape_is_refused(stories: dict[str, Story], shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        stories["sac"].agent.predict(np.zeros(shape))
    assert str(caught.value) == f"observation must have shape (3,) or (n, 3), got {shape}"


@each_algo
def test_an_agent_acts_before_it_has_learned_and_learns_then(algo: str) -> None:
    agent = make(algo)
    before = agent.predict(OBS, deterministic=True)[0]
    agent.learn(5)
    np.testing.assert_array_equal(agent.predict(OBS, deterministic=True)[0], before)  # random steps teach nothing
    assert agent.num_timesteps == 5


class VecEnv:
    """As much of a vectorised environment as evaluate_policy of stable-baselines3 uses."""

    num_envs = 2

    def __init__(self) -> None:
        self.envs = [gym.make("Pendulum-v1", max_episode_steps=20 + 5 * i) for i in range(2)]

    def reset(self) -> np.ndarray:
        return np.stack([env.reset(seed=i)[0] for i, env in enumerate(self.envs)])

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        assert actions.shape == (2, 1)
        rows, rewards, dones = [], [], []
        for env, action in zip(self.envs, actions, strict=True):
            assert env.action_space.contains(action)
            obs, reward, terminated, truncated, _ = env.step(action)
            rows.append(env.reset()[0] if terminated or truncated else obs)
            rewards.append(reward)
            dones.append(terminated or truncated)
        return np.stack(rows), np.array(rewards), np.array(dones), [{}, {}]


def test_an_agent_can_be_given_to_evaluate_policy(stories: dict[str, Story]) -> None:
    parameters = inspect.signature(Agent.predict).parameters
    assert list(parameters) == ["self", "observation", "state", "episode_start", "deterministic"]
    assert [p.default for p in parameters.values()][2:] == [None, None, False]
    model, env = stories["m2ac"].agent, VecEnv()
    lengths: list[int] = []
    current = np.zeros(2, int)
    observations, states, episode_starts = env.reset(), None, np.ones((2,), dtype=bool)
    while len(lengths) < 4:
        actions, states = model.predict(
            observations,
            state=states,
            episode_start=episode_starts,
            deterministic=True,
        )
        observations, _, episode_starts, _ = env.step(actions)
        current += 1
        lengths += [int(n) for n in current[episode_starts]]
        current[episode_starts] = 0
    assert lengths == [20, 25, 20, 25]


def test_evaluate_plays_whole_episodes_in_an_environment_of_its_own(stories: dict[str, Story]) -> None:
    agent = stories["sac"].agent
    before = state_of(agent)
    returns = agent.evaluate(2)
    assert len(returns) == 2
    assert returns == agent.evaluate(2)
    assert returns[0] != returns[1]
    assert agent.evaluate(2, eval_env=gym.make("Pendulum-v1")) == returns
    assert state_of(agent) == before
    with pytest.raises(ConfigError, match="episodes must be positive, got 0"):
        agent.evaluate(0)


# Learning


def test_a_callback_sees_every_step_and_stops_by_false() -> None:
    agent = make("sac", seed=3)
    seen: list[tuple[int, str]] = []

    def callback(agent: Agent, progress: Any) -> bool | None:
        seen.append((progress.step, progress.phase))
        return False if progress.step == 60 else None

    agent.learn(70, callback)
    assert agent.num_timesteps == 60
    assert [step for step, _ in seen] == [50, *range(51, 61)]
    assert {phase for _, phase in seen} == {"exploring", "learning"}
    agent.learn(10)
    assert agent.num_timesteps == 70


def test_stopping_anywhere_and_going_on_changes_nothing(stories: dict[str, Story]) -> None:
    agent = make("m2ac", gym.make("Pendulum-v1"), seed=3)
    stopped: list[str] = []

    def stop(agent: Agent, progress: Any) -> bool:
        """Once in every phase: a fit that is always left at its start would never end."""
        if progress.phase in stopped:
            return True
        stopped.append(progress.phase)
        return False

    while agent.num_timesteps < 70:
        agent.learn(70 - agent.num_timesteps, stop)
    assert stopped == ["exploring", "fitting", "imagining", "learning"]
    assert state_of(agent) == stories["m2ac"].then


def test_learning_twice_grows_the_buffer_and_keeps_the_settings(stories: dict[str, Story]) -> None:
    training = stories["m2ac"].agent._training
    assert training is not None
    assert training.step == 100
    assert training.state.real.rows.reward.shape == (140,)  # twice 70: growing seldom means compiling seldom
    assert int(training.state.real.size) == 100
    assert training.config.random_steps == 50
    assert training.state.counters.updates == 50


def test_a_buffer_of_a_given_size_stays_that_size() -> None:
    agent = make("sac", **{"replay.capacity": 30}).learn(35).learn(15)
    assert agent._training is not None
    assert agent._training.state.real.rows.reward.shape == (30,)


def test_updates_from_a_log_are_refused_where_there_is_none() -> None:
    with pytest.raises(ConfigError, match="offline_updates must be 0 without logged experience, got 30"):
        make("sac", offline_updates=30).learn(60)


class Count(gym.Env[Any, Any]):
    """Every step adds 1."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = 0.0
        return np.array([self.x], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x += 1.0
        return np.array([self.x], np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("algo", ["sac", "ppo"])
@pytest.mark.parametrize("lent", [False, True])
def test_an_environment_that_was_used_in_between_begins_a_new_episode(algo: str, lent: bool) -> None:
    env = gym.wrappers.TimeLimit(Count(), 40)
    agent = make(algo, env).learn(60)  # 20 steps into its second episode
    if lent:
        agent.evaluate(1, eval_env=env)
    else:
        env.reset()
        for _ in range(7):
            env.step(np.zeros(1, np.float32))
    with pytest.warns(EnvWarning, match=r"was used in the middle of a training episode, which therefore ends there"):
        agent.learn(10)
    assert agent._training is not None
    rows = agent._training.state.real.rows
    np.testing.assert_array_equal((rows.next_obs - rows.obs)[:70], 1.0)
    np.testing.assert_array_equal(rows.obs[60:70, 0], np.arange(10))


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_a_callback_that_uses_the_environment_begins_a_new_episode(algo: str) -> None:
    env = gym.wrappers.TimeLimit(Count(), 400)
    agent = make(algo, env, scale_observations=False)
    used_at: list[int] = []

    def callback(agent: Agent, progress: Any) -> None:
        if progress.step >= 20 and not used_at:
            agent.evaluate(1, eval_env=env)
            used_at.append(progress.step)

    with pytest.warns(EnvWarning, match=r"was used in the middle of a training episode, which therefore ends there"):
        agent.learn(100, callback)
    assert agent._training is not None
    rows = agent._training.state.real.rows
    np.testing.assert_array_equal((rows.next_obs - rows.obs)[:100], 1.0)
    np.testing.assert_array_equal(rows.obs[used_at[0] : 100, 0], np.arange(100 - used_at[0]))


def test_learning_in_pieces_goes_on_in_the_episode_under_way() -> None:
    agent = make("sac", gym.wrappers.TimeLimit(Count(), 40)).learn(60)
    agent.predict(np.zeros(1))
    agent.learn(10)
    assert agent._training is not None
    np.testing.assert_array_equal(agent._training.state.real.rows.obs[60:70, 0], np.arange(20, 30))


def test_learning_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="total_timesteps must be a positive whole number, got 0"):
        make("sac").learn(0)


def test_the_seed_and_settings_win_over_a_configuration() -> None:
    config = RunConfig(algo="sac", seed=1, steps=500)
    assert SAC("Pendulum-v1", config=config).config == AgentConfig(algo="sac", seed=1)
    assert SAC("Pendulum-v1", config=config, seed=2).config.seed == 2
    assert SAC("Pendulum-v1", config=config, sac={"hidden": 8}).config.sac.hidden == 8


def test_wrong_settings_are_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r'no setting "horzon"\. Perhaps you meant "horizon"\?'):
        M2AC("Pendulum-v1", horzon=3)
    with pytest.raises(ConfigError, match="horizon must be a whole number or none, got '3'"):
        M2AC("Pendulum-v1", horizon="3")
    with pytest.raises(ConfigError, match=r"one argument without a name, the environment, got 2; there is no policy"):
        M2AC("MlpPolicy", "Pendulum-v1")
    with pytest.raises(ConfigError, match="algo must be m2ac for M2AC, got sac; use SAC"):
        M2AC("Pendulum-v1", config=AgentConfig(algo="sac"))


# Environments and functions of the user's own


def test_an_environment_object_without_a_spec_is_learned_with_its_termination(tmp_path: Path) -> None:
    agent = make("m2ac", Plain()).learn(70)
    training = agent._training
    assert training is not None
    assert training.imagination is not None
    assert training.imagination.termination_fn is None
    assert bool(np.asarray(training.state.real.rows.terminated).any())
    actions, _ = agent.predict(np.zeros((9, 2)))
    assert (actions >= 0).all()
    assert (actions <= 10).all()
    with pytest.raises(ConfigError, match=r"no spec.*pass eval_env="):
        agent.evaluate(1)
    assert len(agent.evaluate(1, eval_env=Plain())) == 1
    agent.save(tmp_path / "a")
    assert json.loads((tmp_path / "a" / MANIFEST).read_text())["learns_termination"] is True
    with pytest.raises(ConfigError, match="trained without a termination_fn of its own; leave it out of load"):
        M2AC.load(tmp_path / "a", Plain(), termination_fn=lambda obs, action, next_obs: obs[0] > 1)


def test_functions_of_the_user_win_and_get_actions_in_the_environments_units(tmp_path: Path) -> None:
    def reward(obs: Any, action: Any, next_obs: Any) -> Any:
        return action[0]

    def ends(obs: Any, action: Any, next_obs: Any) -> Any:
        return action[0] > 5

    with pytest.warns(
        EnvWarning, match=r"the termination function is wrong in \d+ of the last 50 steps: it has \d+ ends"
    ):
        agent = make("mbpo", Plain(), reward_fn=reward, termination_fn=ends).learn(70)
    assert agent._training is not None
    imagined = agent._training.state.imagined
    assert imagined is not None
    count = int(imagined.counts[0])
    rows = [np.asarray(x)[:count] for x in imagined.rows]
    _, action, rewards, _, terminated = rows
    assert count > 100
    np.testing.assert_allclose(rewards, 5 + 5 * action[:, 0], atol=1e-5)
    np.testing.assert_array_equal(terminated, rewards > 5)
    assert 0 < terminated.mean() < 1

    agent.save(tmp_path / "a")
    with pytest.raises(ConfigError, match="trained with a reward_fn of its own; give it to load"):
        MBPO.load(tmp_path / "a", Plain(), termination_fn=ends)
    with pytest.raises(ConfigError, match="trained with a termination_fn of its own; give it to load"):
        MBPO.load(tmp_path / "a", Plain(), reward_fn=reward)
    loaded = MBPO.load(tmp_path / "a", Plain(), termination_fn=ends, reward_fn=reward)
    assert state_of(loaded) == state_of(agent)


@pytest.mark.parametrize(
    ("ends", "reward", "told"),
    [
        (lambda o, a, n: n[0] > 1, lambda o, a, n: n.sum(), None),
        (
            lambda o, a, n: n[0] > -99,
            lambda o, a, n: n.sum(),
            r"termination function is wrong in \d+ of .* it has 50 ends",
        ),
        (lambda o, a, n: n[0] > 1, lambda o, a, n: n.sum() + 1, r"reward function is off by 1 in the last 50 steps"),
    ],
)
def test_functions_are_held_against_what_happened(ends: Any, reward: Any, told: str | None) -> None:
    agent = make("m2ac", Plain(), termination_fn=ends, reward_fn=reward, random_steps=50)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agent.learn(51)
    said = [str(each.message) for each in caught if " function is " in str(each.message)]
    assert len(said) == (told is not None)
    assert all(re.search(told or "", text) for text in said), said


def test_the_users_termination_wins_over_the_tasks() -> None:
    agent = M2AC("Pendulum-v1", termination_fn=lambda obs, action, next_obs: next_obs[2] > action[0])
    assert agent._termination_fn is not None
    assert bool(agent._termination_fn(jnp.zeros(3), jnp.array([0.5]), jnp.array([0.0, 0.0, 0.9]))) is False
    assert bool(agent._termination_fn(jnp.zeros(3), jnp.array([0.4]), jnp.array([0.0, 0.0, 0.9]))) is True
    assert M2AC("Pendulum-v1")._termination_fn is not None


def test_one_member_that_keeps_everything_imagines_rows() -> None:
    agent = make("mbpo", **{"model.members": 1, "model.elites": 1}).learn(70)
    assert agent._training is not None
    imagined = agent._training.state.imagined
    assert imagined is not None
    assert int(imagined.counts[0]) == 2 * 4 * 25  # horizon × rollouts


def test_a_world_that_gives_no_numbers_is_named_with_the_step() -> None:
    class Broken(Plain):
        def step(self, action: Any) -> Any:
            return np.array([np.inf, 0.0]), 0.0, False, False, {}

    with pytest.raises(EnvError, match=r"observation\[0\] is inf in train episode 0 \(seed \d+\), step 1; "):
        make("sac", Broken()).learn(70)


# Saving and loading


@each_algo
def test_a_loaded_agent_is_the_saved_one_and_learns_on_as_if_never_saved(stories: dict[str, Story], algo: str) -> None:
    story = stories[algo]
    loaded = AGENTS[algo].load(story.saved, gym.make("Pendulum-v1"))
    assert type(loaded) is AGENTS[algo]
    assert loaded.num_timesteps == 70
    assert state_of(loaded) == story.then
    np.testing.assert_array_equal(loaded.predict(OBS, deterministic=True)[0], story.action)
    assert loaded.config == story.agent.config
    loaded.learn(30)
    assert state_of(loaded) == state_of(story.agent)


def test_twin_seeds_are_equal_and_others_differ(stories: dict[str, Story]) -> None:
    assert state_of(make("sac", seed=3).learn(70)) == stories["sac"].then
    assert state_of(make("sac", seed=4).learn(70)) != stories["sac"].then


def test_an_agent_saved_before_it_learned_learns_as_if_never_saved(tmp_path: Path) -> None:
    settings = {name: value for name, value in tiny("sac").items() if name != "random_steps"}
    agent = SAC("Pendulum-v1", **settings)
    agent.save(tmp_path / "a")
    loaded = SAC.load(tmp_path / "a", "Pendulum-v1")
    assert state_of(loaded.learn(70)) == state_of(agent.learn(70))


def test_the_base_class_loads_every_kind_and_a_users_subclass_its_own(stories: dict[str, Story]) -> None:
    class Mine(SAC):
        pass

    assert type(Agent.load(stories["mbpo"].saved, "Pendulum-v1")) is MBPO
    assert type(Mine.load(stories["sac"].saved, "Pendulum-v1")) is Mine


def test_the_wrong_class_or_environment_is_refused(stories: dict[str, Story]) -> None:
    with pytest.raises(ConfigError, match=r"holds a m2ac agent; load it with M2AC\.load"):
        SAC.load(stories["m2ac"].saved, "Pendulum-v1")
    message = "was trained with 3 observations and 1 actions, but the environment has 2 and 1; pass the one"
    with pytest.raises(ConfigError, match=message):
        SAC.load(stories["sac"].saved, "MountainCarContinuous-v0")


def copied(story: Story, tmp_path: Path) -> Path:
    place = tmp_path / "copy"
    place.mkdir()
    for name in (MANIFEST, STATE):
        (place / name).write_bytes((story.saved / name).read_bytes())
    return place


def test_a_flipped_bit_anywhere_in_the_state_is_noticed(stories: dict[str, Story], tmp_path: Path) -> None:
    place = copied(stories["sac"], tmp_path)
    data = (place / STATE).read_bytes()
    for position in (0, 100, len(data) // 2, len(data) - 1):
        (place / STATE).write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(CheckpointError, match=rf"{STATE} is damaged: its SHA-256 is not the one that was noted"):
            SAC.load(place, "Pendulum-v1")


def sealed(manifest: dict[str, Any]) -> str:
    return checkpoint._sealed({name: value for name, value in manifest.items() if name != "digest"})


def test_missing_files_other_schemas_and_damaged_manifests_are_refused(
    stories: dict[str, Story], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=rf"nowhere is not a checkpoint: it has no {MANIFEST}"):
        SAC.load(tmp_path / "nowhere", "Pendulum-v1")
    place = copied(stories["sac"], tmp_path)
    manifest = json.loads((place / MANIFEST).read_text())
    wrong: list[tuple[Any, str]] = [
        ({**manifest, "schema": 1}, "has schema '1'; this version of m2ac reads 3 to 5; use the version that wrote it"),
        ({**manifest, "format": "other"}, "is not the manifest of an m2ac checkpoint"),
        ([], "is not the manifest of an m2ac checkpoint"),
        ({**manifest, "config": {"sead": 1}}, "is damaged.*sead.*seed"),
        ({**manifest, "config": {}}, "is damaged"),
        ({k: v for k, v in manifest.items() if k != "capacity"}, "is damaged.*capacity"),
        ({**manifest, "capacity": 71}, "is damaged.*sizes that cannot be"),
        ({**manifest, "config": {**manifest["config"], "sac": {"layers": 3}}}, "does not fit its manifest"),
    ]
    for values, message in wrong:
        (place / MANIFEST).write_text(sealed(values) if isinstance(values, dict) else json.dumps(values))
        with pytest.raises(CheckpointError, match=message):
            SAC.load(place, "Pendulum-v1")
    (place / MANIFEST).write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        SAC.load(place, "Pendulum-v1")
    (place / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="its digest is not that of its content"):
        SAC.load(place, "Pendulum-v1")
    (place / MANIFEST).write_text(sealed(manifest))
    (place / STATE).unlink()
    with pytest.raises(CheckpointError, match=f"{STATE} cannot be read"):
        SAC.load(place, "Pendulum-v1")


def test_an_environment_that_cannot_be_replayed_goes_on_with_a_new_episode_and_says_so(tmp_path: Path) -> None:
    agent = make("sac", Unrepeatable()).learn(70)
    agent.save(tmp_path / "a")
    assert agent._training is not None
    before = agent._training.state.episode
    assert before.length > 0
    with pytest.warns(UserWarning, match="cannot be replayed exactly; learning goes on with a new episode"):
        loaded = SAC.load(tmp_path / "a", Unrepeatable())
    assert loaded._training is not None
    assert loaded._training.state.episode.number == before.number + 1
    loaded.learn(5)


def test_an_environment_that_fails_while_it_is_replayed_goes_on_with_a_new_episode_and_says_so(tmp_path: Path) -> None:
    class FailsAtFirst(Plain):
        resets = 0

        def step(self, action: Any) -> Any:
            if self.resets == 1:
                raise OSError("no answer")
            return super().step(action)

        def reset(self, **kwargs: Any) -> Any:
            self.resets += 1
            return super().reset(**kwargs)

    agent = make("sac", Plain()).learn(70)
    agent.save(tmp_path / "a")
    assert agent._training is not None
    before = agent._training.state.episode
    assert before.length > 0
    with pytest.warns(UserWarning, match="cannot be replayed exactly; learning goes on with a new episode"):
        loaded = SAC.load(tmp_path / "a", FailsAtFirst())
    assert loaded._training is not None
    assert loaded._training.state.episode.number == before.number + 1
    assert loaded.learn(5).num_timesteps == 75


@pytest.mark.parametrize(
    ("name", "function", "words"),
    [
        ("termination_fn", lambda o, a, n: np.abs(n[0]) > 5, "write it with jax.numpy"),
        ("termination_fn", lambda o, a, n: bool(n[0] > 1), "without if or bool"),
        ("termination_fn", lambda o, n: n[0] > 1, "must take (obs, action, next_obs)"),
        ("termination_fn", lambda o, a, n: n[0], "return one bool, got float32 of shape ()"),
        ("termination_fn", lambda o, a, n: n > 1, "got bool of shape (3,)"),
        ("termination_fn", True, "pass a function"),
        ("reward_fn", lambda o, a, n: n[:1], "return one float, got float32 of shape (1,)"),
        ("reward_fn", lambda o, a, n: None, "return one float"),
    ],
)
def test_a_function_that_cannot_work_is_refused_before_anything_is_collected(
    name: str, function: Any, words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        M2AC("Pendulum-v1", **{name: function})
    assert words in str(refused.value)
    assert str(refused.value).startswith(name)


@pytest.mark.parametrize("env", [None, gym.Env, gym.make_vec("Pendulum-v1", 2)])
def test_what_is_not_one_environment_is_refused(env: Any) -> None:
    with pytest.raises(ConfigError, match=r"env must be .*; pass "):
        M2AC(env)


@pytest.mark.parametrize("steps", ["300", 2.5, 0, -1])
def test_steps_that_are_no_number_of_steps_are_refused(steps: Any) -> None:
    with pytest.raises(ConfigError, match="total_timesteps must be a positive whole number"):
        make("sac").learn(steps)
