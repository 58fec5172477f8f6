"""m2ac in `beside_sb3`."""

from collections.abc import Callable

from benchmarks.course import follow
from m2ac import PPO, SAC


def make(algo: str, seed: int, steps: int) -> tuple[Callable[[int], object], Callable[[], list[float]]]:
    """An agent with the settings that `sb3_course` has too."""
    room = {"replay": {"capacity": steps}}
    if algo == "ppo":
        agent: PPO | SAC = PPO("HalfCheetah-v5", seed=seed, **room)
    else:
        agent = SAC("HalfCheetah-v5", seed=seed, random_steps=2_500, **room)
    return agent.learn, lambda: agent.evaluate(5)


if __name__ == "__main__":
    follow(make, "jax", "gymnasium", "mujoco")
