"""Sphinx over the Markdown of this directory: `make docs`, with warnings as errors."""

import dataclasses
import re
from pathlib import Path

from sphinx.application import Sphinx

import m2ac
from m2ac.agent import Agent

HERE = Path(__file__).parent
ARRAY = re.compile(r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[~?[\w.]+\]\]")
ARRAY_LIKE = re.compile(r"~?numpy\._typing\._array_like\._Buffer \|.*?_NestedSequence\[complex \| bytes \| str\]")

project = "m2ac"
author = copyright = "m2ac contributors"
release = version = m2ac.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["pictures"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
highlight_language = "text"

html_theme = "furo"
html_title = f"m2ac {release}"

default_role = "code"  # single backticks in docstrings
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

nitpicky = True
# Types of other libraries, whose pages would have to be fetched, and ours that have no entry of their own.
nitpick_ignore_regex = [
    ("py:.*", r"(jax|numpy|np|gymnasium|gym|typing|collections|os|pathlib)\..*"),
    ("py:.*", r"(int|float|str|bool|list|tuple|dict|None|Any|Literal|Self|Mapping|Sequence|ndarray|ArrayLike)"),
    (
        "py:.*",
        r"(Env|Callback|TerminationFn|RewardFn|m2ac\.agent\.\w+|m2ac\.types\.\w+|m2ac\.settings\.\w+|m2ac\.\w+\.\w+\.(Seeds)?Progress)",
    ),
]


def _without_links_out_of_the_site(app: Sphinx, docname: str, source: list[str]) -> None:
    """Folders and documents of the repository, such as ../results/pendulum, are no pages: only their text stays."""
    here = (HERE / docname).parent

    def plain(found: re.Match[str]) -> str:
        target = (here / found["path"]).resolve()
        outside = target.suffix == ".md" and not target.is_relative_to(HERE.resolve())
        return found["text"] if target.is_dir() or outside else found[0]

    source[0] = re.sub(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)#:]+)\)", plain, source[0])


def _readable_signature(
    app: Sphinx, what: str, name: str, thing: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Arrays by one word; none where it says nothing new: of settings, which are listed, and of the single agents."""
    if dataclasses.is_dataclass(thing) or (isinstance(thing, type) and Agent in thing.__bases__):
        return "", None
    plain = [text and ARRAY_LIKE.sub("ArrayLike", ARRAY.sub("ndarray", text)) for text in (signature, returns)]
    return plain[0], plain[1]


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _without_links_out_of_the_site)
    app.connect("autodoc-process-signature", _readable_signature)
