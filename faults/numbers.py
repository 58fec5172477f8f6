"""NaN and infinities put in at every point where one can enter: caught in the same cycle, told or counted, not stored.

A case is held where what was put in is refused with a message that says what and where, or counted in the metrics of
its cycle, and every number of the state is finite afterwards, both buffers included.
"""

import math
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from faults.row import Row
from m2ac import M2AC, SAC
from m2ac.algorithms import phases
from m2ac.algorithms.seeds import ManySeeds
from m2ac.algorithms.state import State
from m2ac.algorithms.training import Training
from m2ac.config import AgentConfig
from m2ac.dynamics.uncertainty import one_vs_rest
from m2ac.envs.noise import NoisyAction
from m2ac.envs.world import World
from m2ac.finite import first_faulty
from m2ac.resolving import resolve
from m2ac.runs import checkpoint
from m2ac.settings import UserError, override

PROPERTY = "NaN/inf injected at every point where one can enter"

SIZES: dict[str, Any] = {
    "updates_per_step": 1,
    "rollouts_per_update": 4,
    "model_every": 10,
    "random_steps": 20,
    "scale_observations": False,  # or a number without bounds would be brought to some units
    "retain": 2,
    "sac.hidden": 8,
    "sac.layers": 1,
    "sac.batch_size": 16,
}
MODEL: dict[str, Any] = {
    "horizon": 2,
    "model.hidden": 8,
    "model.layers": 1,
    "model.weight_decay": (1e-5, 1e-5),
    "model.members": 3,
    "model.elites": 2,
    "model.batch_size": 8,
    "model.max_epochs": 3,
}
EXPLORED, LEARNING, END = 20, 25, 40
NOT_FINITE = (math.nan, math.inf, -math.inf)
TOO_LARGE = (1e39, -1e39)  # for float32
HUGE = (1e30, 3e38, -3e38)
COUNTERS = ("sac/skipped_updates", "model/skipped_batches", "model/refused", "trust/nonfinite_rows")


class Spoiled(gym.Env[Any, Any]):
    """A point pushed by one motor; numbers of chosen answers are replaced."""

    observation_space: gym.spaces.Space[Any] = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space: gym.spaces.Space[Any] = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, entry: int | str = "none", value: float = 0.0, *, answers: Callable[[int], bool]) -> None:
        """`entry` is an index of the observation or "reward"; `answers` says which answers, counted from 0."""
        self.entry, self.value, self.answers, self.answered = entry, value, answers, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin somewhere near zero."""
        super().reset(seed=seed)
        self.position, self.steps = self.np_random.normal(size=2), 0
        return self._spoil(0.0)[0], {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Be pushed."""
        self.steps += 1
        self.position = 0.9 * self.position + 0.1 * float(action[0])
        obs, reward = self._spoil(-float(np.square(self.position).sum()))
        return obs, reward, False, self.steps >= 8, {}

    def _spoil(self, reward: float) -> tuple[Any, float]:
        obs, now = self.position.copy(), self.answers(self.answered)
        self.answered += 1
        if now and isinstance(self.entry, int):
            obs[self.entry] = self.value
        return obs, self.value if now and self.entry == "reward" else reward


def fine() -> Spoiled:
    """An environment in which nothing is spoiled."""
    return Spoiled(answers=lambda _: False)


@cache
def configured(algo: str, **settings: Any) -> AgentConfig:
    """The smallest training there is."""
    sizes = SIZES | ({} if algo == "sac" else MODEL) | settings
    return resolve(override(AgentConfig(algo=algo), sizes), {}, action_dim=1, steps=60)  # type: ignore[arg-type]


def never(obs: Any, action: Any, next_obs: Any) -> Any:
    """No episode terminates."""
    return jnp.zeros((), bool)


def training(algo: str, env: gym.Env[Any, Any], *, state: State | None = None, **functions: Any) -> Training:
    """A training of that environment."""
    world = World(env, seed=0, stream="train")
    return Training(configured(algo), world, **{"termination_fn": never, **functions}, state=state)


class Told(NamedTuple):
    """What came of a training."""

    error: str  # empty without one
    counted: dict[str, int]
    state: State


def outcome(under_test: Training, until: int = END) -> Told:
    """Train, and say what was refused and what was counted."""
    counted: dict[str, int] = dict.fromkeys(COUNTERS, 0)
    error = ""
    try:
        for progress in under_test.run(until):
            for name in COUNTERS:
                counted[name] += (progress.metrics or {}).get(name, 0)
    except UserError as raised:
        error = str(raised)
    if error:
        cycle = under_test.cycle_metrics()
        counted = {name: counted[name] + cycle.get(name, 0) for name in COUNTERS}
    return Told(error, counted, under_test.state)


class Case(NamedTuple):
    """Something put in at some point; trying it returns what did not hold, or nothing."""

    name: str
    trying: Callable[[Path], str]


def stored(state: State) -> str:
    """What is not finite in a state."""
    fault = first_faulty(checkpoint.named_arrays(state))
    return f"{fault[0]} is {fault[1]} afterwards" if fault else ""


def refused(message: str, *patterns: str) -> str:
    """What a message lacks."""
    missing = [pattern for pattern in patterns if not re.search(pattern, message)]
    if "\n" in message:
        return f"the message has several lines: {message!r}"
    return f"{missing[0]!r} is not in {message!r}" if missing else ""


# Observations and rewards of the environment


def from_env(entry: int | str, value: float, answer: int, where: str, _: Path) -> str:
    """One spoiled answer in training."""
    told = outcome(training("sac", Spoiled(entry, value, answers=lambda i: i == answer)))
    what = "reward is" if entry == "reward" else rf"observation\[{entry}\] is"
    shown = re.escape(str(value if entry == "reward" else np.float64(value)))
    return refused(told.error, f"{what} {shown} in train episode", where, r"\(seed \d+\)") or stored(told.state)


def from_evaluation(entry: int | str, value: float, answer: int, where: str, _: Path) -> str:
    """One spoiled answer in an evaluation."""
    world = World(Spoiled(entry, value, answers=lambda i: i == answer), seed=0, stream="eval")
    try:
        world.play(explored("sac").acting_policy(), 3)
    except UserError as raised:
        return refused(str(raised), "(reward|observation.*) is .* in eval episode 3", where)
    return "nothing was refused"


def env_cases() -> Iterator[Case]:
    """An episode is 9 answers: a reset and 8 steps; 20 steps are random, so that the policy acts from answer 23 on."""
    places = {"random reset": (9, "reset"), "random step": (4, "step 4")}
    places |= {"learning reset": (27, "reset"), "learning step": (30, "step 3")}
    for value in (*NOT_FINITE, *TOO_LARGE):
        for place, (answer, where) in places.items():
            entries: tuple[int | str, ...] = (0, 1) if place.endswith("reset") else (0, 1, "reward")
            for entry in entries:
                yield Case(f"{value} as {entry} at a {place}", partial(from_env, entry, value, answer, where))
        for answer, where in ((0, "reset"), (5, "step 5")):
            for entry in (0, 1) if answer == 0 else (0, 1, "reward"):
                name = f"{value} as {entry} at an evaluation's {where}"
                yield Case(name, partial(from_evaluation, entry, value, answer, where))


def huge(algo: str, entry: int | str, value: float, always: bool, _: Path) -> str:
    """Numbers that float32 holds, but not their squares: told or counted."""
    told = outcome(training(algo, Spoiled(entry, value, answers=lambda i: always or i == 5)))
    located = not told.error or refused(told.error, r"step \d+", r"\(seed \d+\)")
    if not told.error and not sum(told.counted.values()):
        return "nothing was told and nothing counted"
    return (located if told.error else "") or stored(told.state)


def huge_cases() -> Iterator[Case]:
    """Finite, yet too large."""
    for algo in ("sac", "m2ac"):
        for value in HUGE:
            for entry in (0, 1, "reward"):
                for always in (False, True):
                    name = f"{value} as {entry} {'always' if always else 'once'} with {algo}"
                    yield Case(name, partial(huge, algo, entry, value, always))


class Trembling(Spoiled):
    """Its motor adds noise that is not a number."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Be pushed by nobody knows how much."""
        return super().step(np.asarray(action) * np.nan)


def noise(_: Path) -> str:
    """Noise inside of the environment."""
    told = outcome(training("sac", Trembling(answers=lambda _: False)))
    return refused(told.error, r"observation\[0\] is nan in train episode 0 \(seed \d+\), step 1") or stored(told.state)


def noise_level(sigma: float, _: Path) -> str:
    """A level of noise that is no number."""
    try:
        NoisyAction(fine(), sigma)
    except UserError as raised:
        return refused(str(raised), f"sigma must be a finite number, at least 0, got {sigma}")
    return "nothing was refused"


# A user's functions


def nth(obs: Any, values: tuple[float, ...]) -> Any:
    """One of the values, by the observation."""
    return jnp.asarray(values)[jnp.floor(jnp.abs(obs[0]) * 1000).astype(jnp.int32) % len(values)]


def strange_reward(obs: Any, action: Any, next_obs: Any) -> Any:
    """Finite for one row in four."""
    return nth(obs, (1.0, *NOT_FINITE))


def nan_reward(obs: Any, action: Any, next_obs: Any) -> Any:
    """Never a number."""
    return jnp.nan * obs[0]


def nan_termination(obs: Any, action: Any, next_obs: Any) -> Any:
    """What a comparison with NaN says."""
    return jnp.nan * obs[0] > 0


def own_function(share: float, functions: dict[str, Any], _: Path) -> str:
    """A reward_fn or termination_fn of the user; `share` of the imagined rows are expected to go."""
    told = outcome(training("m2ac", fine(), **functions), EXPLORED + 10)
    rows = told.counted["trust/nonfinite_rows"]
    least, most = (0, 0) if share == 0 else (0.5 * share * 40, 80)
    if told.error or not least <= rows <= most:
        return f"{rows} rows were counted, {told.error or 'no error'}"
    return stored(told.state)


def float_termination(_: Path) -> str:
    """A termination_fn that returns a number."""
    try:
        M2AC(fine(), termination_fn=nan_reward, **SIZES, **MODEL)
    except UserError as raised:
        return refused(str(raised), "termination_fn must take .* and return one bool, got float32")
    return "nothing was refused"


def function_cases() -> Iterator[Case]:
    """Functions of the user."""
    yield Case("reward_fn with NaN and inf for some rows", partial(own_function, 0.75, {"reward_fn": strange_reward}))
    yield Case("reward_fn with NaN for all rows", partial(own_function, 1.0, {"reward_fn": nan_reward}))
    yield Case("termination_fn that compares NaN", partial(own_function, 0.0, {"termination_fn": nan_termination}))
    yield Case("termination_fn that returns NaN", float_termination)
    yield Case("noise of the motor", noise)
    for sigma in NOT_FINITE:
        yield Case(f"noise level {sigma}", partial(noise_level, sigma))


# What is learned, damaged in memory


@cache
def _explored(algo: str) -> Training:
    under_test = training(algo, fine())
    for _ in under_test.run(LEARNING):
        pass
    return under_test


def explored(algo: str) -> Training:
    """A training in which some updates were made, in an environment that is at its place."""
    before = _explored(algo)
    state = jax.tree.map(lambda x: jnp.array(x) if isinstance(x, jax.Array) else x, before.state)  # some are donated
    under_test = training(algo, fine(), state=state)
    under_test.rejoin()
    return under_test


def put(state: State, name: str, value: float) -> State:
    """The state with the first number of an array replaced."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)

    def spoiled(path: Any, leaf: Any) -> Any:
        if jax.tree_util.keystr(path) != name:
            return leaf
        array = np.array(leaf)
        array[(0,) * array.ndim] = value
        if isinstance(leaf, jax.Array):
            return jnp.asarray(array)
        return array if isinstance(leaf, np.ndarray) else type(leaf)(array)

    return jax.tree.unflatten(structure, [spoiled(path, leaf) for path, leaf in leaves])


def numbers_of(state: State, prefix: str) -> list[str]:
    """The floating-point arrays below a part of the state."""
    arrays = checkpoint.named_arrays(state)
    return [n for n, x in arrays.items() if n.startswith(prefix) and np.issubdtype(x.dtype, np.floating)]


def in_memory(algo: str, name: str, value: float, _: Path) -> str:
    """A number of the learner or the model replaced between two steps."""
    under_test = explored(algo)
    under_test.state = put(under_test.state, name, value)
    told = outcome(under_test, EXPLORED + 2 * 10 if algo == "sac" else EXPLORED + 3 * 10)
    if not told.error:  # what a fit computes anew cannot stay damaged
        return stored(told.state) or ("" if "input_" in name else "nothing was refused")
    part = re.split(r"[.\[]", name.removeprefix(".learner.").removeprefix(".dynamics."))[0]
    acted = "action .* is not finite|policy"  # a damaged policy is met where it acts
    named = {"policy": acted, "policy_optimiser": acted, "ensemble": "member|bounds", "optimiser": "optimiser|bounds"}
    return refused(told.error, named.get(part, part), r"step \d+", r"\(seed \d+\)")


def from_disk(algo: str, name: str, value: float, scratch: Path) -> str:
    """The same in a checkpoint."""
    path = Path(tempfile.mkdtemp(dir=scratch)) / "state"
    spoiled = put(explored(algo).state, name, value)
    try:
        checkpoint.save(path, spoiled, configured(algo))
        training(algo, fine(), state=checkpoint.load(path).state)
    except UserError as raised:
        return refused(str(raised), re.escape(name), str(value))
    return "nothing was refused"


def learned_cases() -> Iterator[Case]:
    """Every array of the learner and the model."""
    parts = {"sac": ".learner", "m2ac": ".dynamics"}
    for algo, part in parts.items():
        for name in numbers_of(_explored(algo).state, part):
            for value in NOT_FINITE:
                yield Case(f"{value} in {name}", partial(in_memory, algo, name, value))
    for algo, part in (*parts.items(), ("m2ac", ".real"), ("m2ac", ".imagined"), ("m2ac", ".episode")):
        for i, name in enumerate(numbers_of(_explored(algo).state, part)):
            value = NOT_FINITE[i % 3]
            yield Case(f"{value} in {name} of a checkpoint", partial(from_disk, algo, name, value))


# Rollouts


def spoiled_score(prediction: Any, member: Any, outcome: Any, company: Any) -> Any:
    """One-vs-Rest, and in its place for four rows in five NaN, an infinity, or what a penalty makes one of."""
    table = jnp.asarray([0.0, *NOT_FINITE, 3e38])
    rows = jnp.arange(outcome.shape[0]) % 5
    return jnp.where(rows == 0, one_vs_rest(prediction, member, outcome, company), table[rows])


def rollouts(how: Any, ensemble: Any, counted: Callable[[int], bool]) -> str:
    """A rollout phase of 40 rows and 2 steps."""
    state = explored("m2ac").state
    assert state.imagined is not None
    imagined, trust = phases.imagine(
        state.imagined, state.learner.policy, ensemble, state.real, jax.random.key(0), np.int32(0), rollouts=40, how=how
    )
    if not counted(int(trust.nonfinite_rows)):
        return f"{int(trust.nonfinite_rows)} rows were counted"
    return stored(state._replace(imagined=imagined))


def bad_scores(_: Path) -> str:
    """40 rows, of which 32 go at the first step; the places of the others have a score of their own."""
    under_test = explored("m2ac")
    assert under_test.imagination is not None
    assert under_test.state.dynamics is not None
    how = under_test.imagination._replace(score=spoiled_score, penalty=10.0)
    return rollouts(how, under_test.state.dynamics.ensemble, lambda rows: rows == 32)


def bad_members(name: str, value: float, _: Path) -> str:
    """A number of the model replaced between its fit and its rollouts.

    NaN must show; an infinity or a large number may leave every row finite, as where it shuts a unit off.
    """
    under_test = explored("m2ac")
    spoiled = put(under_test.state, name, value).dynamics
    assert spoiled is not None
    return rollouts(under_test.imagination, spoiled.ensemble, lambda rows: rows > 0 or not math.isnan(value))


def rollout_cases() -> Iterator[Case]:
    """Between fit and buffer."""
    yield Case("NaN, inf and 3e38 as scores", bad_scores)
    for name in numbers_of(_explored("m2ac").state, ".dynamics.ensemble"):
        for value in (*NOT_FINITE, *HUGE):
            if math.isfinite(value) and "input_" in name:
                continue  # one constant input more, and nothing wrong with the rest
            yield Case(f"{value} in {name} before rollouts", partial(bad_members, name, value))


# Several seeds, settings, the agent's own door


def one_of_several(what: str, _: Path) -> str:
    """The second of two seeds is damaged."""
    envs = [fine(), Spoiled("reward", {"reward": math.nan, "huge": 1e30}.get(what, 0.0), answers=lambda i: i == 3)]
    many = ManySeeds(
        configured("sac"),
        [World(env, seed=s, stream="train") for s, env in zip((5, 9), envs, strict=True)],
        termination_fn=never,
    )
    if what == "huge":
        counted = next(progress.metrics for progress in many.run(EXPLORED + 10) if progress.metrics)
        first, second = (own["sac/skipped_updates"] for own in counted)
        return "" if first == 0 < second else f"{first} and {second} updates were counted"
    try:
        for _progress in many.run(LEARNING):
            pass
        many._arrays = many._arrays._replace(
            learner=many._arrays.learner._replace(log_temperature=jnp.array([0.0, jnp.nan]))
        )
        for _progress in many.run(END):
            pass
    except UserError as raised:
        return refused(str(raised), r"step \d+", "reward is nan" if what == "reward" else r"temperature.*\(seed 9\)")
    return "nothing was refused"


def setting(name: str, value: float, _: Path) -> str:
    """A setting that is not a finite number."""
    try:
        override(AgentConfig(), {name: value})
    except UserError as raised:
        return refused(str(raised), re.escape(name), "got.*" + str(value))
    return "nothing was refused"


def float_settings(config: Any, prefix: str = "") -> Iterator[str]:
    """The names of settings that may be numbers with a fraction."""
    for each in fields(config):
        value = getattr(config, each.name)
        if is_dataclass(value):
            yield from float_settings(value, f"{prefix}{each.name}.")
        elif "float" in str(each.type):
            yield prefix + each.name


def observed(value: float, _: Path) -> str:
    """An agent asked about an observation that is none."""
    agent = SAC(fine(), **SIZES)
    try:
        agent.predict(np.array([0.0, value]))
    except UserError as raised:
        return refused(str(raised), rf"observation\[1\] is {value}")
    return "nothing was refused"


def other_cases() -> Iterator[Case]:
    """Several seeds, settings, the agent's own door."""
    for what in ("reward", "huge", "learner"):
        yield Case(f"{what} of one seed of two", partial(one_of_several, what))
    for value in NOT_FINITE:
        yield Case(f"{value} given to predict", partial(observed, value))
        for name in float_settings(AgentConfig()):
            if name != "model.weight_decay":
                yield Case(f"{value} as {name}", partial(setting, name, value))


def cases() -> list[Case]:
    """All of them."""
    sources = (env_cases, huge_cases, function_cases, learned_cases, rollout_cases, other_cases)
    return [case for source in sources for case in source()]


DEFAULT = 1000
"""More than there are, which is some 630: all of them."""


def run(n: int, scratch: Path) -> Row:
    """Try at most n cases, spread evenly over all."""
    every = cases()
    chosen = every if n >= len(every) else [every[i * len(every) // n] for i in range(n)]
    failures = []
    for case in chosen:
        try:
            missed = case.trying(scratch)
        except Exception as error:  # whatever else comes out is not what a user should meet
            missed = f"{type(error).__name__} escaped: {error}"
        if missed:
            failures.append(f"{case.name}: {missed}".replace("\n", " "))
    return Row(PROPERTY, len(chosen), len(chosen) - len(failures), failures)


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
