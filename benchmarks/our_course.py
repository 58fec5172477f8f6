"""m2ac in `beside_sb3`."""

from collections.abc import Callable

from benchmarks.course import follow
from m2ac import PPO, SAC


def make(task: str, algo: str, seed: int, steps: int) -> tuple[Callable[[int], object], Callable[[], list[float]]]:
    """An agent with the settings that `sb3_course` has too."""
    room = {"replay": {"capacity": steps}}
    if algo == "ppo":
        sizes = {"rollout": 4096, "batch_size": 128} if task == "Pendulum-v1" else {}
        agent: PPO | SAC = PPO(task, seed=seed, ppo=sizes, **room)
    else:
        agent = SAC(task, seed=seed, random_steps=500 if task == "Pendulum-v1" else 2_500, **room)
    return agent.learn, lambda: agent.evaluate(5)


if __name__ == "__main__":
    follow(make, "jax", "gymnasium", "mujoco")
