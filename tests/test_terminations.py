"""The simulator is the oracle of every termination function."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from m2ac.envs import TASKS, find_task, make_env, terminations

pytestmark = pytest.mark.filterwarnings("ignore:.*out of date.*:DeprecationWarning")

STEPS = 2000
NEVER = ["HalfCheetah", "HalfCheetah-v4", "HalfCheetah-v5", "Swimmer", "Swimmer-v4", "Swimmer-v5", "Pendulum"]
FALLING = [
    *("Walker2d", "Walker2d-Noisy2", "Walker2d-v4", "Walker2d-v5"),
    *("Hopper", "Hopper-v4", "Hopper-v5"),
    *("Ant", "Ant-v4", "Ant-v5"),
    *("Humanoid", "Humanoid-v4", "Humanoid-v5"),
    *("InvertedPendulum", "InvertedPendulum-v4", "InvertedPendulum-v5"),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo writes a log into the working directory when a perturbed body flies apart."""
    monkeypatch.chdir(tmp_path)


def perturb(env: gym.Env[Any, Any], rng: np.random.Generator) -> None:
    """Push the body somewhere its own motion would seldom take it."""
    sim = env.unwrapped
    if hasattr(sim, "set_state"):
        size = rng.choice([0.02, 0.2, 1.0])
        qpos = sim.data.qpos + size * rng.uniform(-1, 1, sim.data.qpos.shape)
        sim.set_state(qpos, sim.data.qvel + 10 * size * rng.normal(size=sim.data.qvel.shape))


def play(name: str, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Transitions under random, held and extreme actions from ordinary and from perturbed states."""
    env = make_env(name, disable_env_checker=True)
    rng = np.random.default_rng(7)
    low, high = env.action_space.low, env.action_space.high
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray, bool]] = []
    episode = 0
    while len(rows) < steps:
        obs, _ = env.reset(seed=episode)
        if episode % 3 == 2:
            perturb(env, rng)
        held = rng.uniform(low, high)
        for step in range(60):
            drawn = rng.uniform(low, high)
            action = (drawn, held, np.where(held > 0, high, low))[episode % 3 if step < 30 else 0].astype(np.float32)
            next_obs, _, terminated, truncated, _ = env.step(action)
            rows.append((obs, action, next_obs, terminated))
            obs = next_obs
            if terminated or truncated:
                break
        episode += 1
    env.close()
    obs, action, next_obs, terminated = (np.array(column) for column in zip(*rows[:steps], strict=True))
    return obs.astype(np.float32), action, next_obs.astype(np.float32), terminated


@pytest.mark.parametrize("name", NEVER + FALLING)
def test_the_function_agrees_with_the_simulator_on_every_one_of_2000_float32_transitions(name: str) -> None:
    obs, action, next_obs, terminated = play(name)
    function = find_task(name).terminated
    assert function is not None
    predicted = np.asarray(jax.vmap(function)(obs, action, next_obs))
    assert predicted.dtype == bool
    np.testing.assert_array_equal(predicted, terminated)
    if name in FALLING:
        assert 20 < terminated.sum() < STEPS - 20
    else:
        assert not terminated.any()


@pytest.mark.parametrize(
    ("name", "height_at", "height", "healthy"),
    [
        ("Walker2d", 1, 0.8, False),
        ("Walker2d", 1, 2.0, False),
        ("Hopper", 1, 0.7, False),
        ("Ant", 2, 0.2, True),
        ("Ant", 2, 1.0, True),
        ("Humanoid", 2, 1.0, False),
        ("Humanoid", 2, 2.0, False),
    ],
)
def test_exactly_on_a_bound_the_function_says_what_the_simulator_says(
    name: str, height_at: int, height: float, healthy: bool
) -> None:
    sim = make_env(name).unwrapped
    sim.reset(seed=0)
    qpos = sim.data.qpos.copy()
    qpos[height_at] = height
    sim.set_state(qpos, sim.data.qvel)
    next_obs = jnp.asarray(sim._get_obs(), jnp.float32)
    assert bool(sim.is_healthy) is healthy
    assert bool(TASKS[name].terminated(next_obs, jnp.zeros(1), next_obs)) is not healthy


@pytest.mark.parametrize(
    ("function", "next_obs", "expected"),
    [
        (terminations.never, [jnp.nan, 9.0], False),
        (terminations.walker2d, [1.25, 0.99], False),
        (terminations.walker2d, [1.25, 1.0], True),
        (terminations.walker2d, [1.25, -1.0], True),
        (terminations.walker2d, [jnp.nan, 0.0], True),
        (terminations.hopper, [1.25, 0.19, -99.0], False),
        (terminations.hopper, [1.25, 0.2, 0.0], True),
        (terminations.hopper, [1.25, -0.2, 0.0], True),
        (terminations.hopper, [1.25, 0.0, 100.0], True),
        (terminations.hopper, [1.25, 0.0, -100.0], True),
        (terminations.hopper, [150.0, 0.0, 0.0], False),  # the range of ±100 is not about the height
        (terminations.hopper, [1.25, 0.0, jnp.nan], True),
        (terminations.hopper, [jnp.inf, 0.0, 0.0], True),
        (terminations.ant, [0.5, 300.0], False),
        (terminations.ant, [0.5, jnp.inf], True),
        (terminations.ant, [0.5] + [0.0] * 26 + [jnp.nan], False),  # entry 27 is a contact force, not the state
        (terminations.humanoid, [1.4, 0.0], False),
        (terminations.humanoid, [jnp.nan, 0.0], True),
        (terminations.inverted_pendulum, [0.0, 0.2, 0.0, 0.0], False),
        (terminations.inverted_pendulum, [0.0, -0.21, 0.0, 0.0], True),
        (terminations.inverted_pendulum, [0.0, 0.0, jnp.nan, 0.0], True),
    ],
)
def test_termination_of_a_hand_written_observation(function: Any, next_obs: list[float], expected: bool) -> None:
    value = function(jnp.zeros(1), jnp.zeros(1), jnp.asarray(next_obs, jnp.float32))
    assert value.shape == ()
    assert bool(value) is expected


def test_the_double_pendulums_end_is_learned_because_its_observation_is_not_what_the_simulator_judged() -> None:
    assert TASKS["InvertedDoublePendulum"].terminated is None
    env = make_env("InvertedDoublePendulum")
    env.reset(seed=0)
    for _ in range(4):
        obs, *_ = env.step(np.array([0.5], np.float32))
    seen = 0.6 * (obs[3] + obs[3] * obs[4] - obs[1] * obs[2])  # cos a + cos(a + b), links of 0.6
    sim = env.unwrapped
    judged = sim.data.site_xpos[0][2]
    assert abs(judged - seen) > 1e-7
    mujoco.mj_forward(sim.model, sim.data)
    assert sim.data.site_xpos[0][2] == pytest.approx(seen, abs=1e-12)
