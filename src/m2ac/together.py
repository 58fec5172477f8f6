"""Agents that differ in nothing but their seed, learning together in one compiled training."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from m2ac.agent import Agent, Watch, check_steps
from m2ac.algorithms.base import Progress
from m2ac.algorithms.seeds import ManySeeds, SeedsProgress
from m2ac.algorithms.training import Training
from m2ac.config import SOFT
from m2ac.envs.world import Played
from m2ac.runs.stopping import stopping
from m2ac.settings import ConfigError, check, differing

Callback = Callable[[Sequence[Agent], SeedsProgress], bool | None]
"""Called at the end of every cycle, when all agents are up to date; returning False leaves the training."""


def learn_together(
    agents: Sequence[Agent], total_timesteps: int, callback: Callback | None = None, *, progress_bar: bool = False
) -> None:
    """Let agents that differ in nothing but their seed take that many environment steps more, each.

    Every one ends as its own `learn` would leave it, but for rounding. This pays on a GPU, which one agent leaves idle;
    on a CPU a process for each agent is faster.
    """
    check_steps(total_timesteps)
    _check_agents(agents)
    trainings = [_training(agent, total_timesteps) for agent in agents]
    _check_trainings(trainings)
    room = max(training.state.real.capacity for training in trainings)
    slots = max(training.state.real.slots for training in trainings)
    for training in trainings:
        training.make_room(room, slots=slots)
    many = ManySeeds(
        trainings[0].config,
        [training.world for training in trainings],
        termination_fn=agents[0]._termination_fn,
        reward_fn=agents[0]._reward_fn,
        states=[training.state for training in trainings],
    )

    def hand_back() -> None:
        for training, state in zip(trainings, many.states(), strict=True):
            training.go_on_from(state)
            training.take_up({}, {})  # what happened was told of all together

    until = many.step + total_timesteps
    watch = Watch(until) if progress_bar else None
    with stopping() as stop:
        try:
            for progress in many.run(until):
                if watch is not None:
                    watch(_of_all(progress))
                if stop.signal is not None:
                    break
                if callback is not None and progress.metrics is not None:
                    hand_back()
                    if callback(agents, progress) is False:
                        break
        finally:
            hand_back()
            if watch is not None:
                watch.display.close()
    if stop.signal is not None:
        raise KeyboardInterrupt  # everything learned so far is whole; learning goes on from here


def _training(agent: Agent, steps: int) -> Training:
    training = agent._prepared(agent.num_timesteps + steps)
    assert isinstance(training, Training)
    return training


def _check_agents(agents: Sequence[Agent]) -> None:
    """Refuse agents that are not of one kind, or share what each needs for itself."""
    if not agents:
        raise ConfigError("agents must not be empty; make some that differ in their seed")
    first = agents[0]
    check(
        first.config.algo in SOFT,
        f"agents must be M2AC, MBPO or SAC to learn together, got algo={first.config.algo}; let each learn apart",
    )
    for i, agent in enumerate(agents):
        apart = replace(agent.config, seed=first.config.seed)
        if apart != first.config:
            told = differing(apart, first.config)
            raise ConfigError(f"agents must differ in their seed alone, but agents[{i}] has {told}; let it learn apart")
        for name, function in agent._given.items():
            if function is not first._given[name]:
                raise ConfigError(f"agents must have one {name}, but agents[{i}] has another; give the same to all")
        if _kind_of_world(agent) != _kind_of_world(first):
            raise ConfigError(
                f"agents must have the same task, but agents[{i}] has {agent.env} and agents[0] {first.env}; "
                f"make environments of one kind"
            )
        for j, other in enumerate(agents[:i]):
            for name, shared in (("seed", agent.config.seed == other.config.seed), ("env", agent.env is other.env)):
                if shared:
                    raise ConfigError(
                        f"agents[{j}] and agents[{i}] have the same {name}; every agent must have one of its own"
                    )


def _kind_of_world(agent: Agent) -> tuple[Any, ...]:
    return agent.task, agent.env.observation_space, agent.env.action_space


def _check_trainings(trainings: Sequence[Training]) -> None:
    """Refuse agents that are not equally far, or whose earlier learning settled what was left open in another way."""
    first = trainings[0]
    for i, training in enumerate(trainings):
        if training.counters._replace(skips=0) != first.counters._replace(skips=0):
            (steps, updates, *_), (first_steps, first_updates, *_) = training.counters, first.counters
            raise ConfigError(
                f"agents must be equally far, but agents[{i}] has taken {steps} steps and made {updates} updates, "
                f"agents[0] {first_steps} and {first_updates}; let those behind learn on their own first"
            )
        # The buffers' room is made equal, whatever it was.
        apart = replace(training.config, seed=first.config.seed, replay=first.config.replay)
        if apart != first.config:
            raise ConfigError(
                f"agents must have begun alike, but agents[{i}] began with {differing(apart, first.config)}; "
                f"let all begin with the same total_timesteps"
            )


def _of_all(progress: SeedsProgress) -> Progress:
    """The progress of several seeds as one: the means of what the display shows."""
    ended = [episode for episode in progress.episodes if episode is not None]
    mean = Played(ended[0].seed, float(np.mean([e.total for e in ended])), ended[0].length) if ended else None
    metrics: dict[str, float] | None = None
    if progress.metrics is not None:
        shown = [name for name in ("model/holdout_nll", "trust/share_kept") if name in progress.metrics[0]]
        metrics = {name: float(np.mean([own[name] for own in progress.metrics])) for name in shown}
    return Progress(progress.step, progress.phase, progress.settled, metrics, mean)
