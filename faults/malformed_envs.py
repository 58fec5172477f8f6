"""Environments that are malformed, each in one way, met through the agents that are to learn from them."""

import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from faults.odd_envs import AT, NoSpaces, Odd, Unprintable, but, hanging, instead, raising
from faults.told import Words, lacking
from m2ac import M2AC, SAC
from m2ac.envs.notices import EnvWarning
from m2ac.settings import UserError

SMALL: dict[str, Any] = {
    "updates_per_step": 1,
    "random_steps": 10,
    "replay.capacity": 64,  # of one size in all cases, so that nothing is compiled twice
    "sac.hidden": 16,
    "sac.batch_size": 16,
}
MODELLED: dict[str, Any] = {
    **SMALL,
    "rollouts_per_update": 4,
    "model_every": 10,
    "model.hidden": 16,
    "model.layers": 1,
    "model.weight_decay": (1e-5, 1e-5),
    "model.members": 3,
    "model.elites": 2,
    "model.max_epochs": 2,
}
STEPS = 20


class Refused(NamedTuple):
    """An environment that no agent can take, and what is said about it."""

    name: str
    env: Callable[[], Any]
    words: Words

    def failure(self) -> str:
        """Why the case does not hold, nothing if it does."""
        try:
            SAC(self.env(), **SMALL)
        except UserError as error:
            return lacking(str(error), self.words)
        return "taken"


class Broken(NamedTuple):
    """An environment that fails once during the training, in a reset or at step `AT`; then learning can go on."""

    name: str
    env: Callable[[], Odd]
    words: Words
    again: bool = True  # whether learning can go on afterwards
    settings: dict[str, Any] = {}  # noqa: RUF012  (a named tuple's defaults are never written to)

    def failure(self) -> str:
        """Why the case does not hold, nothing if it does."""
        env = self.env()
        agent = SAC(env, **SMALL, **self.settings)
        try:
            agent.learn(STEPS)
        except UserError as error:
            wrong = lacking(str(error), self.words)
        else:
            return "learned from it"
        kept = agent.num_timesteps
        if not wrong and kept != (AT - 1 if env.on_step else 0):
            return f"{kept} steps were kept"
        if not wrong and self.again:
            agent.learn(6)  # the rest of an episode that began anew
            wrong = "" if agent.num_timesteps == kept + 6 else f"went on to step {agent.num_timesteps}"
        return wrong


class Harmless(NamedTuple):
    """An environment that is odd but can be learned from; what there is to tell about it is told once."""

    name: str
    env: Callable[[], Any]
    words: Words | None = None
    agent: type[M2AC] | type[SAC] = SAC

    def failure(self) -> str:
        """Why the case does not hold, nothing if it does."""
        settings = MODELLED if self.agent is M2AC else SMALL
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            agent = self.agent(self.env(), **settings).learn(STEPS)
            returns = agent.evaluate(1, eval_env=self.env() if agent.env.spec is None else None)
        told = [str(warning.message) for warning in caught if issubclass(warning.category, EnvWarning)]
        if agent.num_timesteps != STEPS or len(returns) != 1 or not np.isfinite(returns).all():
            return f"{agent.num_timesteps} steps, returns {returns}"
        if self.words is None:
            return f"told {told}" if told else ""
        return lacking(told[0], self.words) if len(told) == 1 else f"told {len(told)} times: {told}"


class InThread(NamedTuple):
    """A time limit in a thread that no alarm reaches."""

    name: str
    words: Words

    def failure(self) -> str:
        """Why the case does not hold, nothing if it does."""
        said: list[str] = []

        def learn() -> None:
            try:
                SAC(Odd(), step_timeout=1.0, **SMALL).learn(STEPS)
            except UserError as error:
                said.append(str(error))

        thread = threading.Thread(target=learn, name="worker")
        thread.start()
        thread.join()
        return lacking(said[0], self.words) if said else "learned without a limit"


BOX = spaces.Box(-1, 1, (2,), np.float32)
OBSERVATION, ACTION = "the observation space must be", "the action space must be"


def _observing(space: spaces.Space[Any]) -> Callable[[], Odd]:
    return lambda: Odd(observation_space=space)


def _acting(space: spaces.Space[Any]) -> Callable[[], Odd]:
    return lambda: Odd(action_space=space)


REFUSED = [
    Refused("discrete actions", _acting(spaces.Discrete(4)), Words(ACTION, "Discrete(4)", "use another library")),
    Refused("binary actions", _acting(spaces.MultiBinary(3)), Words(ACTION, "MultiBinary(3)", "use another library")),
    Refused("actions in a dict", _acting(spaces.Dict({"a": BOX})), Words(ACTION, "Dict('a'", "TransformAction")),
    Refused("a table of actions", _acting(spaces.Box(0, 1, (2, 3))), Words(ACTION, "(2, 3)", "TransformAction")),
    Refused("no action", _acting(spaces.Box(0, 1, (0,))), Words(ACTION, "(0,)", "nothing to learn without actions")),
    Refused("actions of integers", _acting(spaces.Box(0, 3, (2,), np.int32)), Words(ACTION, "int32", "as float32")),
    Refused(
        "actions without bounds",
        _acting(spaces.Box(-np.inf, np.inf, (1,))),
        Words(ACTION, "-inf, inf", "finite bounds"),
    ),
    Refused(
        "actions with one bound",
        _acting(spaces.Box(0, np.inf, (1,))),
        Words(ACTION, "0.0, inf", "declare finite bounds"),
    ),
    Refused("an action that cannot vary", _acting(spaces.Box(1, 1, (1,))), Words(ACTION, "1.0, 1.0", "leave out")),
    Refused(
        "observations in a dict", _observing(spaces.Dict({"a": BOX})), Words(OBSERVATION, "Dict('a'", "FlattenObs")
    ),
    Refused("observations in a tuple", _observing(spaces.Tuple((BOX,))), Words(OBSERVATION, "Tuple(Box", "FlattenObs")),
    Refused("a discrete observation", _observing(spaces.Discrete(5)), Words(OBSERVATION, "Discrete(5)", "FlattenObs")),
    Refused("text to observe", _observing(spaces.Text(9)), Words(OBSERVATION, "Text(", "FlattenObservation")),
    Refused(
        "images", _observing(spaces.Box(0, 255, (8, 8, 3), np.uint8)), Words(OBSERVATION, "(8, 8, 3)", "FlattenObs")
    ),
    Refused(
        "an observation of rank 0", _observing(spaces.Box(0, 1, ())), Words(OBSERVATION, "(), float32", "FlattenObs")
    ),
    Refused(
        "nothing to observe", _observing(spaces.Box(0, 1, (0,))), Words(OBSERVATION, "(0,)", "observe at least one")
    ),
    Refused(
        "no spaces at all", NoSpaces, Words("has no observation_space", "<NoSpaces instance>", "in its constructor")
    ),
    Refused(
        "a vector of environments",
        lambda: gym.vector.SyncVectorEnv([Odd, Odd]),
        Words("env must be", "SyncVectorEnv(", "made by gymnasium.make"),
    ),
    Refused("a class in place of an instance", lambda: Odd, Words("env must be", "<class", "pass an instance")),
    Refused("None", lambda: None, Words("env must be", "got None", "pass an instance")),
    Refused(
        "a constructor that raises",
        lambda: "faults.odd_envs:FailingMake-v0",
        Words('"faults.odd_envs:FailingMake-v0"', "FileNotFoundError: no model file at robot.xml", "mend it there"),
    ),
]

RESET, STEP = "train episode 0 (seed 2044266242), reset", f"train episode 0 (seed 2044266242), step {AT}"
SHAPE, NUMBERS = "of the declared shape", "an array of 2 numbers"
RESETS = "it must return (observation, info)"
STEPS_ = "it must return (observation, reward, terminated, truncated, info)"
REWARDS, FLAGS = "must return finite numbers as rewards", "return True or False"


def _at_reset(name: str, change: Any, value: str, remedy: str) -> Broken:
    return Broken(f"reset: {name}", lambda: Odd(on_reset=change), Words(RESET, value, remedy))


def _at_step(name: str, change: Any, value: str, remedy: str) -> Broken:
    return Broken(f"step: {name}", lambda: Odd(on_step=change), Words(STEP, value, remedy))


class UnshowableError(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        raise ValueError


def _shrinking(env: Odd, usual: tuple[Any, ...]) -> Any:
    env.action_space = spaces.Box(-0.5, 0.5, (1,), np.float32)
    return usual


def _overwriting(env: Odd, usual: tuple[Any, ...]) -> Any:
    env.action_space.high[:] = 3  # type: ignore[attr-defined]
    return usual


BROKEN = [
    _at_reset("nothing", instead(None), "reset returned None", RESETS),
    _at_reset("the observation alone", instead(np.zeros(2)), "reset returned array([0., 0.])", RESETS),
    _at_reset("three entries", instead((np.zeros(2), {}, 1)), "{}, 1)", RESETS),
    _at_reset("raises", raising(OSError("port\nlost")), "OSError: port lost, odd_envs.py line", "mend it there"),
    _at_reset("leaves", raising(SystemExit("bye")), "SystemExit: bye", "mend it there"),
    _at_reset("observation None", but(obs=None), "observation is None", NUMBERS),
    _at_reset("observation of another length", but(obs=np.zeros(3)), "shape (3,)", SHAPE),
    _at_reset("observation of rank 2", but(obs=np.zeros((1, 2))), "shape (1, 2)", SHAPE),
    _at_reset("observation of rank 0", but(obs=0.5), "shape ()", SHAPE),
    _at_reset("observation ragged", but(obs=[0.0, [1.0]]), "observation is [0.0, [1.0]]", NUMBERS),
    _at_reset("observation a dict", but(obs={"a": 1}), "observation is {'a': 1}", NUMBERS),
    Broken(
        "reset: action space replaced",
        lambda: Odd(on_reset=_shrinking),
        Words(RESET, "became Box(-0.5, 0.5", "keep the action space"),
        again=False,
    ),
    Broken(
        "reset: action space written to",
        lambda: Odd(on_reset=_overwriting),
        Words(RESET, "became Box(-1.0, 3.0", "keep the action space"),
        again=False,
    ),
    _at_step("nothing", instead(None), "step returned None", STEPS_),
    _at_step("four entries", instead((np.zeros(2), 0.0, False, {})), "0.0, False, {})", STEPS_),
    _at_step("six entries", instead((np.zeros(2), 0.0, False, False, {}, 7)), "{}, 7)", STEPS_),
    _at_step("a list", instead([np.zeros(2), 0.0, False, False, {}]), "step returned [array", STEPS_),
    _at_step("raises", raising(KeyError("torque")), "KeyError: 'torque', odd_envs.py line", "mend it there"),
    _at_step("raises without words", raising(AssertionError()), "raised AssertionError, odd_envs.py", "mend it there"),
    _at_step(
        "raises what cannot be shown",
        raising(UnshowableError()),
        "UnshowableError: it cannot be shown",
        "mend it there",
    ),
    _at_step("raises StopIteration", raising(StopIteration()), "raised StopIteration", "mend it there"),
    _at_step("leaves with success", raising(SystemExit(0)), "SystemExit: 0", "mend it there"),
    _at_step("out of memory", raising(MemoryError("9 TiB")), "MemoryError: 9 TiB", "mend it there"),
    _at_step("terminal codes", raising(ValueError("\x1b[2J" * 99)), r"ValueError: \x1b[2J\x1b[2J", "mend it there"),
    _at_step("observation of text", but(obs=np.array(["1", "2"])), "array(['1', '2']", NUMBERS),
    _at_step("observation of bytes", but(obs=b"12"), "observation is b'12'", NUMBERS),
    _at_step("observation of objects", but(obs=np.array([1.0, None])), "array([1.0, None]", NUMBERS),
    _at_step("observation complex", but(obs=np.array([1j, 2])), "array([0.+1.j, 2.+0.j])", NUMBERS),
    _at_step("observation masked", but(obs=np.ma.array([1.0, 2.0], mask=[0, 1])), "masked_array(", NUMBERS),
    _at_step("observation that cannot be shown", but(obs=Unprintable()), "type Unprintable that cannot", NUMBERS),
    _at_step("observation NaN", but(obs=np.float32([0, np.nan])), "observation[1] is nan", "finite observations"),
    _at_step(
        "observation infinite", but(obs=np.float32([-np.inf, 0])), "observation[0] is -inf", "finite observations"
    ),
    _at_step("observation too large", but(obs=np.array([0, 1e39])), "observation[1] is 1e+39", "at most 3.4e+38"),
    _at_step("reward None", but(reward=None), "reward is None", REWARDS),
    _at_step("reward of text", but(reward="1.0"), "reward is '1.0'", REWARDS),
    _at_step("reward of bytes", but(reward=b"1"), "reward is b'1'", REWARDS),
    _at_step("reward complex", but(reward=1j), "reward is 1j", REWARDS),
    _at_step("two rewards", but(reward=np.array([1.0, 2.0])), "reward is array([1., 2.])", REWARDS),
    _at_step("no reward", but(reward=[]), "reward is []", REWARDS),
    _at_step("reward masked", but(reward=np.ma.masked), "reward is masked", REWARDS),
    _at_step("reward NaN", but(reward=np.nan), "reward is nan", REWARDS),
    _at_step("reward infinite", but(reward=-np.inf), "reward is -inf", REWARDS),
    _at_step("reward too large", but(reward=-1e39), "reward is -1e+39", "at most 3.4e+38"),
    _at_step("reward of 5000 digits", but(reward=10**5000), "something of type int that cannot", REWARDS),
    _at_step("reward a dict", but(reward={"a": 1}), "reward is {'a': 1}", REWARDS),
    _at_step("terminated None", but(terminated=None), "terminated is None", FLAGS),
    _at_step("terminated in words", but(terminated="no"), "terminated is 'no'", FLAGS),
    _at_step("terminated by half", but(terminated=0.5), "terminated is 0.5", FLAGS),
    _at_step("terminated NaN", but(terminated=np.nan), "terminated is nan", FLAGS),
    _at_step("terminated twice", but(terminated=np.array([True, False])), "terminated is array([ True, False])", FLAGS),
    _at_step("truncated None", but(truncated=None), "truncated is None", FLAGS),
    _at_step("truncated a dict", but(truncated={"TimeLimit": True}), "truncated is {'TimeLimit': True}", FLAGS),
    Broken(
        "step: hangs",
        lambda: Odd(on_step=hanging),
        Words(STEP, "has not answered for 0.2 s", "raise step_timeout (--step-timeout)"),
        settings={"step_timeout": 0.2},
    ),
    Broken(
        "reset: hangs",
        lambda: Odd(on_reset=hanging),
        Words(RESET, "has not answered for 0.2 s", "mend what hangs there"),
        settings={"step_timeout": 0.2},
    ),
]


def _reusing(env: Odd, usual: tuple[Any, ...]) -> Any:
    env.kept = getattr(env, "kept", np.zeros(2, np.float32))  # type: ignore[attr-defined]
    env.kept[:] = usual[0]  # type: ignore[attr-defined]
    return (env.kept, *usual[1:])  # type: ignore[attr-defined]


def _always(change: Any, **settings: Any) -> Callable[[], Odd]:
    return lambda: Odd(on_step=change, always=True, **settings)


HARMLESS = [
    Harmless("every episode ends at once", _always(but(terminated=True)), agent=M2AC),
    Harmless("every episode is cut at once", _always(but(truncated=True)), agent=M2AC),
    Harmless(
        "no episode ends",
        lambda: Odd(limit=None),
        Words("eval episode 0 (seed 1976665983), step 10000", "has not ended", "max_episode_steps"),
        agent=M2AC,
    ),
    Harmless(
        "observations outside of their space",
        _always(but(obs=np.float32([0, 12.5]))),
        Words("train episode 0 (seed 2044266242), step 1", "observation[1] is 12.5", "declare bounds that hold"),
    ),
    Harmless(
        "an info that is no dict",
        _always(but(info=None)),
        Words("train episode 0 (seed 2044266242), step 1", "info is None", "return {}"),
    ),
    Harmless(
        "closing raises",
        lambda: gym.make("faults.odd_envs:Closing-v0"),
        Words("while closing", "FileNotFoundError: no model file", "mend it there"),
    ),
    Harmless("one array for all observations", _always(_reusing)),
    Harmless("actions as float16", _acting(spaces.Box(-2, 2, (1,), np.float16))),
    Harmless("observations of bytes", _always(but(obs=np.uint8([3, 4])))),
    Harmless("observations of booleans", _always(but(obs=[True, False]))),
    Harmless("numbers in place of flags", _always(but(terminated=0, truncated=np.float64(1)))),
    Harmless("arrays of one in place of numbers", _always(but(reward=np.ones(1), terminated=np.array([False])))),
]

THREADS = [
    InThread(
        "a time limit in another thread",
        Words("step_timeout works in the main thread only", "'worker'", "leave it out"),
    )
]

CASES: list[Refused | Broken | Harmless | InThread] = [*REFUSED, *THREADS, *BROKEN, *HARMLESS]
