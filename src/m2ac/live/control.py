"""The side of the control loop: act within microseconds, tell what happened, and never wait for the learner."""

import atexit
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load as load_tensors

from m2ac.config import LIVE, AgentConfig, RunConfig, check_used
from m2ac.envs.actions import ActionScale
from m2ac.envs.answers import as_flag
from m2ac.envs.notices import brief
from m2ac.escaping import visible
from m2ac.learners.acting import ActingPolicy
from m2ac.live.messages import FAILURE, POLICY, ROW, SAVE, SETUP, STATUS, Row, framed, packed, read, write
from m2ac.live.session import must_begin
from m2ac.runs.caching import jax_settings
from m2ac.runs.checkpoint import steps_saved
from m2ac.runs.loop import Loop
from m2ac.runs.policy import policy_of, policy_of_loop
from m2ac.settings import ConfigError, UserError, check, override, to_dict

TURN = 5e-4
"""Seconds that one Python thread may keep the others waiting."""

GATHER = 0.05
"""Seconds that steps gather before they are sent: a thread woken for each would take turns with the loop at each."""


WITHOUT_MEANING = (
    "env",
    "eval_every",
    "eval_episodes",
    "final_episodes",
    "checkpoint_every",
    "step_timeout",
    "tensorboard",
    "rejoin",
)
"""Settings of a run that are about an environment, about when it saves, or about files that a live one has not."""


class LiveError(UserError):
    """The learner has ended; acting goes on with the last policy."""


def checked(name: str, given: ArrayLike, size: int) -> NDArray[np.float32]:
    """Numbers that may be acted on or learned from: of a NaN a policy would make a NaN for the actuators."""
    numbers = np.asarray(given, dtype=np.float32)
    if numbers.shape != (size,):
        raise ConfigError(f"{name} must have shape ({size},), got {numbers.shape}; mend it")
    if not np.isfinite(numbers).all():  # no `check`, which would write the message at every step
        raise ConfigError(f"{name} must be finite in float32, got {numbers}; leave the step out")
    return numbers


def flag(name: str, given: object) -> bool:
    """Whether an episode has ended; the text "no" would be true in Python."""
    found = as_flag(given)
    if found is None:
        raise ConfigError(f"{name} must be True or False, got {brief(given)}; mend it")
    return found


def learned_before(run: Path, loop: Loop, config: AgentConfig) -> ActingPolicy | None:
    """The policy of an earlier session; a loop must not stand still for a file that the learner writes anew."""
    try:
        return policy_of_loop(run, loop, config)
    except UserError as error:
        warnings.warn(visible(f"{error}; until the learner is ready, actions are random"), stacklevel=3)
        return None


class Live:
    """An agent for a loop of one's own.

    >>> with Live(obs_dim=4, low=[-1.0], high=[1.0], out="runs/robot") as live:
    ...     obs = robot.read()
    ...     while robot.on:
    ...         action = live.act(obs)
    ...         next_obs, reward, fell = robot.apply(action)
    ...         live.observe(obs, action, reward, next_obs, terminated=fell)
    ...         obs = next_obs
    ...         if fell:
    ...             obs = robot.bring_back()
    ...             live.check()  # raises if the learner has ended

    Learning happens in a process of its own, beside the loop, and comes back as a new policy now and then. With `out`
    everything is kept in a run directory, and the same call goes on from there.
    """

    def __init__(
        self, obs_dim: int, low: ArrayLike, high: ArrayLike, *, out: str | None = None, seed: int = 0, **settings: Any
    ) -> None:
        """`low` and `high` are the bounds of actions; `settings` are those of `m2ac train`, groups as mappings."""
        check(
            isinstance(obs_dim, int | np.integer) and not isinstance(obs_dim, bool) and obs_dim >= 1,
            f"obs_dim must be a whole number of at least 1, got {obs_dim!r}; count the numbers in an observation",
        )
        bounds = [np.atleast_1d(np.asarray(bound, dtype=np.float64)) for bound in (low, high)]
        self._scale = ActionScale(*bounds)
        for name in WITHOUT_MEANING:
            check(name not in settings, f"{name} has no meaning for Live, got {settings.get(name)!r}; leave it out")
        given = {"steps": 200_000, "out": out, "seed": seed, "tensorboard": False, **settings}
        self.config = override(RunConfig(env=LIVE), given)
        check_used(self.config, RunConfig())
        check(self.config.algo != "ppo", "algo must not be ppo, which needs whole rollouts of its own; use m2ac or sac")
        self.obs_dim, self.action_dim = int(obs_dim), len(bounds[0])
        loop = Loop(self.obs_dim, *(bound.tolist() for bound in bounds))
        must_begin(self.config, loop)
        self._policy: ActingPolicy | None = None if out is None else learned_before(Path(out), loop, self.config)
        # Another session of the same run explores otherwise.
        before = None if out is None else steps_saved(Path(out) / "checkpoints")
        self._noise = np.random.default_rng([seed, 7, before or 0])
        self._observed = 0
        self._status: dict[str, Any] = {"steps": 0, "updates": 0, "let_go": 0, "waiting": 0, "taken": 0, "due": 0}
        self._status["metrics"] = {}
        self._failure: str | None = None
        self._failure_told = False
        self._killed: str | None = None
        self._told = threading.Condition()
        self._to_send: deque[bytes] = deque()
        self._closing = threading.Event()
        command = [sys.executable, "-m", "m2ac.live.learner"]
        # A group of its own: Ctrl-C at the terminal is meant for the loop alone.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | jax_settings(),
            process_group=0,
        )
        setup = {**loop._asdict(), "config": to_dict(self.config)}
        assert self._process.stdin is not None
        write(self._process.stdin, SETUP, json.dumps(setup).encode())
        # A thread that waits for its turn gets it after half a millisecond, not after Python's usual five.
        self._turn = sys.getswitchinterval()
        sys.setswitchinterval(min(self._turn, TURN))
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()
        atexit.register(self._end)  # for a loop that ends without `close`

    def act(self, obs: ArrayLike, *, deterministic: bool = False) -> NDArray[Any]:
        """The action for an observation, in the loop's units; at random before anything was learned."""
        seen, policy = checked("obs", obs, self.obs_dim), self._policy
        if self._failure is not None:
            self._warn()
        if policy is None:
            unit: Any = self._noise.uniform(-1.0, 1.0, self.action_dim)
        else:
            unit = policy(seen, None if deterministic else policy.draw(self._noise))
        return self._scale.to_env(unit)

    def observe(
        self,
        obs: ArrayLike,
        action: ArrayLike,
        reward: float,
        next_obs: ArrayLike,
        *,
        terminated: bool = False,
        truncated: bool = False,
    ) -> None:
        """Tell what an action led to; `terminated` where the task is over, `truncated` where the episode was cut.

        The action is the one that was applied, in the loop's units and within its bounds.
        """
        before, after = checked("obs", obs, self.obs_dim), checked("next_obs", next_obs, self.obs_dim)
        done = self._within_bounds(action)
        checked("reward", [reward], 1)
        ends = flag("terminated", terminated), flag("truncated", truncated)
        row = Row(before, self._scale.from_env(done), float(reward), after, *ends)
        if self._failure is not None:  # nobody takes it any more
            self._warn()
            return
        self._must_be_open()
        self._observed += 1
        self._to_send.append(framed(ROW, packed(row)))

    @property
    def learned(self) -> bool:
        """Whether actions come from a policy that has learned something."""
        return self._policy is not None

    @property
    def status(self) -> Mapping[str, Any]:
        """How far the learner is: steps and updates, updates due and let go, steps that wait or were taken, metrics."""
        return dict(self._status)

    def check(self) -> None:
        """Raise `LiveError` where the learner has ended; acting would go on without it in silence."""
        if self._failure is not None:
            self._failure_told = True
            raise LiveError(self._failure)

    def wait(self, timeout: float | None = None, *, updates: bool = False) -> bool:
        """Between episodes: until the learner has seen every step told so far; False where time ran out.

        Having seen them it has not learned from them yet: with `updates` also until those due for them are made.
        """
        check(
            not updates or timeout is not None or self.config.rhythm != "epoch",
            "timeout must be given with updates=True and rhythm=epoch: none are made before an epoch's steps are there",
        )
        self.check()
        self._must_be_open()
        until = None if timeout is None else time.monotonic() + timeout
        with self._told:
            while self._failure is None:
                if self._status["taken"] >= self._observed and not (updates and self._status["due"]):
                    break
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._told.wait(left)
        self.check()
        return True

    def save(self) -> None:
        """Have everything saved soon; `close` does so in any case."""
        self._must_be_open()
        self._to_send.append(framed(SAVE))

    def close(self, timeout: float = 120.0) -> None:
        """Let the learner store what has come in, save and end; what it has not learned from yet it does next time.

        Raises `LiveError` where that failed.
        """
        self._end(timeout)
        self.check()

    def _within_bounds(self, given: ArrayLike) -> NDArray[np.float64]:
        checked("action", given, self.action_dim)
        action = np.asarray(given, dtype=np.float64)  # bounds may be closer to each other than float32 tells apart
        outside = self._scale.outside(action)
        if outside.any():
            i = int(outside.argmax())
            raise ConfigError(
                f"action[{i}] must be in [{self._scale.low[i]}, {self._scale.high[i]}], got {action[i]}; "
                f"tell the action as it was applied, in the units of low and high"
            )
        return action

    def _warn(self) -> None:
        """Once: the loop has to go on, but whoever runs it should know that nothing is learned or kept any more."""
        if not self._failure_told:
            self._failure_told = True
            told = f"{self._failure}. Until a new Live is made, no step is kept and actions come from the last policy"
            warnings.warn(visible(told), stacklevel=3)

    def _must_be_open(self) -> None:
        if self._closing.is_set():
            raise LiveError("this Live is closed, so nobody learns from it any more; make a new one")

    def _end(self, timeout: float = 120.0) -> None:
        atexit.unregister(self._end)
        self._closing.set()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._killed = f"the learner had not saved after {timeout:g} s and was killed; the last checkpoint is kept"
            self._process.kill()
        for thread in self._threads:
            thread.join()
        sys.setswitchinterval(self._turn)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end()
        if kind is None:
            self.check()

    def _send(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            closing = False
            while not closing:
                closing = self._closing.wait(GATHER)
                while self._to_send:
                    pipe.write(self._to_send.popleft())
                pipe.flush()
            pipe.close()
        except (BrokenPipeError, ValueError):
            pass  # the learner has ended; `_receive` says so

    def _receive(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        failure: str | None = None
        try:
            while (message := read(pipe)) is not None:
                kind, payload = message
                if kind == POLICY:
                    self._policy = policy_of(load_tensors(payload), self.config)
                elif kind == STATUS:
                    told = json.loads(payload)
                    with self._told:
                        self._status |= told
                        self._told.notify_all()
                elif kind == FAILURE:
                    failure = payload.decode()
        finally:
            code = self._process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            failure = (
                failure
                or f"the learner ended without a word ({how}; see its output), and what it had not saved is lost"
            )
            with self._told:
                self._failure = None if code == 0 and self._closing.is_set() else self._killed or failure
                self._told.notify_all()
