"""A control loop of one's own, with learning beside it."""

import io
import time

import numpy as np
import pytest

from m2ac.config import RunConfig
from m2ac.envs.nowhere import Nowhere
from m2ac.envs.world import World
from m2ac.live.control import Live, LiveError
from m2ac.live.feeding import Ended, Inbox, fed_training
from m2ac.live.messages import ROW, Row, packed, read, unpacked, write
from m2ac.resolving import resolve
from m2ac.runs.checkpoint import load_newest
from m2ac.settings import ConfigError

SMALL = {
    "random_steps": 40,
    "updates_per_step": 1,
    "model_every": 20,
    "steps": 1000,
    "model": {"members": 2, "elites": 2, "hidden": 8, "layers": 1, "weight_decay": (0.0, 0.0), "max_epochs": 2},
    "sac": {"hidden": 8, "batch_size": 16},
}


class Point:
    """A point to be held at 0; a push in [-3, 0.5] each step."""

    def __init__(self):
        self.x, self.v = 1.0, 0.0

    def read(self):
        return np.array([self.x, self.v])

    def apply(self, action):
        self.v = 0.9 * self.v + 0.1 * (float(action[0]) + 1.25)
        self.x += 0.1 * self.v
        return self.read(), -(self.x**2)


def test_a_message_arrives_as_it_was_sent():
    pipe = io.BytesIO()
    row = Row(
        np.array([1, 2], np.float32), np.array([0.5], np.float32), -1.5, np.array([3, 4], np.float32), True, False
    )
    write(pipe, ROW, packed(row))
    write(pipe, b"W")
    pipe.seek(0)
    kind, payload = read(pipe)
    again = unpacked(payload, 2, 1)
    assert kind == ROW
    np.testing.assert_array_equal(again.obs, row.obs)
    np.testing.assert_array_equal(again.next_obs, row.next_obs)
    assert (again.action.tolist(), again.reward, again.terminated, again.truncated) == ([0.5], -1.5, True, False)
    assert read(pipe) == (b"W", b"")
    assert read(pipe) is None


def test_the_inbox_gives_the_oldest_first_and_ends_when_it_is_empty_and_closed():
    inbox = Inbox()
    rows = [Row(np.zeros(1), np.zeros(1), float(i), np.zeros(1), False, False) for i in range(3)]
    for row in rows:
        inbox.put(row)
    assert [row.reward for row in inbox.take(2)] == [0.0, 1.0]
    inbox.close()
    assert [row.reward for row in inbox.take(2)] == [2.0]
    with pytest.raises(Ended):
        inbox.take(1)


def fed(rows, **settings):
    """A training over a log of steps, run until it is empty."""
    inbox = Inbox()
    for row in rows:
        inbox.put(row)
    inbox.close()
    world = World(Nowhere(1, [-1.0], [1.0]), seed=0, stream="train")
    asked = RunConfig(**{"algo": "sac", "random_steps": 10, "steps": 500, "model_every": 20, **settings})
    training = fed_training(resolve(asked, {}, action_dim=1, steps=500), world, inbox=inbox)
    return training, inbox


def some_rows(count):
    rng = np.random.default_rng(0)
    for _ in range(count):
        obs, next_obs = rng.standard_normal((2, 1)).astype(np.float32)
        yield Row(obs, rng.uniform(-1, 1, 1).astype(np.float32), 1.0, next_obs, False, False)


def until_ended(training):
    try:
        for _ in training.run(10_000):
            pass
    except Ended:
        pass


def test_a_learner_that_keeps_up_makes_every_update():
    training, _ = fed(some_rows(28), updates_per_step=2)
    until_ended(training)
    assert (training.step, training.counters.updates, training.let_go) == (28, 36, 0)


def test_a_learner_that_falls_behind_lets_updates_go_and_takes_every_step():
    training, _ = fed(some_rows(100), updates_per_step=2)
    until_ended(training)
    assert training.step == 100
    assert int(training.state.real.size) == 100
    # Ten random steps, of which 89 more were waiting: a cycle's worth of the 180 updates that would be due.
    assert (training.counters.updates, training.let_go) == (40, 140)


def test_a_loop_acts_at_once_learns_beside_and_goes_on_from_its_directory(tmp_path):
    point, out = Point(), str(tmp_path / "run")
    with Live(2, [-3.0], [0.5], out=out, **SMALL) as live:
        assert not live.learned
        for step in range(120):
            obs = point.read()
            action = live.act(obs)
            assert -3.0 <= action[0] <= 0.5
            next_obs, reward = point.apply(action)
            live.observe(obs, action, reward, next_obs, truncated=step % 40 == 39)
            if step == 60:
                assert live.wait(300)
        assert live.wait(300)
        until = time.monotonic() + 300
        while not live.learned and time.monotonic() < until:
            time.sleep(0.1)
        assert live.learned
        deterministic = [live.act([0.1, 0.0], deterministic=True)[0] for _ in range(2)]
        assert deterministic[0] == deterministic[1]
    found = load_newest(tmp_path / "run" / "checkpoints", warn=pytest.fail)
    assert found.state.counters.steps == 120
    assert found.state.counters.updates > 0
    with Live(2, [-3.0], [0.5], out=out, **SMALL) as live:
        while live.status["steps"] == 0 and time.monotonic() < until:
            time.sleep(0.1)
        assert live.status["steps"] == 120
        assert live.learned


def test_what_cannot_be_learned_from_is_refused_at_once(tmp_path):
    with Live(2, [-3.0], [0.5], **SMALL) as live:
        for obs, message in (([0.0], r"obs must have shape \(2,\), got \(1,\)"), ([0.0, np.nan], "must be finite")):
            with pytest.raises(ConfigError, match=message):
                live.observe(obs, [0.0], 0.0, [0.0, 0.0])
    with pytest.raises(ConfigError, match="algo must not be ppo"):
        Live(2, [-1.0], [1.0], algo="ppo")


def test_a_learner_that_has_ended_is_noticed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("{}")
    with Live(2, [-3.0], [0.5], out=str(tmp_path / "run"), **SMALL) as live:
        live.observe([0.0, 0.0], [0.0], 0.0, [0.0, 0.0])
        with pytest.raises(LiveError, match=r"metrics\.jsonl but no config\.json"):
            live.wait(120)
        assert live.act([0.0, 0.0]).shape == (1,)
