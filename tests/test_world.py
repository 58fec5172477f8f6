"""The environment as it is met: what is refused and with which words, what is told, and how long is waited."""

import math
import re
import signal
import threading
import time
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from faults.malformed_envs import BROKEN, Broken
from faults.odd_envs import Odd, but, hanging
from faults.told import lacking
from m2ac.envs import world as world_module
from m2ac.envs.answers import flag_of, observation_of, reward_of
from m2ac.envs.notices import EnvError, EnvWarning, Notices, brief, cause
from m2ac.envs.patience import TimedOut, within
from m2ac.envs.world import World
from m2ac.settings import ConfigError

STILL = np.zeros(1, np.float32)


def world(env: Any = None, **settings: Any) -> World:
    return World(Odd() if env is None else env, seed=0, stream="train", **settings)


def play(world: World, steps: int = 10) -> None:
    world.reset(0)
    for _ in range(steps):
        world.step(STILL)


def texts(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(warning.message) for warning in caught if warning.category is EnvWarning]


# What is refused


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_a_wrong_answer_is_refused_in_one_line_with_place_value_and_remedy(case: Broken) -> None:
    with pytest.raises(EnvError) as caught:
        play(world(case.env(), **case.settings))
    assert lacking(str(caught.value), case.words) == ""


def test_what_was_raised_stays_behind_the_error_for_the_users_of_the_library() -> None:
    def fail(env: Odd, usual: Any) -> Any:
        raise KeyError("torque")

    with pytest.raises(EnvError) as caught:
        play(world(Odd(on_step=fail)))
    assert isinstance(caught.value.__cause__, KeyError)
    assert "KeyError: 'torque', test_world.py line " in str(caught.value)


@pytest.mark.parametrize("answer", [[1, 2], (1.0, 2.0), np.array([1, 2], np.uint8), np.float64([1, 2])])
def test_whatever_holds_real_numbers_is_an_observation(answer: Any) -> None:
    obs = observation_of(answer, 2, "here")
    assert obs.dtype == np.float32
    np.testing.assert_array_equal(obs, [1, 2])


@pytest.mark.parametrize("answer", [2, 2.0, np.float32(2), np.array(2), np.array([[2.0]])])
def test_a_reward_may_come_in_an_array_of_one(answer: Any) -> None:
    assert reward_of(answer, "here") == 2.0


@pytest.mark.parametrize(("answer", "ended"), [(True, True), (np.False_, False), (1, True), (0.0, False), ([1], True)])
def test_a_flag_may_be_a_number_that_is_0_or_1(answer: Any, ended: bool) -> None:
    assert flag_of("terminated", answer, "here") is ended


def test_an_observation_is_a_copy_of_what_the_environment_goes_on_writing_to() -> None:
    shared = np.zeros(2, np.float32)

    def reuse(env: Odd, usual: Any) -> Any:
        shared[:] = env.steps
        return (shared, *usual[1:])

    meeting = world(Odd(on_reset=reuse, on_step=reuse, always=True))
    first = meeting.reset(0)
    second = meeting.step(STILL).next_obs
    assert (first.tolist(), second.tolist()) == ([0, 0], [1, 1])


def test_bounds_of_actions_that_are_overwritten_between_resets_do_not_move_the_actions() -> None:
    env = Odd(on_step=lambda env, usual: (np.full(2, env.action_space.high[0]), *usual[1:]), always=True)
    meeting = world(env)
    meeting.reset(0)
    env.action_space.high[:] = 5  # type: ignore[attr-defined]
    np.testing.assert_array_equal(meeting.scale.to_env([1.0]), [1.0])
    with pytest.raises(EnvError, match=r"became Box\(-1.0, 5.0, .* it was Box\(-1.0, 1.0, "):
        meeting.reset(1)


# What is told


def test_what_is_odd_is_told_once_in_all_the_worlds_that_share_their_notices() -> None:
    def outside() -> Odd:
        return Odd(on_step=but(obs=[0.0, -11.0], info=None), always=True)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notices = Notices()
        for _ in range(3):
            play(world(outside(), notices=notices))
    place = "train episode 0 (seed 2044266242), step 1"
    assert texts(caught) == [
        f"info is None in {place}; it is not used here, but wrappers need a dict: return {{}}",
        f"observation[1] is -11 in {place}, outside of its declared bounds [-10, 10]; learning goes on with it, "
        f"but declare bounds that hold in the observation space, inf where there are none",
    ]


@pytest.mark.parametrize(
    ("space", "obs", "outside"),
    [
        (spaces.Box(0.1, 0.3, (2,), np.float64), [0.1, 0.3], False),  # as float32 both are a little above
        (spaces.Box(0.1, 0.3, (2,), np.float64), [0.1, 0.301], True),
        (spaces.Box(-np.inf, np.inf, (2,)), [1e30, -1e30], False),
        (spaces.Box(np.float32([0, -np.inf]), np.float32([np.inf, 0])), [1e30, -1e30], False),
        (spaces.Box(np.float32([0, -np.inf]), np.float32([np.inf, 0])), [1e30, 1.0], True),
        (spaces.Box(0, 255, (2,), np.uint8), [0, 255], False),
        (spaces.Box(0, 255, (2,), np.uint8), [0, 256], True),
    ],
)
def test_rounding_is_not_outside_and_a_missing_bound_holds_everything(space: Any, obs: Any, outside: bool) -> None:
    env = Odd(observation_space=space, on_reset=but(obs=obs), on_step=but(obs=obs), always=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        play(world(env))
    assert [text[:17] for text in texts(caught)] == (["observation[1] is"] if outside else [])


class Rover(gym.Env[Any, Any]):
    """Far from its origin, moving by centimetres."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, origin: float) -> None:
        self.origin = origin

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.array([0.0, self.origin]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([1.0, self.origin + self.np_random.uniform(-0.13, 0.13)]), 0.0, False, False, {}


@pytest.mark.parametrize(("origin", "told"), [(5.4e6, True), (1e3, False)])
def test_what_float32_cannot_tell_apart_is_told(origin: float, told: bool) -> None:
    world = World(Rover(origin), seed=0, stream="train")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        world.reset(0)
        for _ in range(250):
            world.step(np.zeros(1, np.float32))
    said = [str(each.message) for each in caught]
    assert len(said) == told
    assert all(
        re.match(r"observation\[1\] is about 5.4e\+06 and moved by 0.26 in 200 observations, but", s) for s in said
    )


def test_an_episode_without_an_end_is_cut_in_an_evaluation_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "LONGEST_EVALUATION", 12)
    endless = world(Odd(limit=None))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [endless.play(lambda obs: STILL, number).length for number in range(2)] == [12, 12]
        assert world(Odd(limit=12)).play(lambda obs: STILL, 0).length == 12
    (text,) = texts(caught)
    assert text.startswith("the episode has not ended at train episode 0 (seed 2044266242), step 12; training goes on")
    assert "max_episode_steps" in text


def test_an_environment_that_fails_to_close_does_not_end_a_run_in_failure() -> None:
    def fail() -> None:
        raise OSError("window is gone")

    with pytest.warns(EnvWarning, match=r"while closing: .* OSError: window is gone, test_world.py line .*nothing is"):
        world(Odd(on_close=fail)).close()


def test_what_cannot_be_shown_is_named_by_its_type() -> None:
    assert brief(10**5000) == "something of type int that cannot be shown"
    assert brief("x" * 100) == "'" + "x" * 76 + "..."
    assert cause(ValueError("two\nlines \x1b[1m")) == r"ValueError: two lines \x1b[1m"


# How long is waited


def test_a_step_in_time_is_not_disturbed() -> None:
    limited, free = world(step_timeout=5.0), world()
    np.testing.assert_array_equal(limited.reset(0), free.reset(0))
    np.testing.assert_array_equal(limited.step(STILL).next_obs, free.step(STILL).next_obs)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_hanging_step_is_left_after_the_limit_and_the_next_episode_begins() -> None:
    meeting = world(Odd(on_step=hanging), step_timeout=0.05)
    started = time.monotonic()
    with pytest.raises(
        EnvError, match=r"has not answered for 0.05 s in train episode 0 \(seed \d+\), step 3; mend what"
    ):
        play(meeting)
    assert time.monotonic() - started < 5
    play(meeting, steps=8)


def test_code_that_catches_everything_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("m2ac.envs.patience.AGAIN", 0.02)
    caught: list[BaseException] = []

    def stubborn() -> None:
        while True:
            try:
                time.sleep(60)
            except BaseException as error:
                caught.append(error)
                if len(caught) == 3:
                    raise

    with pytest.raises(TimedOut):
        within(0.02, stubborn)
    assert [type(error) for error in caught] == [TimedOut] * 3


def test_the_alarm_of_someone_else_is_kept() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert within(5.0, lambda: time.sleep(0.1) or "done") == "done"
        deadline = time.monotonic() + 5
        while not rung and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rung == [signal.SIGALRM]


def test_what_is_raised_in_time_passes_and_leaves_no_alarm_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(ZeroDivisionError):
        within(5.0, lambda: 1 // 0)
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_limit_in_another_thread_is_refused_before_anything_is_asked_of_the_environment() -> None:
    said: list[str] = []
    env = Odd()

    def meet() -> None:
        try:
            world(env, step_timeout=1.0).reset(0)
        except ConfigError as error:
            said.append(str(error))

    thread = threading.Thread(target=meet, name="worker")
    thread.start()
    thread.join()
    assert said == ["step_timeout works in the main thread only, got the thread 'worker'; train there or leave it out"]
    assert env.resets == 0


def test_without_a_limit_other_threads_meet_the_environment_as_ever() -> None:
    done: list[float] = []
    thread = threading.Thread(target=lambda: done.append(world().play(lambda obs: STILL, 0).total))
    thread.start()
    thread.join()
    assert len(done) == 1
    assert math.isfinite(done[0])


def test_an_environment_without_spaces_is_named() -> None:
    class Blank(gym.Env[Any, Any]):
        pass

    with pytest.raises(ConfigError, match=r"<Blank instance> has no observation_space; set self.observation_space in"):
        world(Blank())
