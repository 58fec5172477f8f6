"""The site is built as `make docs` builds it: a broken link, a missing page or an unknown name is an error."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import m2ac
from m2ac.cli import COMMANDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MISSING = [name for name in ("sphinx", "furo", "myst_parser") if importlib.util.find_spec(name) is None]
needs_sphinx = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} are missing: pip install 'm2ac[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "--nitpicky", "--quiet", "-b", "html"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "-d", out / "doctrees", DOCS, out / "html"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out / "html"


@needs_sphinx
def test_the_site_is_built_without_a_warning_and_has_every_page(site):
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert [str(page) for page in pages if not (site / page).is_file()] == []


@needs_sphinx
def test_every_public_name_is_in_the_reference_with_its_settings(site):
    page = (site / "api.html").read_text()
    assert [name for name in m2ac.__all__ if f'id="m2ac.{name}"' not in page] == []
    assert 'id="m2ac.MaskConfig.rate"' in page
    assert "Share of the imagined rows kept at each rollout step" in page
    assert 'id="m2ac.agent.Agent.predict"' in page


def test_no_number_is_left_to_be_filled_in():
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")):
        assert not re.findall(r"@[A-Z]+@", path.read_text()), path.name


def test_links_between_documents_lead_somewhere_in_the_repository():
    broken = []
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")):
        text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            file, _, _ = target.partition("#")
            if file and "://" not in file and not (path.parent / file).exists():
                broken.append(f"{path.name}: {target}")
    assert broken == []


def test_make_builds_the_site_as_strictly():
    recipe = re.search(r"^docs:.*\n\t(.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    assert "-W --keep-going --nitpicky" in recipe[1]


def test_every_command_has_its_section():
    text = (DOCS / "commands.md").read_text()
    assert set(re.findall(r"^## (.*)", text, re.MULTILINE)) == set(COMMANDS)
