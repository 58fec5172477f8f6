"""Tasks, noise, ids, spaces, seeds and the action scale."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from m2ac.config import RunConfig
from m2ac.envs import (
    TASKS,
    ActionScale,
    NoisyAction,
    Task,
    check_spaces,
    copy_env,
    episode_seed,
    find_task,
    make_env,
    register,
    task_of,
    terminations,
)
from m2ac.envs.world import World
from m2ac.resolving import resolve
from m2ac.settings import ConfigError

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*out of date.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*precision lowered.*:UserWarning"),
]


class Echo(gym.Env[Any, Any]):
    """Its observation is the action it received."""

    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        self.observation_space = observation_space or spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = action_space or spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return action, 0.0, False, False, {}


def noises(env: gym.Env[Any, Any], steps: int) -> np.ndarray:
    return np.array([env.step(np.zeros(2, np.float32))[0] for _ in range(steps)])


# Noise


def test_the_noise_has_mean_zero_the_given_deviation_and_no_memory() -> None:
    env = NoisyAction(Echo(), 0.2)
    env.reset(seed=0)
    drawn = noises(env, 20_000)
    assert np.abs(drawn.mean(0)).max() < 4 * 0.2 / np.sqrt(20_000)
    assert np.abs(drawn.std(0) - 0.2).max() < 0.004
    assert abs(np.corrcoef(drawn[:-1, 0], drawn[1:, 0])[0, 1]) < 0.03
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.03


def test_the_noise_follows_the_seed_and_goes_on_through_a_reset_without_one() -> None:
    env, twin = NoisyAction(Echo(), 0.1), NoisyAction(Echo(), 0.1)
    env.reset(seed=3)
    first, second = noises(env, 5), noises(env, 5)
    twin.reset(seed=3)
    np.testing.assert_array_equal(noises(twin, 5), first)
    twin.reset()
    np.testing.assert_array_equal(noises(twin, 5), second)
    twin.reset(seed=3)
    np.testing.assert_array_equal(noises(twin, 5), first)
    twin.reset(seed=4)
    assert not np.isin(noises(twin, 5), first).any()


def test_the_noise_is_added_in_the_actions_units_unclipped_and_leaves_the_callers_array_alone() -> None:
    env = NoisyAction(Echo(), 0.5)
    env.reset(seed=0)
    action = np.ones(2, np.float32)
    received = np.array([env.step(action)[0] for _ in range(100)])
    assert received.dtype == np.float32
    assert received.max() > 1.5
    np.testing.assert_array_equal(action, [1, 1])


def test_without_noise_the_action_passes_unchanged() -> None:
    env = NoisyAction(Echo(), 0)
    env.reset(seed=0)
    np.testing.assert_array_equal(env.step(np.array([0.3, -0.7], np.float32))[0], np.float32([0.3, -0.7]))


@pytest.mark.parametrize("sigma", [-0.1, np.nan, np.inf])
def test_a_deviation_that_is_none_is_refused(sigma: float) -> None:
    with pytest.raises(ConfigError, match=rf"sigma must be a finite number, at least 0, got {sigma}; use 0"):
        NoisyAction(Echo(), sigma)


def test_a_noisy_task_starts_where_the_plain_one_starts_and_then_departs_from_it() -> None:
    plain, noisy = make_env("HalfCheetah"), make_env("HalfCheetah-Noisy2")
    for seed in (5, None):  # the environment's own generator is not touched
        first, _ = plain.reset(seed=seed)
        np.testing.assert_array_equal(noisy.reset(seed=seed)[0], first)
        action = np.zeros(6, np.float32)
        assert not np.array_equal(plain.step(action)[0], noisy.step(action)[0])


# Tasks


def test_noisy_tasks_have_the_papers_levels_and_lengths() -> None:
    assert [TASKS[f"HalfCheetah-Noisy{i}"].noise for i in range(3)] == [0.05, 0.1, 0.2]
    assert [TASKS[f"Walker2d-Noisy{i}"].noise for i in range(3)] == [0.05, 0.1, 0.2]
    assert TASKS["HalfCheetah-Noisy1"].defaults["steps"] == 25_000
    assert TASKS["Walker2d-Noisy1"].defaults["steps"] == 50_000
    assert TASKS["Walker2d-Noisy1"].kwargs == TASKS["Walker2d"].kwargs


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_a_tasks_defaults_are_settings_that_exist(task: Task) -> None:
    config = resolve(RunConfig(env=task.name), task.defaults, action_dim=1, steps=task.defaults["steps"])
    assert config.steps == task.defaults["steps"]
    assert config.random_steps == task.defaults["random_steps"] == (500 if "Pendulum" in task.name else 5_000)
    assert config.sac.target_entropy == task.defaults["sac.target_entropy"]
    assert config.model.hidden == {"Humanoid": 400, "Pendulum": 100}.get(task.name, 200)
    assert config.eval_every == (250 if task.name == "Pendulum" else 1000)
    assert task.summary


@pytest.mark.parametrize(
    ("name", "observation", "action"),
    [("Humanoid", 45, 17), ("Ant", 27, 8), ("Walker2d", 17, 6), ("Hopper", 11, 3), ("HalfCheetah", 17, 6)],
)
def test_a_task_has_the_sizes_of_mbpo(name: str, observation: int, action: int) -> None:
    env = make_env(name)
    assert env.observation_space.shape == (observation,)
    assert env.action_space.shape == (action,)


@pytest.mark.parametrize(
    ("ours", "old", "same_physics"),
    [("Walker2d", "Walker2d-v4", True), ("Walker2d-v5", "Walker2d-v4", False), ("Hopper", "Hopper-v4", True)],
)
def test_the_papers_variant_is_v4_but_for_the_alive_bonus_of_the_failing_step(
    ours: str, old: str, same_physics: bool
) -> None:
    new, v4 = make_env(ours), make_env(old)
    rng = np.random.default_rng(0)
    equal, falls = True, 0
    for episode in range(10):
        a, b = new.reset(seed=episode)[0], v4.reset(seed=episode)[0]
        for _ in range(100):
            np.testing.assert_array_equal(a, b)
            action = rng.uniform(-1, 1, new.action_space.shape).astype(np.float32)
            a, reward, fallen, _, _ = new.step(action)
            b, v4_reward, v4_fallen, _, _ = v4.step(action)
            equal = np.array_equal(a, b)
            if not equal:
                break
            assert fallen == v4_fallen
            assert v4_reward - reward == pytest.approx(1.0 if fallen else 0.0, abs=1e-9)
            falls += fallen
            if fallen:
                break
        if not equal:
            break
    assert equal is same_physics
    assert falls == 10 or not same_physics


# Names and ids


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("HalfCheeta-v5", "HalfCheetah-v5"),
        ("Walker2d-Noisy3", "Walker2d-Noisy2"),
        ("pendulum", "Pendulum"),
        ("m2ac/Hoper-v0", "m2ac/Hopper-v0"),
    ],
)
def test_a_wrong_name_suggests_the_right_one(typed: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find_task(typed)
    assert str(caught.value) == f'no environment "{typed}". Perhaps you meant "{meant}"? See m2ac envs.'


def test_a_name_that_is_like_no_other_may_be_of_a_module_that_was_not_named() -> None:
    with pytest.raises(ConfigError, match='If a module of yours registers it, write "my_module:Heater-v0"'):
        find_task("Heater-v0")


def test_names_of_ours_and_of_gymnasium_lead_to_their_tasks() -> None:
    assert find_task("Walker2d") is TASKS["Walker2d"]
    assert find_task("m2ac/Walker2d-v0") is TASKS["Walker2d"]
    assert find_task("m2ac.envs:m2ac/Walker2d-Noisy1-v0") is TASKS["Walker2d-Noisy1"]
    plain = find_task("Walker2d-v5")
    assert (plain.id, plain.kwargs, plain.noise) == ("Walker2d-v5", {}, 0)
    assert plain.terminated is terminations.walker2d
    assert plain.defaults["sac.target_entropy"] == -3
    unknown = find_task("MountainCarContinuous-v0")
    assert (unknown.terminated, unknown.defaults) == (None, {})


def test_an_id_that_someone_else_took_over_gets_no_termination_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(gym.registry["Hopper-v5"], entry_point="their.package:Hopper")
    monkeypatch.setitem(gym.registry, "Hopper-v5", other)
    assert find_task("Hopper-v5").terminated is None


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    source = """import gymnasium as gym
gym.register("Tiny-v0", entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv", max_episode_steps=7)
"""
    (tmp_path / "tiny_module.py").write_text(source)
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "tiny_module"
    sys.modules.pop("tiny_module", None)
    gym.registry.pop("Tiny-v0", None)


def test_an_id_with_a_module_imports_it_first(module: str) -> None:
    task = find_task(f"{module}:Tiny-v0")
    assert (task.name, task.terminated) == (f"{module}:Tiny-v0", None)
    assert make_env(task).spec.max_episode_steps == 7
    with pytest.raises(ConfigError, match=f'no environment "{module}:Tinny-v0". Perhaps you meant "{module}:Tiny-v0"'):
        find_task(f"{module}:Tinny-v0")


def test_a_module_in_the_current_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here_module.py").write_text("""import gymnasium as gym
gym.register("Here-v0", entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv")
""")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    assert find_task("here_module:Here-v0").name == "here_module:Here-v0"
    assert sys.path[-1] == str(tmp_path)
    gym.registry.pop("Here-v0")


@pytest.mark.parametrize(
    ("name", "cause"), [("no_such_module", "ModuleNotFoundError"), ("broken_module", "ZeroDivisionError")]
)
def test_a_module_that_cannot_be_imported_is_named_with_the_remedy(name: str, cause: str, module: str) -> None:
    with pytest.raises(ConfigError, match=rf'cannot import the module "{name}" .*{cause}.*PYTHONPATH'):
        find_task(f"{name}:Id-v0")


def test_registering_again_changes_nothing(recwarn: pytest.WarningsRecorder) -> None:
    before = dict(gym.registry)
    register()
    assert dict(gym.registry) == before
    assert not recwarn.list
    ours = sorted(name for name in gym.registry if name.startswith("m2ac/"))
    noisy = [f"m2ac/{body}-Noisy{i}-v0" for body in ("HalfCheetah", "Walker2d") for i in range(3)]
    assert ours == sorted([*noisy, *(f"m2ac/{body}-v0" for body in ("Walker2d", "Hopper", "Humanoid", "Ant"))])


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.env_id != task.id])
def test_the_registered_id_gives_the_task_and_its_spec_gives_it_again(name: str) -> None:
    by_id = gym.make(f"m2ac.envs:m2ac/{name}-v0")
    by_json = gym.make(gym.envs.registration.EnvSpec.from_json(by_id.spec.to_json()))
    envs = [by_id, gym.make(by_id.spec), by_json, make_env(name), copy_env(make_env(name))]
    assert by_id.spec.max_episode_steps == 1000
    action = np.full(by_id.action_space.shape, 0.1, np.float32)
    reached = []
    for env in envs:
        env.reset(seed=1)
        reached.append([env.step(action)[0] for _ in range(3)][-1])
        assert task_of(env) is TASKS[name]
    for obs in reached[1:]:
        np.testing.assert_array_equal(obs, reached[0])


def test_a_changed_task_is_made_as_changed() -> None:
    env = make_env(replace(TASKS["Walker2d"], noise=0.3))
    assert isinstance(env, NoisyAction)
    assert env.sigma == 0.3


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: gym.make("Hopper-v5"), terminations.hopper),
        (lambda: gym.make("Walker2d-v5", xml_file="walker2d.xml", ctrl_cost_weight=0.1), terminations.walker2d),
        (lambda: gym.wrappers.RescaleAction(gym.make("Hopper-v5"), -2.0, 2.0), terminations.hopper),
        (lambda: gym.make("Pendulum-v1", g=5.0), terminations.never),
        (lambda: gym.make("Hopper-v5", terminate_when_unhealthy=False), None),
        (lambda: gym.make("Hopper-v5", exclude_current_positions_from_observation=False), None),
        (lambda: gym.wrappers.NormalizeObservation(gym.make("Hopper-v5")), None),
        (Echo, None),
    ],
)
def test_a_users_environment_keeps_its_termination_only_where_it_is_certainly_right(
    make: Callable[[], gym.Env[Any, Any]], expected: object
) -> None:
    assert task_of(make()).terminated is expected


# Making and copying


def test_whatever_goes_wrong_in_the_making_is_one_line_with_its_cause() -> None:
    with pytest.raises(ConfigError, match=r'cannot make the environment "Hopper-v3" \(ImportError: .*moved') as caught:
        make_env("Hopper-v3")
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="unexpected keyword argument 'colour'"):
        make_env("Pendulum", colour="red")


def test_a_copy_is_independent() -> None:
    env = gym.make("Pendulum-v1", max_episode_steps=20)
    copy = copy_env(env)
    assert copy.unwrapped is not env.unwrapped
    assert copy.spec.max_episode_steps == 20
    env.reset(seed=0)
    expected = env.step(np.ones(1, np.float32))[0]
    env.reset(seed=0)
    copy.reset(seed=1)
    copy.step(np.ones(1, np.float32))
    np.testing.assert_array_equal(env.step(np.ones(1, np.float32))[0], expected)


class Forgetful(gym.Wrapper[Any, Any, Any, Any]):
    """Does not record how it was made."""


@pytest.mark.parametrize(
    "env",
    [Echo(), Forgetful(gym.make("Pendulum-v1")), gym.wrappers.NormalizeObservation(gym.make("Pendulum-v1"))],
    ids=["no spec", "a wrapper that cannot be made again", "running statistics"],
)
def test_what_cannot_be_copied_needs_an_evaluation_environment(env: gym.Env[Any, Any]) -> None:
    with pytest.raises(ConfigError, match=r"; pass eval_env=$"):
        copy_env(env)


BOX = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("observation", "action", "remedy"),
    [
        (spaces.Discrete(4), BOX, "FlattenObservation"),
        (spaces.Dict({"a": BOX}), BOX, "FlattenObservation"),
        (spaces.Tuple((BOX, BOX)), BOX, "FlattenObservation"),
        (spaces.Box(0, 1, (2, 3)), BOX, "FlattenObservation"),
        (spaces.Box(0, 1, ()), BOX, "FlattenObservation"),
        (spaces.Box(0, 1, (0,)), BOX, "at least one number"),
        (BOX, spaces.Discrete(4), "continuous actions"),
        (BOX, spaces.MultiDiscrete([2, 2]), "another library"),
        (BOX, spaces.Dict({"a": BOX}), "TransformAction"),
        (BOX, spaces.Box(0, 1, (2, 3)), "TransformAction"),
        (BOX, spaces.Box(0, 1, (0,)), "nothing to learn"),
        (BOX, spaces.Box(0, 3, (2,), np.int32), "float32"),
        (BOX, spaces.Box(-np.inf, np.inf, (2,)), "finite bounds.*RescaleAction"),
        (BOX, spaces.Box(np.float32([0, 0]), np.float32([1, np.inf])), "finite bounds.*RescaleAction"),
        (BOX, spaces.Box(np.float32([0, 1]), np.float32([1, 1])), "cannot vary"),
    ],
    ids=str,
)
def test_a_space_that_cannot_work_is_named_with_the_remedy(observation: Any, action: Any, remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy) as caught:
        check_spaces(Echo(observation, action))
    assert str(observation if action is BOX else action) in str(caught.value)


def test_make_env_refuses_a_discrete_task() -> None:
    with pytest.raises(ConfigError, match=r"got Discrete\(2\)"):
        make_env("CartPole-v1")


def test_good_spaces_pass() -> None:
    check_spaces(Echo())
    check_spaces(Echo(spaces.Box(0, 255, (3,), np.uint8), spaces.Box(-2, 5, (1,), np.float64)))


# Seeds


def test_episode_seeds_are_fixed_for_good() -> None:
    # A change here would make every stored run impossible to resume.
    assert [episode_seed(0, "train", 0), episode_seed(0, "eval", 0)] == [2044266242, 1976665983]


def test_no_two_of_many_episodes_share_a_seed() -> None:
    seeds = [episode_seed(s, stream, e) for s in range(5) for stream in ("train", "eval") for e in range(400)]
    assert len(set(seeds)) == len(seeds)


@given(st.integers(0, 2**32 - 1), st.integers(0, 10**6), st.integers(0, 10**6))
def test_seeds_are_in_range_and_the_streams_never_meet(seed: int, episode: int, other: int) -> None:
    train, evaluation = episode_seed(seed, "train", episode), episode_seed(seed, "eval", other)
    assert 0 <= train < 2**31
    assert 0 <= evaluation < 2**31
    assert train != evaluation


# Action scale


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("low", "high", "middle"), [(0.1, 0.7, 0.4), (-2.0, 5.0, 1.5), (-1.0, 1.0, 0.0), (-0.4, 0.4, 0.0)]
)
def test_the_scale_is_exact_at_its_ends_and_in_the_middle(dtype: Any, low: float, high: float, middle: float) -> None:
    space = spaces.Box(low, high, (1,), dtype)
    scale = ActionScale.of(space)
    np.testing.assert_array_equal(scale.to_env([[-1], [1]]), [space.low, space.high])
    np.testing.assert_allclose(scale.to_env([0]), [middle], rtol=1e-7, atol=0)
    np.testing.assert_array_equal(scale.from_env(scale.to_env([[-1], [0], [1]])), [[-1], [0], [1]])
    assert scale.to_env(np.float32([0.3])).dtype == dtype
    assert scale.from_env([low]).dtype == np.float32


def test_the_scale_of_two_components() -> None:
    scale = ActionScale(np.array([-2.0, 0.0]), np.array([5.0, 10.0]))
    np.testing.assert_allclose(scale.to_env([0.5, -0.5]), [3.25, 2.5])
    np.testing.assert_allclose(scale.from_env([3.25, 2.5]), [0.5, -0.5])


@given(
    st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=3),
    st.floats(-1e3, 1e3, width=32),
    st.floats(2**-6, 1e3, width=32),
)
def test_scaled_actions_stay_in_bounds_and_come_back(actions: list[float], low: float, width: float) -> None:
    lows = np.full(len(actions), low, np.float32)
    scale = ActionScale(lows, np.float32(lows + np.float32(width)))
    scaled = scale.to_env(actions)
    assert (scaled >= scale.low).all()
    assert (scaled <= scale.high).all()
    ulp = np.spacing(np.maximum(np.abs(scale.low), np.abs(scale.high))) / width
    assert (np.abs(scale.from_env(scaled) - actions) <= 4 * ulp + 1e-6).all()


@given(st.floats(-1, 1, width=32))
def test_the_usual_bounds_change_no_bit_of_an_action(action: float) -> None:
    assert ActionScale.of(spaces.Box(-1, 1, (1,), np.float32)).to_env([action])[0] == action


def test_actions_beyond_the_ends_land_on_them() -> None:
    scale = ActionScale.of(spaces.Box(-2, 5, (1,), np.float32))
    np.testing.assert_array_equal(scale.to_env([[-1.5], [1.0000001]]), [[-2], [5]])
    np.testing.assert_array_equal(scale.from_env([[-3.0], [9.0]]), [[-1], [1]])


@pytest.mark.parametrize(("low", "high"), [([0.0], [0.0]), ([-np.inf], [1.0]), ([0], [1])])
def test_bounds_without_a_scale_are_refused(low: list[float], high: list[float]) -> None:
    with pytest.raises(ConfigError, match="low"):
        ActionScale(np.array(low), np.array(high))


class Several(gym.Env):
    """Observations in several arrays, as dm_control has them."""

    observation_space = spaces.Dict({"position": spaces.Box(-1, 1, (2,)), "velocity": spaces.Box(-1, 1, (1,))})
    action_space = spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"position": np.array([0.1, 0.2], np.float32), "velocity": np.array([0.3], np.float32)}, {}

    def step(self, action):
        return self.reset()[0], 0.0, False, False, {}


def test_observations_in_several_arrays_are_put_together_and_pictures_are_not():
    gym.register("Several-v0", Several)
    gym.register("Picture-v0", lambda **_: _with(spaces.Box(0, 255, (8, 8, 3), np.uint8)))
    try:
        world = World(make_env("Several-v0"), seed=0, stream="train")
        np.testing.assert_array_equal(world.reset(0), np.array([0.1, 0.2, 0.3], np.float32))
        with pytest.raises(ConfigError, match="the observation space must be a Box of rank 1"):
            make_env("Picture-v0")
    finally:
        del gym.registry["Several-v0"], gym.registry["Picture-v0"]


def _with(space):
    env = Several()
    env.observation_space = space
    return env


def test_a_dm_control_task_is_made_by_the_name_that_shimmy_gives_it():
    pytest.importorskip("shimmy", reason="shimmy is not installed: pip install 'm2ac[tasks]'")
    pytest.importorskip("dm_control", reason="dm_control is not installed: pip install 'm2ac[tasks]'")
    world = World(make_env("shimmy:dm_control/cartpole-swingup-v0"), seed=0, stream="train")
    assert (world.obs_dim, world.action_dim) == (5, 1)
    first = world.reset(0)
    assert world.step(np.zeros(1, np.float32)).next_obs.shape == (5,)
    np.testing.assert_array_equal(world.reset(0), first)
    world.close()


def test_the_name_of_a_dm_control_task_without_shimmy_says_how():
    with pytest.raises(ConfigError, match=r'pip install "shimmy\[dm-control\]" and write "shimmy:dm_control/x-y-v0"'):
        make_env("dm_control/x-y-v0")
