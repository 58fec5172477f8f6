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


def make(algo: str, seed: int, steps: int) -> tuple[Callable[[int], object], Callable[[], list[float]]]:
    """An agent with the settings that `our_course` has too: PPO's and SAC's usual ones for MuJoCo."""
    torch.set_num_threads(1)
    worlds = [DummyVecEnv([lambda: Monitor(gym.make("HalfCheetah-v5"))]) for _ in range(2)]
    agent: Any
    if algo == "ppo":
        env = VecNormalize(worlds[0], clip_obs=float("inf"))
        scored_in = VecNormalize(worlds[1], training=False, norm_reward=False, clip_obs=float("inf"))
        agent = PPO("MlpPolicy", env, seed=seed, device="cpu")
    else:
        env, scored_in = worlds
        agent = SAC(
            "MlpPolicy", env, seed=seed, device="cpu", learning_starts=2_500, target_entropy=-3.0, buffer_size=steps
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
