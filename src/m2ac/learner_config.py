"""What can be set of each learner, with its default, its meaning and its limits; see `config` for the rest."""

import math
from dataclasses import dataclass

from m2ac.settings import at_least, check, positive, set_types


@dataclass(frozen=True)
class SACConfig:
    """Soft Actor-Critic, the learner."""

    hidden: int = 256
    """Width of the hidden layers of policy and critics."""
    layers: int = 2
    """Hidden layers of policy and critics."""
    learning_rate: float = 3e-4
    """Adam's step size for policy, critics and temperature."""
    discount: float = 0.99
    """Discount factor (gamma)."""
    target_rate: float = 5e-3
    """How far the target critics move towards the critics at each update (tau)."""
    batch_size: int = 256
    """Rows per update."""
    target_entropy: float | None = None
    """Entropy the temperature steers to. None: the task's, else minus the number of action dimensions."""
    temperature: float = 1.0
    """Temperature at the start."""

    def __post_init__(self) -> None:
        set_types(self, "sac.")
        at_least("sac.hidden", self.hidden, 1, "256 is the usual one")
        at_least("sac.layers", self.layers, 1, "2 is the usual one")
        check(self.layers <= 20, f"sac.layers must be at most 20, got {self.layers}; 2 is the usual one")
        positive("sac.learning_rate", self.learning_rate, "0.0003 is the usual one")
        check(
            0 <= self.discount < 1,
            f"sac.discount must be in [0, 1), got {self.discount}; 0.99 looks about 100 steps ahead",
        )
        check(
            0 < self.target_rate <= 1,
            f"sac.target_rate must be in (0, 1], got {self.target_rate}; 0.005 is the usual one, 1 copies the critics",
        )
        at_least("sac.batch_size", self.batch_size, 1, "256 is the usual one")
        positive("sac.temperature", self.temperature, "it is learned; 1 is the usual start")


@dataclass(frozen=True)
class DDPGConfig:
    """DDPG, the learner of ddpg, mve and steve."""

    hidden: int = 128
    """Width of the hidden layers of policy and critics."""
    layers: int = 3
    """Hidden layers of policy and critics."""
    critics: int | None = None
    """Critics, whose disagreement is part of what STEVE weighs. None: 4 for steve, else 1."""
    learning_rate: float = 3e-4
    """Adam's step size for policy and critics."""
    discount: float = 0.99
    """Discount factor (gamma)."""
    batch_size: int = 512
    """Rows per update."""
    target_every: int = 500
    """Updates after which the target critics become copies of the critics."""
    saturation_penalty: float = 1e-3
    """Weight of the mean squared action before its tanh in the policy's loss."""
    exploration: float = 0.05
    """Probability with which each number of an action is disturbed, by standard normal noise before its tanh."""

    def __post_init__(self) -> None:
        set_types(self, "ddpg.")
        at_least("ddpg.hidden", self.hidden, 1, "128 is the usual one")
        at_least("ddpg.layers", self.layers, 1, "3 is the usual one")
        check(self.layers <= 20, f"ddpg.layers must be at most 20, got {self.layers}; 3 is the usual one")
        at_least("ddpg.critics", self.critics, 1, "STEVE has 4")
        check(
            self.critics is None or self.critics <= 100,
            f"ddpg.critics must be at most 100, got {self.critics}; STEVE has 4",
        )
        positive("ddpg.learning_rate", self.learning_rate, "0.0003 is the usual one")
        check(
            0 <= self.discount < 1,
            f"ddpg.discount must be in [0, 1), got {self.discount}; 0.99 looks about 100 steps ahead",
        )
        at_least("ddpg.batch_size", self.batch_size, 1, "512 is the usual one")
        at_least("ddpg.target_every", self.target_every, 1, "500 is the usual one")
        at_least("ddpg.saturation_penalty", self.saturation_penalty, 0, "0 leaves it out")
        check(
            0 <= self.exploration <= 1,
            f"ddpg.exploration must be in [0, 1], got {self.exploration}; 0.05 is the usual one",
        )


@dataclass(frozen=True)
class WorldConfig:
    """The deterministic world model with which mve and steve look ahead."""

    members: int | None = None
    """Networks of each kind: changes with their ends, and rewards. None: 4 for steve, else 1."""
    hidden: int = 200
    """Width of the hidden layers of the changes; STEVE's own are 512 wide."""
    layers: int = 4
    """Hidden layers of the changes; STEVE's own have 8."""
    reward_hidden: int = 128
    """Width of the hidden layers of rewards and ends."""
    reward_layers: int = 4
    """Hidden layers of rewards and ends."""
    learning_rate: float = 3e-4
    """Adam's step size."""
    weight_decay: float = 1e-4
    """Factor of half the squared weights in the loss."""
    pretrain: int | None = None
    """Updates of the world model alone before the first of the policy. None: one for every random step, or
    for every logged transition, at most 10000 of these."""

    def __post_init__(self) -> None:
        set_types(self, "world.")
        at_least("world.members", self.members, 1, "STEVE has 4")
        check(
            self.members is None or self.members <= 100,
            f"world.members must be at most 100, got {self.members}; STEVE has 4",
        )
        at_least("world.hidden", self.hidden, 1, "200 is the usual one")
        at_least("world.layers", self.layers, 1, "4 is the usual one")
        check(self.layers <= 20, f"world.layers must be at most 20, got {self.layers}; STEVE has 8")
        at_least("world.reward_hidden", self.reward_hidden, 1, "128 is the usual one")
        at_least("world.reward_layers", self.reward_layers, 1, "4 is the usual one")
        check(
            self.reward_layers <= 20, f"world.reward_layers must be at most 20, got {self.reward_layers}; STEVE has 4"
        )
        positive("world.learning_rate", self.learning_rate, "0.0003 is the usual one")
        at_least("world.weight_decay", self.weight_decay, 0, "0 leaves it out")
        at_least("world.pretrain", self.pretrain, 0, "0 leaves it out")


@dataclass(frozen=True)
class PPOConfig:
    """PPO, the on-policy learner."""

    envs: int = 1
    """Environments side by side."""
    rollout: int = 2048
    """Environment steps, of all environments together, between two rounds of updates."""
    epochs: int = 10
    """Times that every step of a rollout is learned from."""
    batch_size: int = 64
    """Rows per update."""
    learning_rate: float | None = None
    """Adam's step size. None: the task's, else 0.0003."""
    discount: float | None = None
    """Discount factor (gamma). None: the task's, else 0.99."""
    gae: float = 0.95
    """Weight of later surprises in an advantage, beside the discount (lambda)."""
    clip: float = 0.2
    """How far the probability of an action may change within a rollout's updates before it no longer counts."""
    entropy_bonus: float = 0.0
    """Weight of the policy's entropy."""
    critic_weight: float = 0.5
    """Weight of the critic's squared error."""
    gradient_norm: float = 0.5
    """Longest gradient; longer ones are shortened to it."""
    hidden: int = 64
    """Width of the hidden layers of policy and critic."""
    layers: int = 2
    """Hidden layers of policy and critic."""
    log_std: float = 0.0
    """Logarithm of the actions' standard deviation at the start."""
    standardise: bool = True
    """Measure observations by their mean and standard deviation so far."""
    scale_rewards: bool = True
    """Measure rewards by the standard deviation of their discounted sums so far."""

    def __post_init__(self) -> None:
        set_types(self, "ppo.")
        at_least("ppo.envs", self.envs, 1, "8 save time where the environment is fast")
        at_least("ppo.rollout", self.rollout, 2, "2048 is the usual one")
        at_least("ppo.epochs", self.epochs, 1, "10 is the usual one")
        at_least("ppo.batch_size", self.batch_size, 2, "64 is the usual one")
        both = math.lcm(self.envs, self.batch_size)
        check(
            self.rollout % both == 0,
            f"ppo.rollout must be a multiple of ppo.envs ({self.envs}) and of ppo.batch_size ({self.batch_size}), "
            f"got {self.rollout}; use {both * max(1, round(self.rollout / both))}",
        )
        positive("ppo.learning_rate", self.learning_rate, "0.0003 is the usual one")
        check(
            self.discount is None or 0 <= self.discount < 1,
            f"ppo.discount must be in [0, 1), got {self.discount}; 0.99 looks about 100 steps ahead",
        )
        check(0 <= self.gae <= 1, f"ppo.gae must be in [0, 1], got {self.gae}; 0.95 is the usual one")
        positive("ppo.clip", self.clip, "0.2 is the usual one")
        at_least("ppo.entropy_bonus", self.entropy_bonus, 0, "0 leaves it out")
        at_least("ppo.critic_weight", self.critic_weight, 0, "0.5 is the usual one")
        positive("ppo.gradient_norm", self.gradient_norm, "0.5 is the usual one")
        at_least("ppo.hidden", self.hidden, 1, "64 is the usual one")
        at_least("ppo.layers", self.layers, 1, "2 is the usual one")
        check(self.layers <= 20, f"ppo.layers must be at most 20, got {self.layers}; 2 is the usual one")
        check(abs(self.log_std) <= 10, f"ppo.log_std must be in [-10, 10], got {self.log_std}; 0 is a deviation of 1")
