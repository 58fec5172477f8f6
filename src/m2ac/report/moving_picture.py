"""Pictures as a film: animated WebP or GIF, or MP4 with the extra `m2ac[video]`."""

import importlib
import io
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from m2ac.settings import UserError

Kind = Literal["webp", "gif", "mp4"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Picture = NDArray[np.uint8]
"""(height, width, 3)"""

QUALITY = 40
"""Of WebP, out of 100: limbs stay sharp, and 10 s of HalfCheetah on its chequered floor have 0.7 MB."""


class MissingError(UserError):
    """An extra that is not installed; the message has the command that installs it."""


def check_kind(kind: Kind) -> None:
    """Refuse a kind of film that needs what is not installed."""
    if kind == "mp4":
        _av()


def shrunk(picture: Picture, *, width: int, height: int) -> Picture:
    """The picture, made smaller where it is wider or higher than that; its proportions stay."""
    rows, columns = picture.shape[:2]
    factor = min(1.0, width / columns, height / rows)
    if factor == 1:
        return picture
    size = max(1, round(columns * factor)), max(1, round(rows * factor))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def moving_picture(pictures: Sequence[Picture], *, fps: float, kind: Kind) -> bytes:
    """The film's file, played in a loop where the kind allows it; all pictures have the size of the first."""
    return _mp4(pictures, fps) if kind == "mp4" else _animation(pictures, fps, kind)


def _animation(pictures: Sequence[Picture], fps: float, kind: Kind) -> bytes:
    first, *others = [Image.fromarray(picture) for picture in pictures]
    file = io.BytesIO()
    options = {"quality": QUALITY, "method": 4} if kind == "webp" else {"optimize": True}
    durations = _durations(len(pictures), fps, unit=10 if kind == "gif" else 1)
    first.save(file, kind.upper(), save_all=True, append_images=others, duration=durations, loop=0, **options)
    return file.getvalue()


def _durations(pictures: int, fps: float, *, unit: int) -> list[int]:
    """Milliseconds of each picture as a multiple of the unit; rounding does not add up over the film."""
    ends = np.round(np.arange(pictures + 1) * (1000 / fps / unit)).astype(int) * unit
    return [int(duration) for duration in np.diff(ends)]


def _mp4(pictures: Sequence[Picture], fps: float) -> bytes:
    av = _av()
    rows, columns = (side - side % 2 for side in pictures[0].shape[:2])  # colours are stored for two by two pixels
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as film:
        stream = film.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        stream.width, stream.height, stream.pix_fmt = columns, rows, "yuv420p"
        stream.options = {"crf": "23"}
        for picture in pictures:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture[:rows, :columns]), format="rgb24")
            film.mux(stream.encode(frame))
        film.mux(stream.encode())
    return file.getvalue()


def _av() -> Any:
    try:
        return importlib.import_module("av")
    except ImportError:
        raise MissingError(
            "MP4 needs PyAV, which is not installed; pip install 'm2ac[video]', or let --out end in .webp"
        ) from None
