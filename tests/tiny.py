"""Settings with which a training compiles and runs in seconds."""

from typing import Any

from m2ac.config import MODELLED, is_read

_ALL: dict[str, Any] = {
    "updates_per_step": 1,
    "rollouts_per_update": 4,
    "model_every": 25,
    "random_steps": 50,
    "model.hidden": 16,
    "model.layers": 1,
    "model.weight_decay": (1e-5, 1e-5),
    "model.members": 3,
    "model.elites": 2,
    "model.max_epochs": 2,
    "sac.hidden": 16,
    "sac.batch_size": 16,
    "ddpg.hidden": 16,
    "ddpg.batch_size": 16,
    "world.hidden": 16,
    "world.layers": 1,
    "world.reward_hidden": 8,
    "world.reward_layers": 1,
}
_PPO: dict[str, Any] = {"ppo.rollout": 24, "ppo.batch_size": 8, "ppo.epochs": 2, "ppo.hidden": 8}


def tiny(algo: Any) -> dict[str, Any]:
    """Those that the algorithm reads, by dotted name."""
    if algo == "ppo":
        return dict(_PPO)
    read = {name: value for name, value in _ALL.items() if is_read(name, algo)}
    return {**read, "horizon": 2} if algo in MODELLED else read


def arguments(settings: dict[str, Any]) -> list[str]:
    """The settings as they are typed."""
    typed = []
    for name, value in settings.items():
        values = value if isinstance(value, tuple) else (value,)
        typed += [f"--{name.replace('_', '-')}", *(str(each) for each in values)]
    return typed
