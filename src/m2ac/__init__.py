"""m2ac: reinforcement learning that knows when to trust its model.

>>> from m2ac import M2AC
>>> agent = M2AC("Pendulum-v1", seed=0)          # or a Gymnasium environment
>>> agent.learn(2_500)
>>> action, _ = agent.predict(obs, deterministic=True)
"""

from typing import TYPE_CHECKING, Any

from m2ac.config import AgentConfig, RunConfig
from m2ac.learner_config import DDPGConfig, PPOConfig, SACConfig, WorldConfig
from m2ac.model_config import MaskConfig, ModelConfig, ReplayConfig
from m2ac.settings import ConfigError

if TYPE_CHECKING:
    from m2ac.agent import DDPG, M2AC, MBPO, MVE, PPO, SAC, STEVE
    from m2ac.live.control import Live
    from m2ac.together import learn_together

__version__ = "0.1.0"
__all__ = [
    "DDPG",
    "M2AC",
    "MBPO",
    "MVE",
    "PPO",
    "SAC",
    "STEVE",
    "AgentConfig",
    "ConfigError",
    "DDPGConfig",
    "Live",
    "MaskConfig",
    "ModelConfig",
    "PPOConfig",
    "ReplayConfig",
    "RunConfig",
    "SACConfig",
    "WorldConfig",
    "learn_together",
]


def __getattr__(name: str) -> Any:
    # JAX takes a second to import; --help and the configuration do without it.
    if name in ("DDPG", "M2AC", "MBPO", "MVE", "PPO", "SAC", "STEVE"):
        from m2ac import agent

        return getattr(agent, name)
    if name == "Live":
        from m2ac.live.control import Live

        return Live
    if name == "learn_together":
        from m2ac.together import learn_together

        return learn_together
    raise AttributeError(f"module 'm2ac' has no attribute {name!r}")
