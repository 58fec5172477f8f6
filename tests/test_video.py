"""Films of a run: what is shown, how it is written, and what happens where nothing can be drawn."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m2ac.cli import main
from m2ac.config import RunConfig
from m2ac.envs import make_env
from m2ac.envs.film import HEIGHT, WIDTH, Pace, Shot, drawable, pace_of, shots
from m2ac.envs.world import EnvError, World
from m2ac.learners.acting import ActingPolicy
from m2ac.report.moving_picture import MissingError, check_kind, moving_picture, shrunk
from m2ac.runs import film as filming
from m2ac.runs.directory import RunDirectory
from m2ac.runs.film import Episode, Film, FilmError, film_or_none, make_film
from m2ac.runs.policy import save_policy
from m2ac.settings import ConfigError


def still(obs: np.ndarray) -> np.ndarray:
    return np.zeros(1, np.float32)


def a_run(path: Path, env: str, sizes: tuple[int, int] = (2, 1)) -> Path:
    """A run directory whose policy has small random weights."""
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=(sizes[0], 2 * sizes[1])) / 2, np.zeros(2 * sizes[1]))]
    RunDirectory.open(path, RunConfig(env=env, algo="sac")).close()
    save_policy(path / "policy.safetensors", ActingPolicy([(w.astype("f"), b.astype("f")) for w, b in layers]))
    return path


def taken(env: str, **wanted: Any) -> list[Shot]:
    world = World(drawable(f"drawn_envs:{env}-v0"), seed=0, stream="eval")
    return list(shots(world, still, **{"episodes": 1, "pictures": 100, "every": 3, **wanted}))


def column(picture: np.ndarray) -> int:
    """The brightest of the last row, by which `drawn_envs` tells the step."""
    return int(picture[-1].sum(axis=-1).argmax())


def frames(data: bytes) -> list[np.ndarray]:
    picture = Image.open(io.BytesIO(data))
    found = []
    for number in range(picture.n_frames):
        picture.seek(number)
        found.append(np.asarray(picture.convert("RGB")))
    return found


# What is shown


@pytest.mark.parametrize(
    ("render_fps", "pace"),
    [
        (20, Pace(1, 20.0)),
        (30, Pace(1, 30.0)),
        (67, Pace(3, 67 / 3)),
        (125, Pace(5, 25.0)),
        (0.5, Pace(1, 0.5)),
        *((unusable, Pace(1, 30.0)) for unusable in (None, 0, -1, True, "30", float("nan"))),
    ],
)
def test_a_film_in_real_time_has_at_most_thirty_pictures_a_second(render_fps: Any, pace: Pace) -> None:
    env = drawable("drawn_envs:Drawn-v0")
    env.unwrapped.metadata = {"render_fps": render_fps}
    assert pace_of(env) == pace


def test_there_is_a_picture_of_the_start_of_every_few_steps_and_of_the_end() -> None:
    assert [shot.step for shot in taken("Short")] == [0, 3, 6, 7]
    assert [column(shot.picture) for shot in taken("Short")] == [0, 3, 6, 7]


def test_each_episode_is_cut_after_as_many_pictures_as_were_asked_for() -> None:
    found = taken("Short", episodes=2, pictures=2)
    assert [(shot.episode, shot.step) for shot in found] == [(0, 0), (0, 3), (1, 0), (1, 3)]


def test_the_episodes_are_those_of_an_evaluation() -> None:
    last = taken("Short", episodes=2)[-1]
    played = World(make_env("drawn_envs:Short-v0"), seed=0, stream="eval").play(still, 1)
    assert (last.seed, last.total, last.step) == played


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("Blank", ["render returned None", "step 0 of episode 0", "(height, width, 3)"]),
        ("Grey", ["render returned an array uint8(24, 32)", "(height, width, 3)"]),
        ("FailingToDraw", ["ZeroDivisionError: no width", "drawn_envs.py", "step 0", "mend it there"]),
        ("WithoutPygame", ["pygame is not installed", "pip install pygame"]),
    ],
)
def test_an_environment_that_draws_wrongly_is_told_so(env: str, words: list[str]) -> None:
    with pytest.raises(EnvError) as error:
        taken(env)
    assert [word for word in words if word not in str(error.value)] == []


def test_an_environment_that_cannot_be_drawn_is_told_so() -> None:
    with pytest.raises(ConfigError, match=r'"strange_envs:Plain-v0" cannot be filmed, its render modes are: none'):
        drawable("strange_envs:Plain-v0")


@pytest.mark.parametrize("env", ["HalfCheetah-Noisy2", "Walker2d", "InvertedPendulum", "Humanoid", "Pusher-v5"])
def test_a_task_that_is_drawn_goes_on_as_one_that_is_not(env: str) -> None:
    seen, unseen = drawable(env), make_env(env)
    assert (seen.unwrapped.width, seen.unwrapped.height) == (WIDTH, HEIGHT)
    np.testing.assert_array_equal(seen.reset(seed=1)[0], unseen.reset(seed=1)[0])
    unseen.action_space.seed(0)
    for _ in range(30):
        action = unseen.action_space.sample()
        for a, b in zip(seen.step(action)[:3], unseen.step(action)[:3], strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_floor_reaches_ten_times_as_far_with_tiles_of_the_same_size_and_a_table_does_not_grow() -> None:
    drawn, plain = (make("HalfCheetah").unwrapped.model for make in (drawable, make_env))
    np.testing.assert_array_equal(drawn.geom("floor").size, plain.geom("floor").size * [10, 10, 1])
    np.testing.assert_array_equal(drawn.mat("MatPlane").texrepeat, plain.mat("MatPlane").texrepeat * 10)
    np.testing.assert_array_equal(drawable("Pusher-v5").unwrapped.model.geom("table").size, [1, 1, 0.1])


# How it is written

BARS = [np.repeat(np.where(np.arange(64) // 2 == i, 255, 0)[None, :, None], 48, 0) for i in range(30)]
PICTURES = [np.repeat(bar, 3, 2).astype(np.uint8) for bar in BARS]  # a bar of two columns that moves by its width


@pytest.mark.parametrize("kind", ["webp", "gif"])
@pytest.mark.parametrize("fps", [20.0, 67 / 3, 30.0])
def test_an_animation_has_every_picture_and_lasts_as_long_as_it_should(kind: Any, fps: float) -> None:
    data = moving_picture(PICTURES, fps=fps, kind=kind)
    film = Image.open(io.BytesIO(data))
    assert (film.format, film.size, film.n_frames, film.info["loop"]) == (kind.upper(), (64, 48), 30, 0)
    lasts = 0
    for number in range(film.n_frames):
        film.seek(number)
        film.load()
        lasts += film.info["duration"]
    assert lasts == pytest.approx(30_000 / fps, abs=5)
    assert [column(picture) // 2 for picture in frames(data)] == list(range(30))


def test_an_mp4_has_every_picture() -> None:
    av = pytest.importorskip("av")
    odd = [np.pad(picture, ((0, 1), (0, 1), (0, 0))) for picture in PICTURES]
    with av.open(io.BytesIO(moving_picture(odd, fps=25.0, kind="mp4"))) as film:
        shown = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
        assert film.streams.video[0].average_rate == 25
    assert (len(shown), shown[0].shape) == (30, (48, 64, 3))
    assert [column(picture) // 2 for picture in shown] == list(range(30))


def test_without_its_extra_an_mp4_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingError, match=r"pip install 'm2ac\[video\]'"):
        check_kind("mp4")
    check_kind("webp")


def test_a_large_picture_is_shrunk_in_its_proportions_and_a_small_one_stays() -> None:
    def size(rows: int, columns: int) -> tuple[int, ...]:
        return shrunk(np.zeros((rows, columns, 3), np.uint8), width=320, height=240).shape

    assert size(500, 500) == (240, 240, 3)
    assert size(100, 3200) == (10, 320, 3)
    assert size(240, 320) == (240, 320, 3)
    assert size(1, 4000) == (1, 320, 3)


# By another process


def test_the_same_seed_gives_the_same_film_and_another_seed_another(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", "drawn_envs:Talking-v0")

    def film(seed: int) -> Film:
        return make_film(run, env="drawn_envs:Talking-v0", seed=seed, episodes=2, length=0.2)

    first = film(3)
    assert film(3) == first != film(4)
    # A second has 50 steps, of which every other is shown: five pictures of an episode, the last at its step 7.
    assert (first.pictures, first.fps) == (10, 25.0)
    assert [episode.steps for episode in first.episodes] == [7, 7]
    assert all(type(episode) is Episode for episode in first.episodes)
    assert [column(picture) for picture in frames(first.data)] == 2 * [0, 2, 4, 6, 7]


def test_where_the_graphics_crash_the_next_are_tried_and_in_the_end_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filming, "_choices", lambda: ["egl", "osmesa"])
    told: list[str] = []
    with pytest.raises(FilmError) as error:
        make_film(a_run(tmp_path / "run", "drawn_envs:Dying-v0"), env="drawn_envs:Dying-v0", tell=told.append)
    assert told == [f"cannot draw with {name}: its process was ended by SIGSEGV" for name in ("egl", "osmesa")]
    assert "libegl1 libegl-mesa0, or libosmesa6" in str(error.value)
    assert "\n" not in str(error.value)


def test_graphics_that_mujoco_refuses_are_followed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filming, "_choices", lambda: ["no-such-library"])
    run = a_run(tmp_path / "run", "InvertedPendulum", (4, 1))
    with pytest.raises(FilmError, match=r"no-such-library: RuntimeError: invalid value .* libosmesa6"):
        make_film(run, env="InvertedPendulum")


def graphics_work() -> bool:
    """Whether MuJoCo can draw here at all, asked without any code of ours."""
    code = "import mujoco; mujoco.GLContext(8, 8).make_current()"
    return any(
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "MUJOCO_GL": name}, capture_output=True, check=False
        ).returncode
        == 0
        for name in ("egl", "osmesa")
    )


def test_a_noisy_mujoco_task_is_filmed_alike_twice(tmp_path: Path) -> None:
    if not graphics_work():
        pytest.skip("MuJoCo can draw neither with EGL nor with OSMesa here; install libegl1 libegl-mesa0")
    run = a_run(tmp_path / "run", "HalfCheetah-Noisy2", (17, 6))
    first, second = (make_film(run, env="HalfCheetah-Noisy2", length=0.5) for _ in range(2))
    assert first == second
    shown = frames(first.data)
    assert (len(shown), shown[0].shape, first.fps) == (10, (240, 320, 3), 20.0)
    assert len(np.unique(shown[0].reshape(-1, 3), axis=0)) > 100  # neither black nor blank
    assert len(first.data) < 100_000


def test_the_users_choice_of_graphics_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert filming._choices() == ["egl", "osmesa"]
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert filming._choices() == ["osmesa", "egl"]
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    assert filming._choices() == ["glfw", "egl", "osmesa"]


def test_pictures_of_different_sizes_make_no_film(tmp_path: Path) -> None:
    with pytest.raises(FilmError, match=r"step 2 has another size"):
        make_film(a_run(tmp_path / "run", "drawn_envs:Growing-v0"), env="drawn_envs:Growing-v0")


def test_a_process_that_sends_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filming, "PATIENCE", 0.05)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as pipe, os.fdopen(writing, "wb", buffering=0) as other:
        received = filming._Received(pipe)
        other.write(b'{"bytes": 3}\nab')
        assert received.message() == {"bytes": 3}
        with pytest.raises(TimeoutError):
            received.exactly(3)
        other.write(b"c")
        assert received.exactly(3) == b"abc"
        other.close()
        assert received.message() is None


def test_a_report_imports_no_module_for_a_film_and_hears_why_there_is_none(tmp_path: Path) -> None:
    told: list[str] = []
    assert film_or_none(a_run(tmp_path / "run", "nowhere_at_all:Id-v0"), warn=told.append) is None
    assert film_or_none(tmp_path / "no run", warn=told.append) is None
    assert "environment is code" in told[0]
    assert "no run" in told[1]


# The command


def test_video_writes_the_film_into_the_run_directory_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path / "run", "drawn_envs:Short-v0")
    assert main(["video", str(run), "--env", "drawn_envs:Short-v0"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(frames((run / "film.webp").read_bytes())) == 5
    assert out[0].startswith("episode   0  seed")
    assert "7 steps shown" in out[0]
    assert out[1:] == [f"film: {run / 'film.webp'} (0.2 s, 5 pictures, 0.00 MB)"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--episodes", "0"], ["episodes", "got 0"]),
        (["--seed", "-1"], ["seed", "got -1"]),
        (["--length", "0"], ["length", "positive", "got 0.0"]),
        (["--length", "nan"], ["length", "got nan"]),
        (["--length", "61"], ["60 s at most", "1 × 61 s", "--length"]),
        (["--episodes", "4", "--length", "20"], ["60 s at most", "4 × 20 s", "--episodes"]),
        (["--out", "film.avi"], [".webp or .gif or .mp4", "'film.avi'"]),
        (["--out", "no/such/film.webp"], ["no directory", "'no/such/film.webp'"]),
        (["--env", "Ant"], ["'Pendulum-v1'", "'Ant'"]),
        (["--lenght", "3"], ["--lenght", 'Perhaps you meant "--length"?']),
    ],
)
def test_a_wrong_wish_ends_with_code_2_and_one_line(
    args: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["video", str(a_run(tmp_path / "run", "Pendulum-v1", (3, 1))), *args]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert [word for word in words if word not in said] == []


def test_a_run_whose_environment_is_code_is_not_filmed_unless_the_user_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["video", str(a_run(tmp_path / "run", "nowhere_at_all:Id-v0"))]) == 2
    assert "add --env nowhere_at_all:Id-v0" in capsys.readouterr().err


def test_a_policy_of_another_task_is_refused_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path / "run", "drawn_envs:Short-v0", (5, 2))
    assert main(["video", str(run), "--env", "drawn_envs:Short-v0"]) == 2
    assert "5 observations and 2 actions" in capsys.readouterr().err
    assert not (run / "film.webp").exists()


def test_a_run_without_a_policy_ends_with_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path / "run", "Pendulum-v1", (3, 1))
    (run / "policy.safetensors").unlink()
    assert main(["video", str(run)]) == 1
    assert "policy.safetensors" in capsys.readouterr().err
