"""Figures as bytes for a file, and as SVG that lives inside a page and takes its colours from it."""

import colorsys
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from typing import Literal

import matplotlib
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from m2ac.escaping import visible
from m2ac.report.charts import GRID
from m2ac.report.curve import AXIS, FAINT, INK, SOFT

INKS = {INK: "ink", SOFT: "soft", FAINT: "faint", AXIS: "axis", GRID: "grid", "#000000": "ink", "#ffffff": "paper"}
"""Colours that are ink or paper, and the page's name for each; every other one is data."""

_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_FRACTION = re.compile(r"(\.\d\d)\d+")
_NUMBERS = ("d", "x", "y", "width", "height", "transform", "points")


def image(figure: Figure, kind: Literal["svg", "png"]) -> bytes:
    """The figure as a file for a paper: on white, and text as shapes so that it looks the same everywhere."""
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context({"text.usetex": False, "svg.fonttype": "path", "svg.hashsalt": "m2ac"}):
        figure.savefig(buffer, format=kind, dpi=200, facecolor="white", metadata=metadata)
    return buffer.getvalue()


def svg(figure: Figure, *, prefix: str, label: str = "") -> str:
    """The figure as an element of a page: text stays text, colours are the page's, ids begin with the prefix.

    What `charts.belongs` has marked carries its tag as `data-of` in place of an id.
    """
    buffer = io.BytesIO()
    with matplotlib.rc_context({"text.usetex": False, "svg.fonttype": "none", "svg.hashsalt": "m2ac"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for unwanted in ("metadata", "defs"):  # the latter, at this place, is a style for all elements of a document
        for child in root.findall(_SVG + unwanted):
            if unwanted == "metadata" or child.find(_SVG + "style") is not None:
                root.remove(child)
    linked = {link for element in root.iter() for link in _links(element)}
    for element in root.iter():
        _adopt(element, prefix, linked)
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {"role": "img", "aria-label": visible(label)}
    text = ElementTree.tostring(root, encoding="unicode")
    return re.sub(r">\s+<", "><", text)


def _links(element: ElementTree.Element) -> list[str]:
    """The ids that an element refers to."""
    clip = element.get("clip-path", "")
    return [link.lstrip("#") for link in (element.get(_LINK, ""), clip[len("url(") : -1]) if link]


def _adopt(element: ElementTree.Element, prefix: str, linked: set[str]) -> None:
    element.tag = element.tag.removeprefix(_SVG)
    own = element.attrib
    name = own.pop("id", "")
    if name.startswith("series|"):
        own["data-of"] = name.removeprefix("series|")
    elif name in linked:
        own["id"] = f"{prefix}-{name}"
    if _LINK in own:
        own["href"] = f"#{prefix}-{own.pop(_LINK).lstrip('#')}"
    if "clip-path" in own:
        own["clip-path"] = f"url(#{prefix}-{own['clip-path'][len('url(#') : -1]})"
    if "style" in own:
        parts = [part for part in own["style"].split("; ") if not part.startswith("font-family")]
        own["style"] = ";".join(_COLOUR.sub(_variable, part) for part in parts)
    for numbers in _NUMBERS:
        if numbers in own:
            own[numbers] = " ".join(_FRACTION.sub(r"\1", own[numbers]).split())


def _variable(found: re.Match[str]) -> str:
    colour = found[0]
    return f"var(--{INKS[colour]})" if colour in INKS else f"var(--c{colour[1:]})"


def data_colours(pages: Iterable[str]) -> list[str]:
    """The colours of data that figures from `svg` ask the page for."""
    return sorted({f"#{name}" for page in pages for name in re.findall(r"var\(--c([0-9a-f]{6})\)", page)})


def at_night(colour: str) -> str:
    """The colour as it is told as well on a dark page."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    return to_hex(colorsys.hls_to_rgb(hue, max(lightness, 0.24 + 0.75 * lightness), saturation * 0.78))
