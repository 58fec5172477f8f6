"""Which learner a configuration asks for, in the one form in which a training knows them all."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from m2ac.config import EXPANDING, AgentConfig
from m2ac.learners import ddpg, ppo, sac
from m2ac.learners.acting import ActingPolicy, DeterministicPolicy, GaussianPolicy
from m2ac.learners.ddpg import DDPGLosses, DDPGState, Expansion
from m2ac.learners.ppo import PPOLosses, PPOState
from m2ac.learners.sac import SACLosses, SACState
from m2ac.networks import MLP
from m2ac.scaling import Scaling

LearnerState = SACState | DDPGState | PPOState
Losses = SACLosses | DDPGLosses | PPOLosses

GROUPS = ("sac", "ddpg", "ppo")
"""The names of the learners' metrics and of their settings."""


class Learner(NamedTuple):
    """What a training needs to know of its learner; `how` is the part of the configuration that its programs have."""

    group: str  # the name of its metrics
    how: Any
    batch_size: int
    discount: float
    init: Callable[..., Any]  # (how, obs_dim, action_dim, key=)
    update_many: Callable[..., Any]  # (state, batches, how, key=)
    update_many_guarded: Callable[..., Any]
    state: Any  # the classes of what it learns and what an update tells
    losses: Any
    acting: Callable[[Any], MLP]  # the network that acts
    # Of a learner with values of actions alone:
    act: Callable[[MLP, Array], Array] | None = None  # without chance
    values: Callable[[Any, Array, Array], Float[Array, "M N"]] | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """Where a number that is not finite can show itself in an update."""
        return (*self.losses._fields, *self.state._fields)


def learner_of(config: AgentConfig) -> Learner:
    """The learner of a resolved configuration."""
    if config.algo in EXPANDING:
        return Learner(
            group="ddpg",
            how=expansion_of(config),
            batch_size=config.ddpg.batch_size,
            discount=config.ddpg.discount,
            init=ddpg.init_ddpg,
            update_many=ddpg.update_many,
            update_many_guarded=ddpg.update_many_guarded,
            state=DDPGState,
            losses=DDPGLosses,
            acting=_policy,
            act=ddpg.act,
            values=ddpg.values,
        )
    if config.algo == "ppo":
        assert config.ppo.discount is not None
        return Learner(
            group="ppo",
            how=config.ppo,
            batch_size=config.ppo.batch_size,
            discount=config.ppo.discount,
            init=ppo.init_ppo,
            update_many=ppo.update_many,
            update_many_guarded=ppo.update_many_guarded,
            state=PPOState,
            losses=PPOLosses,
            acting=ppo.acting,
        )
    return Learner(
        group="sac",
        how=config.sac,
        batch_size=config.sac.batch_size,
        discount=config.sac.discount,
        init=sac.init_sac,
        update_many=sac.update_many,
        update_many_guarded=sac.update_many_guarded,
        state=SACState,
        losses=SACLosses,
        acting=_policy,
        act=sac.mean_action,
        values=sac.values,
    )


def _policy(state: Any) -> MLP:
    policy: MLP = state.policy
    return policy


def expansion_of(config: AgentConfig) -> Expansion:
    """How the targets of DDPG, MVE or STEVE are made."""
    return Expansion(
        config.ddpg, config.world, config.horizon or 0, target="weighted" if config.algo == "steve" else "last"
    )


def acting_policy(config: AgentConfig, layers: Any, scaling: Scaling | None = None) -> ActingPolicy:
    """A copy of a policy network for use outside of compiled code, where observations are the environment's own."""
    if config.algo in EXPANDING:
        return DeterministicPolicy(layers, scaling, exploration=config.ddpg.exploration)
    if config.algo == "ppo":
        return GaussianPolicy(layers, scaling)
    return ActingPolicy(layers, scaling)


def entropy_bonus(losses: Losses) -> Float[np.ndarray, "*S N"]:
    """What each step adds to a soft value, update by update; nothing where values are not soft."""
    if isinstance(losses, SACLosses):
        return np.asarray(losses.temperature) * np.asarray(losses.entropy)
    return np.zeros_like(losses.value)


def losses_of(learner: Learner, named: Mapping[str, Any]) -> Losses:
    """Losses from their names."""
    made: Losses = learner.losses(*(named[name] for name in learner.losses._fields))
    return made
