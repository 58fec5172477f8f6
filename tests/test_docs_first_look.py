"""The cells of docs/first-look.md give the outputs that stand below them, but for digits.

`M2AC_CAPTURE=1 pytest tests/test_docs_first_look.py` writes outputs and picture anew.
"""

import contextlib
import io
import os
import re
import shutil
from pathlib import Path

import matplotlib
import pytest

pytestmark = pytest.mark.usefixtures("as_users_run_it")  # what takes its time here is learning, not compiling

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "first-look.md"
PICTURE = "first-look.png"
CELL = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def kind_of(text: str) -> str:
    """An output without the digits of its measured numbers and the room they take; whole counts stay."""
    masked = re.sub(r"-?\d+\.\d*|-\d+", "#", text)
    return re.sub(r"[ \[\]]+", " ", masked).strip()


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What each cell printed, run one after the other in one namespace."""
    matplotlib.use("Agg")
    folder, space, printed = tmp_path_factory.mktemp("look"), {"__name__": "cells"}, []
    with contextlib.chdir(folder):
        for number, cell in enumerate(CELL.finditer(PAGE.read_text())):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(cell["code"], f"{PAGE.name}, cell {number}", "exec"), space)
            printed.append(said.getvalue())
    if os.environ.get("M2AC_CAPTURE"):
        capture(printed, folder)
    return printed, folder


def capture(printed: list[str], folder: Path) -> None:
    """Write what came into the page."""
    values = iter(printed)

    def filled(cell: re.Match[str]) -> str:
        value = next(values)
        return cell[0] if cell["output"] is None else f"```python\n{cell['code']}```\n\n```text\n{value}```\n"

    PAGE.write_text(CELL.sub(filled, PAGE.read_text()))
    shutil.copy(folder / PICTURE, ROOT / "docs" / "images" / PICTURE)


def test_cells_print_what_the_page_shows_but_for_digits(outputs):
    shown = [cell["output"] or "" for cell in CELL.finditer(PAGE.read_text())]
    assert [kind_of(text) for text in outputs[0]] == [kind_of(text) for text in shown]


def test_the_picture_is_drawn_again_in_its_size(outputs):
    from PIL import Image

    with Image.open(outputs[1] / PICTURE) as new, Image.open(ROOT / "docs" / "images" / PICTURE) as shown:
        assert new.size == shown.size


def test_the_page_says_what_is_true_of_its_outputs(outputs):
    returns = [eval(text) for text in outputs[0] if text.startswith("[") and "," in text]
    before, after = (sum(each) / len(each) for each in returns)
    assert before < -900
    assert after > before
