"""What is said about an environment: errors in few words, and notices that are told once."""

import traceback
import warnings
from pathlib import Path
from typing import Any

from m2ac.escaping import visible
from m2ac.settings import UserError

LONGEST_QUOTE = 80
"""Characters of a value's text that a message shows."""

LONGEST_CAUSE = 240
"""Characters of an exception's text that a message shows."""


class EnvError(UserError):
    """The environment did something no learner can use; the message says what, where and what to do."""


class EnvWarning(UserWarning):
    """The environment did something odd that learning goes on with; the message says what, where and what to do."""


class Notices:
    """What the user of one or more environments should know, each kind of it told once, as an `EnvWarning`."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, kind: str, text: str) -> None:
        """Warn, unless the same kind of thing was told before."""
        if kind not in self._told:
            self._told.add(kind)
            warnings.warn(text, EnvWarning, stacklevel=3)


def brief(value: Any) -> str:
    """The start of a value's text, on one line."""
    try:
        text = repr(value)
    except Exception:  # of a whole number with too many digits, or of a class that fails at it
        return f"something of type {type(value).__name__} that cannot be shown"
    return shortened(text, LONGEST_QUOTE)


def cause(error: BaseException) -> str:
    """What was raised, in which words and where, on one line."""
    try:
        text = str(error)
    except Exception:
        text = "it cannot be shown"
    said = shortened(text, LONGEST_CAUSE)
    return f"{type(error).__name__}{': ' if said else ''}{said}{_place(error)}"


def _place(error: BaseException) -> str:
    """Where it was raised, unless that is the machinery of importing, which says nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or "importlib" in frames[-1].filename:
        return ""
    return f", {Path(frames[-1].filename).name} line {frames[-1].lineno}"


def shortened(text: str, longest: int = LONGEST_QUOTE) -> str:
    """The text's start on one line, with escape sequences made visible, so that it cannot steer the terminal."""
    plain = visible(" ".join(text[: 4 * longest].split()))
    return plain if len(plain) <= longest else f"{plain[: longest - 3]}..."
