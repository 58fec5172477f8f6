"""Which training a configuration asks for."""

from collections.abc import Sequence

from m2ac.algorithms.on_policy import OnPolicy
from m2ac.algorithms.state import AnyState, OnPolicyState, State
from m2ac.algorithms.training import Training
from m2ac.algorithms.value_expansion import ValueExpansion
from m2ac.config import EXPANDING, AgentConfig
from m2ac.envs.world import World
from m2ac.types import RewardFn, TerminationFn

AnyTraining = Training | OnPolicy


def training_of(
    config: AgentConfig,
    worlds: Sequence[World],
    *,
    termination_fn: TerminationFn | None = None,
    reward_fn: RewardFn | None = None,
    state: AnyState | None = None,
) -> AnyTraining:
    """The training of a resolved configuration, from its state or from the start."""
    if config.algo == "ppo":
        assert state is None or isinstance(state, OnPolicyState)
        return OnPolicy(config, worlds, state=state)
    assert state is None or isinstance(state, State)
    kind = ValueExpansion if config.algo in EXPANDING else Training
    return kind(config, *worlds, termination_fn=termination_fn, reward_fn=reward_fn, state=state)


def worlds_needed(config: AgentConfig) -> int:
    """How many environments a training acts in at the same time."""
    return config.ppo.envs if config.algo == "ppo" else 1
