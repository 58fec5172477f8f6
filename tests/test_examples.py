"""Every example runs, shrunk, as a user would start it; and is short enough to be read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SAYS = {"own_env": "mean return", "from_a_log": "over 3 episodes", "control_loop": "updates made by the learner"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_says_what_came_of_it(path, tmp_path):
    small = {**os.environ, "M2AC_EXAMPLE_STEPS": "60", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env=small, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[path.stem] in done.stdout
    assert "Traceback" not in done.stderr


def test_no_example_is_longer_than_sixty_lines():
    assert len(EXAMPLES) == 3
    assert {
        path.name: len(path.read_text().splitlines()) for path in EXAMPLES if len(path.read_text().splitlines()) > 60
    } == {}
