"""Starting from logged experience."""

import os
import re
import shutil

import gymnasium as gym
import numpy as np
import pytest

from m2ac import M2AC
from m2ac.cli import main
from m2ac.config import RunConfig
from m2ac.envs import make_env
from m2ac.envs.world import World
from m2ac.model_config import ReplayConfig
from m2ac.resolving import resolve
from m2ac.runs.checkpoint import fingerprint, load_newest
from m2ac.runs.directory import RunDirectory
from m2ac.runs.experience import read_experience
from m2ac.settings import ConfigError


@pytest.fixture(scope="module")
def world():
    world = World(make_env("Pendulum-v1"), seed=0, stream="train")
    yield world
    world.close()


def play(episodes=2, length=40):
    """Episodes of Pendulum with random torques, as a log has them: observations one longer than the rest."""
    env, rng = gym.make("Pendulum-v1"), np.random.default_rng(0)
    logged = []
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        observations, actions, rewards = [obs], [], []
        for _ in range(length):
            action = rng.uniform(-2, 2, 1).astype(np.float32)
            obs, reward, *_ = env.step(action)
            observations.append(obs)
            actions.append(action)
            rewards.append(reward)
        logged.append((np.array(observations), np.array(actions), np.array(rewards)))
    return logged


def columns(episodes=2, length=40):
    played = play(episodes, length)
    ends = np.zeros((episodes, length), dtype=bool)
    ends[:, -1] = True
    return {
        "obs": np.concatenate([obs[:-1] for obs, _, _ in played]),
        "action": np.concatenate([action for _, action, _ in played]),
        "reward": np.concatenate([reward for _, _, reward in played]),
        "next_obs": np.concatenate([obs[1:] for obs, _, _ in played]),
        "terminated": np.zeros(episodes * length, dtype=bool),
        "truncated": ends.ravel(),
    }


def table(parts):
    """The same with a column for every number."""
    flat = {}
    for name, part in parts.items():
        flat |= {name: part} if part.ndim == 1 else {f"{name}_{i}": part[:, i] for i in range(part.shape[1])}
    return flat


def write_csv(path, parts):
    flat = table(parts)
    lines = [",".join(flat), *(",".join(str(value) for value in row) for row in zip(*flat.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_every_kind_of_file_holds_the_same(tmp_path, world):
    parts = columns()
    np.savez(tmp_path / "a.npz", **parts)
    write_csv(tmp_path / "a.csv", parts)
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'm2ac[data]'")
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table(table(parts)), tmp_path / "a.parquet")
    for kind in ("npz", "csv", "parquet"):
        experience = read_experience([str(tmp_path / f"a.{kind}")], world)
        np.testing.assert_allclose(experience.rows.obs, parts["obs"])
        np.testing.assert_allclose(experience.rows.action, parts["action"] / 2, atol=1e-7)  # torque is in [-2, 2]
        np.testing.assert_allclose(experience.rows.reward, parts["reward"], rtol=1e-6)
        np.testing.assert_allclose(experience.rows.next_obs, parts["next_obs"])
        assert not experience.rows.terminated.any()
        assert experience.sources[0]["rows"] == 80
        assert len(experience.sources[0]["sha256"]) == 64


def test_without_next_observations_they_follow_from_the_order(tmp_path, world):
    parts = columns()
    np.savez(tmp_path / "a.npz", **{name: part for name, part in parts.items() if name != "next_obs"})
    experience = read_experience([str(tmp_path / "a.npz")], world)
    inner = ~parts["truncated"]
    assert experience.size == 78
    np.testing.assert_array_equal(experience.rows.next_obs, parts["next_obs"][inner].astype(np.float32))
    assert experience.notes == (
        f"{tmp_path / 'a.npz'}: 2 rows at the ends of episodes have no next observation, left out",
    )


def test_where_an_episode_was_cut_must_be_said(tmp_path, world):
    parts = {name: part for name, part in columns().items() if name not in ("next_obs", "truncated")}
    with pytest.raises(ConfigError, match=r"has neither next_obs nor truncated.*add truncated, all 0 if"):
        read_experience([write_csv(tmp_path / "a.csv", parts)], world)


def test_an_end_without_a_next_observation_is_left_out_with_a_word(tmp_path, world):
    parts = {name: part for name, part in columns().items() if name != "next_obs"}
    parts["terminated"], parts["truncated"] = parts["truncated"], parts["terminated"]
    experience = read_experience([write_csv(tmp_path / "a.csv", parts)], world)
    assert "2 rows at the ends of episodes have no next observation, left out, 2 of them where" in experience.notes[0]


def test_done_is_no_end_of_the_task_where_the_episode_was_cut(tmp_path, world):
    parts = columns()
    done = parts["truncated"] | (np.arange(80) == 7)
    with_cuts = {**{name: part for name, part in parts.items() if name != "terminated"}, "done": done}
    experience = read_experience([write_csv(tmp_path / "a.csv", with_cuts)], world)
    np.testing.assert_array_equal(np.flatnonzero(experience.rows.terminated), [7])
    assert experience.notes == ()
    without = {name: part for name, part in with_cuts.items() if name != "truncated"}
    experience = read_experience([write_csv(tmp_path / "b.csv", without)], world)
    assert experience.rows.terminated.sum() == 3
    assert "done is read as the end of the task; if it was also set by time-outs, add truncated" in experience.notes[0]


def test_tables_as_other_programs_write_them_are_read(tmp_path, world):
    parts = columns()
    plain = write_csv(tmp_path / "a.csv", parts)
    text = (tmp_path / "a.csv").read_text()
    (tmp_path / "b.csv").write_text("\ufeff" + text.replace(",", ", ", text.split("\n")[0].count(",")))
    np.savez(tmp_path / "c.npz", **{**parts, "reward": parts["reward"][:, None]})
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'm2ac[data]'")
    import pyarrow.parquet as parquet

    lists = {name: list(part) for name, part in parts.items()}
    parquet.write_table(pyarrow.table(lists), tmp_path / "d.parquet")
    expected = read_experience([plain], world)
    for name in ("b.csv", "c.npz", "d.parquet"):
        for ours, theirs in zip(expected.rows, read_experience([str(tmp_path / name)], world).rows, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_files_that_are_something_else_are_refused_in_words(tmp_path, world):
    np.save(tmp_path / "a.npy", np.zeros(3))
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    (tmp_path / "b.csv").write_text("obs_0\n" + "1" * 200_000)
    for name, message in (("a.npz", "is damaged or holds objects"), ("b.csv", "line 2 is damaged: field larger")):
        with pytest.raises(ConfigError, match=message):
            read_experience([str(tmp_path / name)], world)


def test_other_names_are_known_and_files_follow_each_other(tmp_path, world):
    parts = columns()
    others = {"observations": "obs", "actions": "action", "rewards": "reward", "next_observations": "next_obs"}
    np.savez(tmp_path / "a.npz", **{name: parts[ours] for name, ours in others.items()}, terminals=parts["terminated"])
    np.savez(tmp_path / "b.npz", **columns(1, 5))
    assert read_experience([str(tmp_path / "a.npz"), str(tmp_path / "b.npz")], world).size == 85


def test_a_minari_dataset_is_read_episode_by_episode(tmp_path, world, monkeypatch):
    minari = pytest.importorskip("minari", reason="Minari is not installed: pip install 'm2ac[data]'")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    from minari.data_collector import EpisodeBuffer

    buffers = [
        EpisodeBuffer(
            id=i,
            observations=list(obs),
            actions=list(action),
            rewards=list(reward),
            terminations=[False] * 40,
            truncations=[False] * 39 + [True],
        )
        for i, (obs, action, reward) in enumerate(play())
    ]
    minari.create_dataset_from_buffers("pendulum/test-v0", buffers, env=gym.make("Pendulum-v1"))
    experience = read_experience(["minari:pendulum/test-v0"], world)
    parts = columns()
    assert experience.size == 80
    np.testing.assert_allclose(experience.rows.obs, parts["obs"])
    np.testing.assert_allclose(experience.rows.next_obs, parts["next_obs"])
    with pytest.raises(ConfigError, match="cannot read --data minari:none/such-v0"):
        read_experience(["minari:none/such-v0"], world)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p["obs"].__setitem__((7, 2), np.nan), r"column obs_2 row 9 is nan, not finite in float32"),
        (lambda p: p["reward"].__setitem__(3, np.inf), r"column reward row 5 is inf, not finite in float32"),
        (lambda p: p["action"].__setitem__((4, 0), 7.0), r"column action_0 row 6 is 7.0, outside of the environment's"),
        (lambda p: p.update(terminated=p["terminated"] * 1.0 + 2), r"column terminated row 2 is 2.0, not 0 or 1"),
        (lambda p: p.pop("reward"), r"has no column reward; add it, see docs/data.md$"),
        (lambda p: p.update(rewrd=p.pop("reward")), r'rename your columns \(rewrd\) to .*Perhaps you meant "rewrd"\?$'),
        (lambda p: p.pop("terminated"), r"no column terminated; add a column terminated, all 0 if the task never ends"),
        (
            lambda p: p.update(obs=p["obs"][:, :2]),
            r"has no column obs_2; this environment has obs_0 … obs_2, so is it of this task\?",
        ),
        (
            lambda p: p.update(action=np.zeros((80, 2))),
            r"has a column action_1, but this environment only action_0; is it of this task\?",
        ),
        (
            lambda p: p.update(
                {f"next_obs_{i + 1}": p["next_obs"][:, i] for i in range(3)}, next_obs=np.zeros((80, 0))
            ),
            r"columns count from 0, so next_obs_1 is next_obs_0 here; rename them to next_obs_0 … next_obs_2",
        ),
        (
            lambda p: [p.update(pressure=p.pop("reward")), p.pop("obs"), p.pop("action")],
            r"has no column obs_0; rename your columns \(pressure\) to obs_0 … obs_2, action_0, reward, next_obs_0 … "
            r"next_obs_2 \(if any\), terminated, truncated \(if any\), see docs/data.md",
        ),
    ],
)
def test_what_is_wrong_is_named_by_column_and_row(tmp_path, world, change, message):
    parts = columns()
    change(parts)
    with pytest.raises(ConfigError, match=message):
        read_experience([write_csv(tmp_path / "a.csv", parts)], world)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": np.zeros((77, 1))}, "action has 77 rows, reward has 80; mend the file"),
        ({"obs": np.zeros((80, 4))}, "obs has rows of 4, not of 3 numbers; is it of this task?"),
        ({"reward": np.zeros(())}, "reward is a single value; write one for every transition"),
        ({"reward": np.array(["1"] * 79 + ["x"])}, "column reward row 0 is '1', not a number"),
        ({"obs": None, "X": np.zeros(80)}, "has no column obs; rename your columns (X) to obs (N, 3), action (N, 1), "),
        (
            {"obs": None, "obs_0": np.zeros(80), "obs_1": np.zeros(80), "obs_2": np.zeros(3)},
            "obs_2 has shape (3,), but",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path, world, change, message):
    parts = columns() | change
    np.savez(tmp_path / "a.npz", **{name: part for name, part in parts.items() if part is not None})
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_experience([str(tmp_path / "a.npz")], world)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs_0": ["much", *["1.5"] * 79]}, "column obs_0 row 0 is 'much', not a number; mend or remove the row"),
        ({"terminated": [False, None] * 40}, "column terminated row 1 is None, not a number"),
        (
            {"obs": [[1.0, 2.0, 3.0], [1.0], *[[1.0, 2.0, 3.0]] * 78]},
            "column obs row 1 is array([1.]), not a list of 3",
        ),
    ],
)
def test_values_of_parquet_that_are_no_numbers_are_named(tmp_path, world, change, message):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'm2ac[data]'")
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table(table(columns()) | change | {"note": ["any"] * 80}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_experience([str(tmp_path / "a.parquet")], world)


def test_files_without_a_table_say_what_they_are_instead(tmp_path, world):
    for name, text, message in (
        ("a.csv", "", "is empty; give a file with transitions"),
        ("a.npz", "", "is empty; give a file with transitions"),
        ("a.csv", "\n1,2", "row 1 is empty; it must name the columns"),
        ("a.csv", "obs_0;obs_1;action_0\n1;2;3", "the separator seems to be ';', it must be ','"),
        ("a.csv", "obs_0\tobs_1", r"the separator seems to be '\t', it must be ','"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=re.escape(message)):
            read_experience([str(tmp_path / name)], world)


def test_observations_outside_of_the_declared_bounds_are_noted_once(tmp_path, world):
    for name, row in (("a", 5), ("b", 3)):
        parts = columns()
        parts["obs"][row, 2] = 9.5  # Pendulum turns at most at 8
        write_csv(tmp_path / f"{name}.csv", parts)
    experience = read_experience([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], world)
    assert experience.size == 160
    assert experience.notes == (
        f"{tmp_path / 'a.csv'} column obs_2 row 7 is 9.5, outside of the environment's declared [-8, 8]; learning "
        f"goes on with it, but is the log in the environment's units?",
    )


def test_the_same_rows_are_not_read_twice(tmp_path, world):
    path = write_csv(tmp_path / "a.csv", columns(1, 4))
    shutil.copy(path, tmp_path / "b.csv")
    with pytest.raises(ConfigError, match=r"b\.csv holds the same as .*a\.csv; leave one of them out"):
        read_experience([path, str(tmp_path / "b.csv")], world)


@pytest.mark.parametrize("args", [["--data"], ["--data", "--steps", "0"]])
def test_data_without_a_file_is_refused(args, capsys):
    assert main(["train", "--env", "Pendulum-v1", *args]) == 2
    assert "--data needs at least one file" in capsys.readouterr().err


def test_a_damaged_file_is_refused(tmp_path, world):
    path = write_csv(tmp_path / "a.csv", columns())
    lines = (tmp_path / "a.csv").read_text().splitlines()
    (tmp_path / "a.csv").write_text("\n".join([*lines[:4], "1,2,3", *lines[5:]]))
    with pytest.raises(ConfigError, match="row 5 has 3 columns, not 10"):
        read_experience([path], world)
    (tmp_path / "a.csv").write_text("\n".join([*lines[:4], lines[4].replace(",", ",x", 1), *lines[5:]]))
    with pytest.raises(ConfigError, match=r"column obs_1 row 5 is 'x.*, not a number"):
        read_experience([path], world)
    np.savez(tmp_path / "a.npz", **columns())
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "b.npz").write_bytes(whole[: len(whole) // 2])
    np.savez(tmp_path / "c.npz", obs=np.array([object()]))
    for name in ("b.npz", "c.npz"):
        with pytest.raises(ConfigError, match="is damaged or holds objects"):
            read_experience([str(tmp_path / name)], world)
    for name, message in (("none.csv", "cannot read"), ("a.txt", "must end in .npz, .csv or .parquet")):
        with pytest.raises(ConfigError, match=message):
            read_experience([str(tmp_path / name)], world)


def test_with_experience_no_random_steps_are_needed_and_without_steps_it_is_all_there_is():
    online = resolve(RunConfig(data=("a.npz",), steps=100), {}, action_dim=1, steps=100, logged=50)
    assert (online.random_steps, online.replay.capacity, online.offline_updates) == (0, 150, 0)
    offline = resolve(RunConfig(data=("a.npz",), steps=0), {}, action_dim=1, steps=0, logged=500)
    assert (offline.random_steps, offline.replay.capacity, offline.offline_updates) == (0, 500, 50_000)
    long = resolve(RunConfig(data=("a.npz",), steps=100), {}, action_dim=1, steps=100, logged=2_000_000)
    assert long.replay.capacity == 2_000_000
    small = RunConfig(data=("a.npz",), model_every=50, replay=ReplayConfig(capacity=300))
    with pytest.raises(ConfigError, match=r"replay.capacity must hold the 500 logged transitions, got 300; raise it"):
        resolve(small, {}, action_dim=1, steps=100, logged=500)
    for logged, pretrain in ((500, 500), (50_000, 10_000)):  # a world model learns from the log before values use it
        steve = resolve(RunConfig(algo="steve", data=("a.npz",)), {}, action_dim=1, steps=100, logged=logged)
        assert steve.world.pretrain == pretrain
    with pytest.raises(ConfigError, match="random_steps must be at least 2, got 0"):
        resolve(RunConfig(random_steps=0), {}, action_dim=1, steps=100)
    with pytest.raises(ConfigError, match="offline_updates must be 0 without logged experience, got 40; give it with"):
        resolve(RunConfig(offline_updates=40), {}, action_dim=1, steps=100)
    for wrong in ({"algo": "ppo", "data": ("a.npz",)}, {"steps": 0}):
        with pytest.raises(ConfigError):
            RunConfig(**wrong)


SMALL = [
    *[
        "--env",
        "Pendulum-v1",
        "--model.hidden",
        "8",
        "--model.max-epochs",
        "2",
        "--sac.hidden",
        "8",
        "--model-every",
        "20",
    ],
    *["--updates-per-step", "1", "--eval-episodes", "1", "--final-episodes", "1", "--no-tensorboard"],
]


def test_columns_that_are_not_asked_for_may_hold_anything_and_a_blank_line_at_the_end_is_none(tmp_path, world):
    parts = columns(1, 4)
    path = tmp_path / "a.csv"
    write_csv(path, parts | {"time": np.array(["2024-01-01 00:00"] * 4)})
    path.write_text(path.read_text() + "\n")
    np.testing.assert_allclose(read_experience([str(path)], world).rows.reward, parts["reward"], rtol=1e-6)
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, "", *lines]))
    with pytest.raises(ConfigError, match="row 2 is empty; remove it"):
        read_experience([str(path)], world)
    path.write_text("\n".join([header.replace("time", "reward"), *lines]))
    with pytest.raises(ConfigError, match="has two columns reward; remove or rename one"):
        read_experience([str(path)], world)


def test_flags_in_columns_of_their_own_are_flags(tmp_path, world):
    parts = columns(1, 4)
    done = {name: part for name, part in parts.items() if name != "terminated"}
    done |= {"done": np.array([[0], [1], [0], [1]]), "truncated": np.array([[0], [0], [0], [1]])}
    np.savez(tmp_path / "a.npz", **done)
    experience = read_experience([str(tmp_path / "a.npz")], world)
    assert experience.rows.terminated.tolist() == [False, True, False, False]
    assert not experience.notes


def test_a_run_without_steps_learns_from_the_log_alone_and_goes_on_where_it_was_stopped(tmp_path, capsys, monkeypatch):
    data = write_csv(tmp_path / "log.csv", columns(4, 40))
    command = ["train", "--data", data, "--steps", "0", "--offline-updates", "50", *SMALL]
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    said = capsys.readouterr().err
    assert "beginning with 160 logged transitions" in said
    assert "learning from them alone" in said
    whole = load_newest(tmp_path / "whole" / "checkpoints", warn=pytest.fail)
    assert whole.state.counters[:3] == (0, 50, 3)
    assert int(whole.state.real.size) == 160
    run = RunDirectory.read(tmp_path / "whole")
    assert [row["updates"] for row in run.read_metrics()] == [20, 40, 50]
    assert "160" in (tmp_path / "whole" / "data.json").read_text()

    agent = M2AC.load(tmp_path / "whole", "Pendulum-v1").learn(5)  # at step 0, and yet nothing new
    after = agent._training.state
    assert (after.counters.steps, after.counters.updates, int(after.real.size)) == (5, 55, 165)

    from m2ac.algorithms.training import Training

    learn, calls = Training._learn, []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 31:
            raise KeyboardInterrupt
        learn(self)

    monkeypatch.setattr(Training, "_learn", interrupted)
    assert main([*command, "--out", str(tmp_path / "parts")]) == 130
    monkeypatch.setattr(Training, "_learn", learn)
    (tmp_path / "log.csv").unlink()  # the checkpoint has its rows
    assert main([*command, "--out", str(tmp_path / "parts")]) == 0
    parts = load_newest(tmp_path / "parts" / "checkpoints", warn=pytest.fail)
    assert fingerprint(parts.state) == fingerprint(whole.state)
    assert [row["updates"] for row in RunDirectory.read(tmp_path / "parts").read_metrics()] == [20, 40, 50]


def test_a_run_that_begins_with_a_log_takes_no_random_steps(tmp_path, capsys):
    data = write_csv(tmp_path / "log.csv", columns(4, 40))
    out = tmp_path / "run"
    assert main(["train", "--data", data, "--steps", "40", "--offline-updates", "20", *SMALL, "--out", str(out)]) == 0
    state = load_newest(out / "checkpoints", warn=pytest.fail).state
    assert (state.counters.steps, state.counters.updates, int(state.real.size)) == (40, 60, 200)
    agent = M2AC.load(out, "Pendulum-v1").learn(10)
    assert int(agent._training.state.real.size) == 210  # the log's rows stay
    os.unlink(data)
    capsys.readouterr()
    assert main(["resume", str(out)]) == 0
    assert "finished already" in capsys.readouterr().err
    shutil.rmtree(out / "checkpoints")  # nothing but the log could tell what it began with
    (out / "DONE").unlink()
    assert main(["resume", str(out)]) == 2
    assert f"cannot read --data {data}" in capsys.readouterr().err
