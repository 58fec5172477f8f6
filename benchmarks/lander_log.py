"""A log as a user has one: the controller that Gymnasium ships for its lander, played with some noise.

    python -m benchmarks.lander_log runs/lander.npz --steps 20000

Every episode has a noise of its own, from none to half of the actions' range, so that the log holds good landings, poor
ones and crashes.
"""

import argparse
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.envs.box2d.lunar_lander import heuristic

MOST_NOISE = 0.5


def log(steps: int, seed: int) -> dict[str, np.ndarray]:
    """Transitions in the columns that `m2ac train --data` reads, and the return of every episode."""
    env = gym.make("LunarLanderContinuous-v3")
    draws = np.random.default_rng(seed)
    rows: dict[str, list[object]] = {
        name: [] for name in ("obs", "action", "reward", "next_obs", "terminated", "truncated")
    }
    returns = []
    while len(rows["obs"]) < steps:
        obs, _ = env.reset(seed=int(draws.integers(2**31)))
        noise, total, ended = draws.uniform(0.0, MOST_NOISE), 0.0, False
        while not ended:
            chosen = heuristic(env, obs)  # type: ignore[no-untyped-call]
            action = np.clip(chosen + draws.normal(0.0, noise, 2), -1.0, 1.0).astype(np.float32)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            for name, value in zip(rows, (obs, action, reward, next_obs, terminated, truncated), strict=True):
                rows[name].append(value)
            total, obs, ended = total + float(reward), next_obs, terminated or truncated
        returns.append(total)
    return {name: np.asarray(column) for name, column in rows.items()} | {"returns": np.asarray(returns)}


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    columns = log(chosen.steps, chosen.seed)
    returns = columns.pop("returns")
    chosen.file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(chosen.file, **columns)  # type: ignore[arg-type]
    print(f"{len(columns['reward'])} steps, {len(returns)} episodes, return {returns.mean():.0f} ± {returns.std():.0f}")


if __name__ == "__main__":
    main()
