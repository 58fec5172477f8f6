"""A control loop of one's own, with learning beside it."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from waiting import until

from m2ac.cli import main
from m2ac.config import LIVE, RunConfig
from m2ac.envs.nowhere import Nowhere
from m2ac.envs.world import World
from m2ac.learners.acting import ActingPolicy
from m2ac.live import learner
from m2ac.live.control import Live, LiveError, learned_before
from m2ac.live.feeding import Ended, Inbox, fed_training
from m2ac.live.messages import POLICY, ROW, Row, packed, read, unpacked, write
from m2ac.live.session import must_begin, session_of
from m2ac.resolving import resolve
from m2ac.runs import checkpoint
from m2ac.runs.checkpoint import load_newest
from m2ac.runs.directory import RunDirectory
from m2ac.runs.loop import Loop, record_loop
from m2ac.runs.policy import load_policy, policy_of, save_policy
from m2ac.settings import ConfigError, override, to_dict
from m2ac.types import Transition

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


def test_a_save_by_the_clock_does_not_do_for_one_that_waits_for_steps_to_be_taken():
    inbox = Inbox()
    for reward in range(5):
        inbox.put(Row(np.zeros(1), np.zeros(1), float(reward), np.zeros(1), False, False))
    inbox.take(2)
    inbox.ask_to_save()
    inbox.saved()
    assert inbox.save_wanted
    assert not inbox.save_due
    inbox.take(3)
    assert inbox.save_due
    inbox.saved()
    assert not inbox.save_wanted


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


LOOP = Loop(1, [-1.0], [1.0])


def fed(rows, logged=0, **settings):
    """A training over a log of steps, run until it is empty."""
    inbox = Inbox()
    for row in rows:
        inbox.put(row)
    inbox.close()
    world = World(Nowhere(1, [-1.0], [1.0]), seed=0, stream="train")
    asked = RunConfig(**{"algo": "sac", "random_steps": 10, "steps": 500, "model_every": 20, **settings})
    training = fed_training(resolve(asked, {}, action_dim=1, steps=500, logged=logged), world, inbox=inbox)
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


def test_updates_that_are_due_send_no_policy_each_and_the_last_one_is_sent_though_no_step_comes(monkeypatch):
    monkeypatch.setattr(learner, "EVERY", 3600.0)
    inbox, out = Inbox(), io.BytesIO()
    for row in some_rows(100):
        inbox.put(row)
    asked = RunConfig(algo="sac", random_steps=10, steps=500, model_every=20, updates_per_step=2)
    learning = learner.Learner({**LOOP._asdict(), "config": to_dict(asked)}, inbox, out)
    idle = inbox.while_idle
    inbox.while_idle = lambda: (idle(), inbox.close())
    learning.run()
    assert learning.training.counters.updates == 40  # with no step waiting
    out.seek(0)
    sent = [payload for kind, payload in iter(lambda: read(out), None) if kind == POLICY]
    assert len(sent) == 1
    obs = np.array([0.3], np.float32)
    np.testing.assert_array_equal(policy_of(load(sent[0]), asked)(obs), learning.training.acting_policy()(obs))


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
        until(lambda: live.learned)
        assert live.learned
        # A new policy may come between two calls, but not between any two.
        until(lambda: len({live.act([0.1, 0.0], deterministic=True)[0] for _ in range(2)}) == 1)
    found = load_newest(tmp_path / "run" / "checkpoints", warn=pytest.fail)
    assert found.state.counters.steps == 120
    assert found.state.counters.updates > 0
    learned = load_policy(tmp_path / "run" / "policy.safetensors")(np.array([0.1, 0.0], np.float32))
    with Live(2, [-3.0], [0.5], out=out, **SMALL) as again:
        at_once = again.act([0.1, 0.0], deterministic=True)  # long before the learner is ready
        np.testing.assert_allclose(at_once, -1.25 + 1.75 * learned, rtol=1e-5)
        assert again._noise.random() != np.random.default_rng([0, 7, 0]).random(), "the same exploration once more"
        until(lambda: again.status["steps"])
        assert again.status["steps"] == 120
        assert again.learned
    for late in (lambda: again.wait(), lambda: again.save(), lambda: told(again, 1)):
        with pytest.raises(LiveError, match="this Live is closed"):
            late()


def left_behind(run, rows):
    """What a session of a loop with these steps leaves, of which ten are random; and its policy."""
    training, _ = fed(rows, scale_observations=True)
    until_ended(training)
    policy = training.acting_policy()
    checkpoint.save(run / "checkpoints" / f"step-{training.step:010d}", training.state, training.config)
    save_policy(run / "policy.safetensors", policy)
    record_loop(run, LOOP)
    return policy


def test_a_session_begins_with_what_the_one_before_has_learned(tmp_path):
    hot = [row._replace(obs=row.obs + 300, next_obs=row.next_obs + 300) for row in some_rows(28)]
    policy, config, obs = left_behind(tmp_path, hot), RunConfig(algo="sac"), np.array([301.0], np.float32)
    again = learned_before(tmp_path, LOOP, config)
    assert 299 < again.scaling.shift[0] < 301
    np.testing.assert_array_equal(again(obs), policy(obs))
    assert learned_before(tmp_path, LOOP._replace(high=[2.0]), config) is None, "actions of another size"
    assert learned_before(tmp_path / "elsewhere", LOOP, config) is None


def test_random_steps_that_are_due_stay_random_in_a_later_session(tmp_path):
    left_behind(tmp_path, some_rows(8))
    assert learned_before(tmp_path, LOOP, RunConfig(algo="sac")) is None


def test_a_damaged_policy_is_told_and_does_not_stop_the_loop(tmp_path):
    left_behind(tmp_path, some_rows(12))
    file = tmp_path / "policy.safetensors"
    of_two = ActingPolicy([(np.zeros((2, 2), np.float32), np.zeros(2, np.float32))])
    for damage, told in (
        (lambda: file.write_bytes(b"damaged"), "policy.safetensors is damaged"),
        (lambda: save_policy(file, of_two), "has 2 observations and 1 actions, but the loop has 1 and 1"),
        (file.unlink, "policy.safetensors cannot be read: No such file"),
    ):
        damage()
        with pytest.warns(UserWarning, match=told) as warned:
            assert learned_before(tmp_path, LOOP, RunConfig(algo="sac")) is None
        assert [str(w.message).count("until the learner is ready, actions are random") for w in warned] == [1]


def test_updates_from_a_log_are_not_owed_by_steps():
    """Twelve steps at two updates each, after ten updates from the log: 24 of their own, none let go."""
    training, inbox = fed((), updates_per_step=2, random_steps=0, offline_updates=10, logged=20)
    rows: Any = (np.stack(column) for column in zip(*some_rows(20), strict=True))
    obs, action, reward, next_obs, terminated, _ = rows
    training.absorb(Transition(obs, action, reward.astype(np.float32), next_obs, terminated))
    assert training.let_go == 0
    inbox._closed = False
    for row in some_rows(12):
        inbox.put(row)
    inbox.close()
    until_ended(training)
    assert (training.step, training.counters.updates, training.let_go) == (12, 34, 0)


def test_what_was_told_before_saving_was_asked_for_is_saved_and_nothing_later_is_waited_for():
    inbox = Inbox()
    for row in some_rows(3):
        inbox.put(row)
    inbox.ask_to_save()
    for row in some_rows(2):
        inbox.put(row)
    assert (inbox.save_wanted, inbox.save_due) == (True, False)
    inbox.take(3)
    assert inbox.save_due
    inbox.saved()
    assert (inbox.save_wanted, inbox.save_due) == (False, False)


REFUSED = {
    "obs must have shape (2,), got (1,)": {"obs": [0.0]},
    "obs must be finite in float32, got [ 0. nan]": {"obs": [0.0, np.nan]},
    "next_obs must be finite in float32, got [inf 0.]": {"next_obs": [1e39, 0.0]},
    "action must have shape (1,), got (3,)": {"action": [0.1, 0.2, 0.3]},
    "action must have shape (1,), got (0,)": {"action": []},
    "action must be finite in float32, got [nan]": {"action": [np.nan]},
    "reward must be finite in float32, got [inf]": {"reward": 1e39},
    "action[0] must be in [-3.0, 0.5], got 1.5; tell the action as it was applied": {"action": [1.5]},
    "action[0] must be in [-3.0, 0.5], got 0.5004;": {"action": [0.5004]},
    "terminated must be True or False, got 'no'; mend it": {"terminated": "no"},
    "truncated must be True or False, got 2; mend it": {"truncated": 2},
}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_what_cannot_be_learned_from_or_acted_on_is_refused_at_once():
    with Live(2, [-3.0], [0.5], **SMALL) as live:
        for message, odd in REFUSED.items():
            with pytest.raises(ConfigError, match=re.escape(message)):
                live.observe(**{"obs": [0.0, 0.0], "action": [0.0], "reward": 0.0, "next_obs": [0.0, 0.0], **odd})
        with pytest.raises(ConfigError, match="obs must be finite"):
            live.act([np.nan, 0.0])
        assert not live._observed
        for rounded in (0.5003, -3.0003):  # 3.5 wide, so a ten thousandth of it is 0.00035
            live.observe([0.0, 0.0], [rounded], 0.0, [0.0, 0.0], terminated=np.True_, truncated=0)
        assert live._observed == 2
    for odd, message in (
        ({"algo": "ppo"}, "algo must not be ppo"),
        ({"tensorboard": True}, "tensorboard has no meaning for Live, got True; leave it out"),
        ({"obs_dim": 2.0}, "obs_dim must be a whole number of at least 1, got 2.0; count the numbers"),
        ({"obs_dim": 0}, "obs_dim must be a whole number of at least 1, got 0"),
        ({"data": ("none.csv",)}, "cannot read --data none.csv: No such file"),
    ):
        with pytest.raises(ConfigError, match=message):
            Live(**{"obs_dim": 2, "low": [-1.0], "high": [1.0], **odd})


def test_a_directory_that_the_learner_would_refuse_is_refused_before_the_loop_begins(tmp_path):
    loop, asked = Loop(2, [-3.0], [0.5]), override(RunConfig(env=LIVE), {**SMALL, "out": str(tmp_path / "run")})
    run = RunDirectory.open(tmp_path / "run", session_of(asked, loop).config, asked=asked)
    record_loop(run.path, loop)
    for name in ("export.json", "metrics.jsonl"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("{}")
    (tmp_path / "file").write_text("")
    same = {"obs_dim": 2, "low": [-3.0], "high": [0.5], "out": "run", **SMALL}
    with pytest.raises(ConfigError, match="another process is training in"):
        Live(**{**same, "out": str(run.path)})
    run.close()
    for odd, message in (
        ({"horizon": 3}, "'.*run' holds a run with other settings: horizon is 1 there and 3 here; choose another"),
        ({"high": [0.8]}, r"high=\[0.5\], got \[0.8\]"),
        ({"out": "export.json"}, "has export.json but no config.json"),
        ({"out": "metrics.jsonl"}, r"has metrics\.jsonl but no config\.json"),
        ({"out": "file"}, "cannot write the run directory .*: File exists"),
    ):
        wanted = {**same, **odd}
        with pytest.raises(ConfigError, match=message):
            Live(**{**wanted, "out": str(tmp_path / wanted["out"])})
    must_begin(replace(asked, checkpoint_minutes=1.0), loop)


def test_a_learner_that_has_failed_is_told_once_and_acting_goes_on(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path)
    live = Live(2, [-3.0], [0.5], out=str(tmp_path / "run"), **SMALL)
    live.observe([0.0, 0.0], [0.0], 0.0, [0.0, 0.0])
    until(lambda: live._failure)
    live._to_send.clear()
    with pytest.warns(UserWarning, match=r"cannot write the run directory .*no step is kept") as warned:
        actions = [live.act([0.0, 0.0]) for _ in range(2)]
    told(live, 1)
    assert [action.shape for action in actions] == [(1,), (1,)]
    assert [w.filename for w in warned] == [__file__]
    assert not live._to_send, "what nobody takes any more must not gather"
    for told_again in (live.wait, live.close):
        with pytest.raises(LiveError, match="cannot write the run directory"):
            told_again()


def test_a_learner_that_was_killed_is_told_by_the_next_step():
    live = Live(2, [-3.0], [0.5], **SMALL)
    live._process.kill()
    until(lambda: live._failure)
    message = r"without a word \(signal 9; see its output\), and what it had not saved is lost"
    with pytest.warns(UserWarning, match=message) as warned:
        told(live, 2)
    assert len(warned) == 1
    with pytest.raises(LiveError, match="signal 9"):
        live.close()


def test_waiting_for_updates_without_an_end_is_refused_where_none_may_come():
    refused = pytest.raises(ConfigError, match="timeout must be given with updates=True and rhythm=epoch")
    with Live(2, [-3.0], [0.5], rhythm="epoch", **SMALL) as live, refused:
        live.wait(updates=True)


def test_waiting_for_updates_leaves_none_due():
    with Live(2, [-3.0], [0.5], **SMALL) as live:
        told(live, 100)
        assert live.wait(300, updates=True)
        # Forty random steps; of the updates for the others at least those of a cycle are made.
        assert live.status["updates"] + live.status["let_go"] == 60
        assert live.status["updates"] >= 20
        assert live.status["due"] == 0
        until(lambda: live.learned)


def told(live, count):
    for _ in range(count):
        live.observe([0.0, 0.1], [0.2], 1.0, [0.3, 0.4])


def saved_steps(run):
    found = load_newest(run / "checkpoints", warn=pytest.fail)
    return 0 if found is None else found.state.counters.steps


def test_a_pause_and_an_early_restart_lose_nothing(tmp_path):
    out = tmp_path / "run"
    with Live(2, [-3.0], [0.5], out=str(out), **SMALL) as live:
        told(live, 30)
        assert live.wait(120)
        live.save()  # no step comes any more
        until(lambda: saved_steps(out) == 30)
        os.kill(live._process.pid, signal.SIGINT)  # Ctrl-C goes to the learner too
        told(live, 5)
        assert live.wait(120)
    assert saved_steps(out) == 35
    (newest,) = (out / "checkpoints").glob("step-0000000035")
    (newest / "state.safetensors").write_bytes(b"damaged")
    live = Live(2, [-3.0], [0.5], out=str(out), **SMALL)
    told(live, 3)
    assert live.wait(120)
    assert "using" in live.status["message"]
    assert not live.learned, "of 40 random steps 33 are made, so nothing has been learned"
    os.kill(live._process.pid, signal.SIGTERM)
    with pytest.raises(LiveError, match="the learner ended without a word"):
        until(lambda: live.check() or False)
    assert saved_steps(out) == 33


KILLED = """
import json, os, signal, sys, time
from m2ac import Live
live = Live(2, [-3.0], [0.5], out=sys.argv[1], **json.loads(sys.argv[2]))
for i in range(100):
    live.observe([0.0, 0.1], [0.2], 1.0, [0.3, 0.4])
live.wait(300)  # the random steps are over, and the learner is busy
for i in range(400):
    live.observe([0.0, 0.1], [0.2], 1.0, [0.3, 0.4])
if len(sys.argv) > 3:  # neither killed nor closed
    sys.exit()
time.sleep(0.5)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_loop_that_does_not_close_loses_nothing_either(tmp_path):
    out = tmp_path / "run"
    subprocess.run([sys.executable, "-c", KILLED, out, json.dumps(SMALL), "leave"], check=True)
    assert saved_steps(out) == 500


def test_what_a_killed_loop_had_told_is_kept_and_its_policy_can_be_exported(tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    subprocess.run([sys.executable, "-c", KILLED, out, json.dumps(SMALL)], check=False)
    until(lambda: saved_steps(out) == 500)
    until(lambda: (out / "policy.safetensors").exists())
    assert main(["export", str(out), "--formats", "numpy", "--out", str(tmp_path / "policy")]) == 0
    record = json.loads((tmp_path / "policy" / "export.json").read_text())
    assert record["env"] == "live"
    for command in ("eval", "trust", "video", "resume"):
        assert main([command, str(out)]) == 2
        assert "is of a control loop" in capsys.readouterr().err
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    for command in ("export", "eval"):
        assert main([command, str(out), "--env", "strange_envs:Plain-v0"]) == 2
        assert "has actions with low=[-3.0], but strange_envs:Plain-v0 has [0.0]" in capsys.readouterr().err


def test_a_loop_can_begin_with_a_log(tmp_path):
    rng = np.random.default_rng(0)
    obs, next_obs = rng.normal(size=(2, 60, 2))
    action, flags = rng.uniform(-3.0, 0.5, (60, 1)), np.zeros(60)
    log = tmp_path / "log.npz"
    np.savez(log, obs=obs, action=action, reward=flags, next_obs=next_obs, terminated=flags)
    settings = {name: value for name, value in SMALL.items() if name != "random_steps"}
    with Live(2, [-3.0], [0.5], out=str(tmp_path / "run"), data=(str(log),), offline_updates=5, **settings) as live:
        until(lambda: live.status["updates"] == 5)
    found = load_newest(tmp_path / "run" / "checkpoints", warn=pytest.fail)
    assert (int(found.state.real.size), found.state.counters.steps, found.state.counters.updates) == (60, 0, 5)
