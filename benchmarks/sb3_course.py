"""stable-baselines3 in `beside_sb3`."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize, sync_envs_normalization

from benchmarks.course import follow

PENDULUM = {"n_steps": 4096, "batch_size": 128, "gamma": 0.95, "learning_rate": 1e-3}


def world(task: str) -> gym.Env[Any, Any]:
    """With actions in [-1, 1], as m2ac has them everywhere."""
    return Monitor(gym.wrappers.RescaleAction(gym.make(task), -1.0, 1.0))


def make(task: str, algo: str, seed: int, steps: int) -> tuple[Callable[[int], object], Callable[[], list[float]]]:
    """An agent with the settings that `our_course` has too: PPO's and SAC's usual ones for MuJoCo."""
    torch.set_num_threads(1)
    worlds = [DummyVecEnv([lambda: world(task)]) for _ in range(2)]
    small = task == "Pendulum-v1"
    agent: Any
    if algo == "ppo":
        settings: dict[str, Any] = PENDULUM if small else {}
        env = VecNormalize(worlds[0], clip_obs=float("inf"), gamma=settings.get("gamma", 0.99))
        scored_in = VecNormalize(worlds[1], training=False, norm_reward=False, clip_obs=float("inf"))
        agent = PPO("MlpPolicy", env, seed=seed, device="cpu", **settings)
    else:
        env, scored_in = worlds
        random, entropy = (500, -1.0) if small else (2_500, -3.0)
        agent = SAC(
            "MlpPolicy",
            env,
            seed=seed,
            device="cpu",
            learning_starts=random,
            target_entropy=entropy,
            buffer_size=steps,
        )
    scored_in.seed(1_000 + seed)

    def learn(part: int) -> None:
        agent.learn(part, reset_num_timesteps=False)

    def score() -> list[float]:
        if algo == "ppo":
            sync_envs_normalization(env, scored_in)
        returns, _ = evaluate_policy(agent, scored_in, n_eval_episodes=5, return_episode_rewards=True)
        return [float(x) for x in returns]

    return learn, score


if __name__ == "__main__":
    follow(make, "stable-baselines3", "torch", "gymnasium", "mujoco")
