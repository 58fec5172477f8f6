"""The friendly face: an agent that learns, acts, is saved and loaded, in the convention of stable-baselines3."""

import os
import sys
import time
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from m2ac.algorithms.base import Progress
from m2ac.algorithms.choice import AnyTraining, training_of, worlds_needed
from m2ac.algorithms.state import State
from m2ac.config import AgentConfig, Algo, RunConfig, check_used
from m2ac.envs import Env, Task, check_env, copy_env, find_task, make_env, task_of
from m2ac.envs.notices import brief
from m2ac.envs.world import World
from m2ac.escaping import visible
from m2ac.finite import first_faulty
from m2ac.functions import check_function, of_unit_actions
from m2ac.learners.acting import ActingPolicy
from m2ac.resolving import resolve, room_for
from m2ac.runs import checkpoint
from m2ac.runs.display import Pace, Status, make_display
from m2ac.runs.exporting import export_policy
from m2ac.runs.loop import Loop, difference, loop_of, refuse_other_bounds
from m2ac.runs.stopping import stopping
from m2ac.settings import ConfigError, from_dict, override, to_dict
from m2ac.types import RewardFn, TerminationFn

Callback = Callable[["Agent", Progress], bool | None]
"""Called at every point where training can be left; returning False leaves it."""


class Agent:
    """What all agents have in common.

    `env` is a Gymnasium environment, an id or a task's name. `termination_fn` and `reward_fn` are functions of one
    (obs, action, next_obs) in jax.numpy, with the action in the environment's units; what neither the user nor the task
    knows is learned. Further settings are the fields of `AgentConfig`; a group is given as a mapping, such as
    `mask={"rate": 0.25}`. `seed` and the settings win over `config`.
    """

    algo: ClassVar[Algo]

    def __init__(
        self,
        env: str | Env,
        *others: Any,
        seed: int | None = None,
        config: AgentConfig | None = None,
        termination_fn: TerminationFn | None = None,
        reward_fn: RewardFn | None = None,
        **settings: Any,
    ) -> None:
        if others:  # as stable-baselines3 has it: SAC("MlpPolicy", env)
            name = type(self).__name__
            raise ConfigError(
                f"{name} takes one argument without a name, the environment, got {1 + len(others)}; there is no policy "
                f"argument, and settings have names: {name}(env, seed=0)"
            )
        base = AgentConfig(algo=self.algo) if config is None else _agent_config(config)
        self.config = override(base, settings if seed is None else {"seed": seed, **settings})
        if self.config.algo != self.algo:
            raise ConfigError(
                f"algo must be {self.algo} for {type(self).__name__}, got {self.config.algo}; "
                f"use {AGENTS[self.config.algo].__name__}"
            )
        check_used(self.config, base)
        self.task: Task = find_task(env) if isinstance(env, str) else task_of(check_env(env))
        self.env: Env = make_env(self.task) if isinstance(env, str) else env
        self._world = World(self.env, seed=self.config.seed, stream="train", step_timeout=self.config.step_timeout)
        scale = self._world.scale
        check_function("termination_fn", termination_fn, self._world, kind="bool")
        check_function("reward_fn", reward_fn, self._world, kind="float")
        self._given = {"termination_fn": termination_fn, "reward_fn": reward_fn}
        self._own = [name for name, function in self._given.items() if function is not None]
        self._termination_fn = of_unit_actions(termination_fn, scale) or self.task.terminated
        self._reward_fn = of_unit_actions(reward_fn, scale)
        self._copies: list[World] = []
        self._training: AnyTraining | None = None
        self._policy: tuple[int, ActingPolicy] | None = None  # with the update count it was copied at
        self._noise = np.random.default_rng(self.config.seed)

    @property
    def num_timesteps(self) -> int:
        """Environment steps taken so far."""
        return 0 if self._training is None else self._training.step

    def learn(self, total_timesteps: int, callback: Callback | None = None, *, progress_bar: bool = False) -> Self:
        """Take that many environment steps more and learn from them."""
        check_steps(total_timesteps)
        training = self._prepared(self.num_timesteps + total_timesteps)
        until = training.step + total_timesteps
        watch = Watch(until) if progress_bar else None
        with stopping() as stop:
            try:
                for progress in training.run(until):
                    if watch is not None:
                        watch(progress)
                    if stop.signal is not None or (callback is not None and callback(self, progress) is False):
                        break
            finally:
                if watch is not None:
                    watch.display.close()
        if stop.signal is not None:
            raise KeyboardInterrupt  # everything learned so far is whole; learn goes on from here
        if self.algo == "ppo" and not training.counters.updates:
            warnings.warn(
                f"nothing is learned yet: {training.step} steps do not fill a rollout of {self.config.ppo.rollout}; "
                f"learn on, or lower ppo.rollout",
                stacklevel=2,
            )
        return self

    def predict(
        self,
        observation: NDArray[Any],
        state: Any = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], Any]:
        """The action for one observation, or one action per row, in the environment's units; and `state` unchanged."""
        try:
            obs = np.asarray(observation, dtype=np.float32)
        except (TypeError, ValueError):
            raise ConfigError(f"observation must be an array of numbers, got {brief(observation)}") from None
        if obs.ndim not in (1, 2) or obs.shape[-1] != self._world.obs_dim:
            raise ConfigError(
                f"observation must have shape ({self._world.obs_dim},) or (n, {self._world.obs_dim}), got {obs.shape}"
            )
        fault = None if np.isfinite(obs).all() else first_faulty({"observation": obs})
        if fault is not None:
            raise ConfigError(f"{fault[0]} is {fault[1]}; observations must be finite")
        policy = self._acting_policy()
        noise = None if deterministic else policy.draw(self._noise, *obs.shape[:-1])
        return self._world.scale.to_env(policy(obs, noise)), state

    def evaluate(self, episodes: int = 10, *, eval_env: Env | None = None) -> list[float]:
        """Returns of whole episodes played with the mean action, in a second environment."""
        if episodes <= 0:
            raise ConfigError(f"episodes must be positive, got {episodes}; ten give a first impression")
        world = self._second_world(eval_env)
        policy = self._acting_policy()
        try:
            return [world.play(policy, number).total for number in range(episodes)]
        finally:
            if eval_env is None:
                world.close()

    def export(
        self, path: str | os.PathLike[str], formats: Sequence[str] = ("numpy",), *, eval_env: Env | None = None
    ) -> None:
        """Write the policy, its mean action, for use without m2ac: as "numpy", "stablehlo" or "onnx"."""
        policy = self._acting_policy()
        if not self._prepared(self.num_timesteps).counters.updates:
            warnings.warn("nothing is learned yet: the exported policy is that of an untrained network", stacklevel=2)
        world = self._second_world(eval_env)
        about = {"env": self.task.name, "algo": self.algo, "step": self.num_timesteps}
        try:
            export_policy(Path(path), policy, world, formats=formats, about=about)
        finally:
            if eval_env is None:
                world.close()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything the agent is and remembers into a directory."""
        training = self._prepared(self.num_timesteps)
        cycle, losses = training.unfinished()
        more = {"asked": to_dict(self.config), "own": self._own, "cycle": cycle, "loop": loop_of(self._world)._asdict()}
        checkpoint.save(Path(path), training.state, training.config, losses=losses, **more)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        env: str | Env,
        *,
        termination_fn: TerminationFn | None = None,
        reward_fn: RewardFn | None = None,
    ) -> Self:
        """The agent that was saved, ready to act and to learn on; functions of one's own are to be given again.

        `path` is what `save` wrote, or a run directory.
        """
        found = _find(Path(path))
        kind = AGENTS[found.config.algo]
        if not (issubclass(kind, cls) or issubclass(cls, kind)):
            raise ConfigError(f"{found.path} holds a {found.config.algo} agent; load it with {kind.__name__}.load")
        config = _asked(found)
        agent = (cls if issubclass(cls, kind) else kind)(
            env, config=config, termination_fn=termination_fn, reward_fn=reward_fn
        )
        for run in (Path(path), found.path.parent.parent):  # a run directory, or a checkpoint of one
            refuse_other_bounds(run, agent._world, str(env))
        agent._take_over(found)
        return typing.cast(Self, agent)

    def _take_over(self, found: checkpoint.Checkpoint) -> None:
        """Go on from a checkpoint, which must be of the same environment and functions."""
        world, manifest = self._world, found.manifest
        if (world.obs_dim, world.action_dim) != (manifest["obs_dim"], manifest["action_dim"]):
            raise ConfigError(
                f"{found.path} was trained with {manifest['obs_dim']} observations and {manifest['action_dim']} "
                f"actions, but the environment has {world.obs_dim} and {world.action_dim}; "
                f"pass the one it was trained on"
            )
        had = manifest.get("loop")
        odd = None if had is None else difference(Loop(**had), loop_of(world))
        if odd is not None:
            raise ConfigError(
                f"{found.path} was trained with actions of {odd.name}={odd.had}, but the environment has {odd.has}; "
                f"pass one with the same bounds"
            )
        for name in ("termination_fn", "reward_fn"):
            if "own" in manifest and (name in manifest["own"]) != (name in self._own):
                had, remedy = ("with", "give it to") if name in manifest["own"] else ("without", "leave it out of")
                raise ConfigError(f"{found.path} was trained {had} a {name} of its own; {remedy} load as well")
        if (
            isinstance(found.state, State)
            and found.state.dynamics is not None
            and manifest["learns_termination"] != (self._termination_fn is None)
        ):
            had = "without" if manifest["learns_termination"] else "with"
            raise ConfigError(f"{found.path} was trained {had} a termination_fn; load it the same way")
        self._training = training_of(
            _agent_config(found.config),
            self._worlds(found.config),
            termination_fn=self._termination_fn,
            reward_fn=self._reward_fn,
            state=found.state,
        )
        try:
            self._training.take_up(manifest.get("cycle", {}), found.losses)
        except (AttributeError, TypeError, ValueError) as error:
            raise checkpoint.CheckpointError(f"{found.path} is damaged ({error}); load another one") from error
        if not self._training.rejoin() and self.config.rejoin:
            warnings.warn(
                "this environment cannot be replayed exactly; learning goes on with a new episode", stacklevel=3
            )

    def _second_world(self, env: Env | None) -> World:
        """An environment for episodes that are not learned from: the given one, or a copy of the agent's own."""
        self._world.lent = self._world.lent or env is self.env
        world = World(
            env if env is not None else copy_env(self.env),
            seed=self.config.seed,
            stream="eval",
            step_timeout=self.config.step_timeout,
            notices=self._world.notices,
        )
        odd = difference(loop_of(self._world), loop_of(world))
        if odd is not None:
            raise ConfigError(f"eval_env has {odd.name}={odd.has}, the agent's environment {odd.had}; give one like it")
        return world

    def _worlds(self, config: AgentConfig) -> list[World]:
        """The agent's own environment, and copies of it where several are needed side by side."""
        more = worlds_needed(config) - len(self._copies)
        self._copies += [
            World(
                copy_env(
                    self.env, why="to learn in both", remedy="use ppo.envs=1, or an environment that is registered"
                ),
                seed=self.config.seed,
                stream="train",
                step_timeout=self.config.step_timeout,
                notices=self._world.notices,
            )
            for _ in range(more - 1)
        ]
        return [self._world, *self._copies]

    def _prepared(self, steps: int) -> AnyTraining:
        """The training, with room for that many steps."""
        if self._training is None or (self._training.is_new and steps > 0):
            steps = steps or self.task.steps(self.algo)
            config = resolve(self.config, self.task.defaults, action_dim=self._world.action_dim, steps=steps)
            self._training = training_of(
                config, self._worlds(config), termination_fn=self._termination_fn, reward_fn=self._reward_fn
            )
        elif self.config.replay.capacity is None:
            self._training.make_room_for(steps - self._training.step)
        return self._training

    def _acting_policy(self) -> ActingPolicy:
        training = self._prepared(self.num_timesteps)
        updates = training.state.counters.updates
        if self._policy is None or self._policy[0] != updates:
            self._policy = updates, training.acting_policy()
        return self._policy[1]


class Watch:
    """A progress bar over one call of `learn`."""

    def __init__(self, until: int) -> None:
        self.display = make_display(sys.stderr)
        self.pace = Pace(until)
        self.status = Status(0, until, "exploring")
        self.started = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Show where the training is."""
        self.pace.update(progress.step)
        seen: Mapping[str, Any] = progress.metrics or {}
        self.status = self.status._replace(
            step=progress.step,
            phase=progress.phase,
            train_return=progress.episode.total if progress.episode else self.status.train_return,
            steps_per_second=self.pace.steps_per_second,
            seconds_left=self.pace.seconds_left,
            model_loss=seen.get("model/holdout_nll", self.status.model_loss),
            share_kept=seen.get("trust/share_kept", self.status.share_kept),
            elapsed=time.monotonic() - self.started,
        )
        self.display.update(self.status)


class M2AC(Agent):
    """Masked Model-based Actor-Critic: trusts the model where it is confident."""

    algo = "m2ac"


class MBPO(Agent):
    """Model-based Policy Optimisation: the same rollouts, all kept."""

    algo = "mbpo"


class SAC(Agent):
    """Soft Actor-Critic: no model."""

    algo = "sac"


class PPO(Agent):
    """Proximal Policy Optimisation: on-policy, no model."""

    algo = "ppo"


class STEVE(Agent):
    """Stochastic Ensemble Value Expansion: values look ahead with a model as far as its members agree."""

    algo = "steve"


class MVE(Agent):
    """Model-based Value Expansion: values look a fixed number of steps ahead with a model."""

    algo = "mve"


class DDPG(Agent):
    """Deep Deterministic Policy Gradient: no model, and a policy without chance."""

    algo = "ddpg"


AGENTS: Mapping[str, type[Agent]] = {kind.algo: kind for kind in (M2AC, MBPO, SAC, PPO, STEVE, MVE, DDPG)}


def check_steps(steps: Any) -> None:
    """Refuse what is no number of steps."""
    if not isinstance(steps, int | np.integer) or steps <= 0:
        raise ConfigError(f"total_timesteps must be a positive whole number, got {steps!r}; they are taken in addition")


def _agent_config(config: AgentConfig) -> AgentConfig:
    """The part of a run's configuration that an agent has."""
    return AgentConfig(**{name: getattr(config, name) for name in AgentConfig.__dataclass_fields__})


def _find(path: Path) -> checkpoint.Checkpoint:
    """The checkpoint that `path` is, or the newest usable one of the run directory that it is."""
    if not (path / "checkpoints").is_dir():
        return checkpoint.load(path)
    found = checkpoint.load_newest(path / "checkpoints", warn=lambda text: warnings.warn(visible(text), stacklevel=4))
    if found is None:
        raise checkpoint.CheckpointError(f"{path} has no checkpoint yet; continue the run first")
    return found


def _asked(found: checkpoint.Checkpoint) -> AgentConfig:
    """The configuration as the user gave it, which leaves the buffer free to grow unless its size was set."""
    if "asked" in found.manifest:
        return from_dict(AgentConfig, found.manifest["asked"])
    config = _agent_config(found.config)
    logged = max(0, int(found.state.real.size) - found.state.counters.steps)
    held_all = isinstance(found.config, RunConfig) and config.replay.capacity == room_for(
        found.config.steps or 0, logged
    )
    return override(config, {"replay.capacity": None}) if held_all else config
