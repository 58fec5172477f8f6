"""The learning curve as a picture."""

import math
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from m2ac.report.curve import draw_learning_curve

EVALS = [
    {"step": step, "episode": e, "return": -1000 + step / 5 + 50 * e}
    for step in range(500, 4001, 500)
    for e in range(3)
]
METRICS = [
    {
        "step": step,
        "trust/share_kept": 0.5,
        "trust/uncertainty_kept": 10 / step,
        "trust/uncertainty_dropped": 900 / step,
    }
    for step in range(250, 4001, 250)
]

BLUE, GREEN, VERMILLION = (0, 114, 178), (0, 158, 115), (213, 94, 0)


def drawn(path: Path) -> np.ndarray:
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    return np.round(imread(path)[..., :3] * 255).astype(int)


def pixels(picture: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((picture == colour).all(axis=-1).sum())


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures saved during a test."""
    saved: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (saved.append(self), save(self, *a, **k))[1])
    return saved


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for panel in figure.axes for text in panel.texts]


def test_without_metrics_there_is_one_panel_of_returns(tmp_path: Path, figures: list[Figure]):
    draw_learning_curve(EVALS, title="Pendulum-v1", path=tmp_path / "curve.png")
    picture = drawn(tmp_path / "curve.png")
    assert picture.shape == (750, 1200, 3)
    assert pixels(picture, BLUE) > 2000
    assert pixels(picture, GREEN) == pixels(picture, VERMILLION) == 0
    (panel,) = figures[0].axes
    (line,) = panel.get_lines()
    assert line.get_xdata()[-1] == 4000
    assert line.get_ydata()[-1] == -150
    assert "mean\n−150.0" in texts(figures[0])
    assert panel.get_xlim() == (0, 4000)
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


def test_trust_adds_a_logarithmic_panel_of_uncertainty_and_one_of_the_share_kept(tmp_path: Path, figures: list[Figure]):
    draw_learning_curve(EVALS, title="t", path=tmp_path / "curve.png", metrics=METRICS)
    picture = drawn(tmp_path / "curve.png")
    assert picture.shape == (900, 1200, 3)
    assert min(pixels(picture, colour) for colour in (BLUE, GREEN, VERMILLION)) > 1000
    assert [panel.get_yscale() for panel in figures[0].axes] == ["linear", "log", "linear"]
    assert {"kept", "dropped", "50%"} <= set(texts(figures[0]))


def test_a_negative_uncertainty_is_drawn_on_a_linear_scale(tmp_path: Path, figures: list[Figure]):
    metrics = [{"step": s, "trust/uncertainty_kept": s - 2.0, "trust/uncertainty_dropped": 3.0} for s in range(1, 5)]
    draw_learning_curve(EVALS, title="t", path=tmp_path / "curve.png", metrics=metrics)
    assert [panel.get_yscale() for panel in figures[0].axes] == ["linear", "linear"]


@pytest.mark.parametrize(
    ("evals", "metrics"),
    [
        ([], None),
        ([], METRICS[:1]),
        (EVALS[:1], []),
        ([{"step": 0, "return": 0.0}], [{"step": 1, "model/holdout_loss": 1.0}]),
        ([*EVALS, {"step": 5000, "return": math.nan}, {"step": 5000, "return": math.inf}], METRICS[:2]),
        (EVALS, [*METRICS, {"step": 4100, "trust/share_kept": None, "trust/uncertainty_kept": math.nan}]),
    ],
)
def test_little_or_broken_data_still_gives_a_picture_without_a_warning(
    tmp_path: Path, evals: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]] | None
):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_learning_curve(evals, title="t", path=tmp_path / "curve.png", metrics=metrics)
    assert drawn(tmp_path / "curve.png").shape[1] == 1200


def test_what_is_not_finite_is_left_out(tmp_path: Path, figures: list[Figure]):
    evals = [{"step": 1, "return": 3.0}, {"step": 1, "return": math.nan}, {"step": 2, "return": math.inf}]
    draw_learning_curve(evals, title="t", path=tmp_path / "curve.png")
    (line,) = figures[0].axes[0].get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1], [3])


def test_before_the_first_evaluation_the_picture_says_so(tmp_path: Path, figures: list[Figure]):
    draw_learning_curve([], title="t", path=tmp_path / "curve.png")
    assert texts(figures[0]) == ["no evaluation yet"]


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        (r"$\frac{1}{0$ and $x_1$", r"$\frac{1}{0$ and $x_1$"),
        ("$", "$"),
        ("a\nb\x1b\x00\ud800", r"a\nb\x1b\x00\ud800"),
        ("x" * 500, "x" * 79 + "…"),
        ("", ""),
    ],
)
def test_a_title_is_shown_as_it_is_on_one_line(tmp_path: Path, figures: list[Figure], title: str, shown: str):
    draw_learning_curve(EVALS, title=title, path=tmp_path / "curve.png")
    panel = figures[0].axes[0]
    assert panel.get_title(loc="left") == shown
    box = panel._left_title.get_window_extent()  # type: ignore[attr-defined]
    assert box.x1 <= figures[0].bbox.x1


def test_a_failed_drawing_leaves_the_old_picture_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "curve.png"
    path.write_text("old")

    def half(self: Figure, target: IO[bytes], **_: Any) -> None:
        target.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(OSError, match="disk full"):
        draw_learning_curve(EVALS, title="t", path=path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("curve.png", "old")]


def test_drawing_needs_neither_jax_nor_pyplot():
    code = "import sys, m2ac.report.curve; print([m for m in ('jax', 'matplotlib.pyplot') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
