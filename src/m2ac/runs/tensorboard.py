"""Metrics as TensorBoard files."""

import math
import os
import warnings
from collections.abc import Mapping
from typing import Any

from m2ac.settings import check


class TensorBoard:
    """Writes numbers under their slash-separated names, such as `model/holdout_loss`.

    Nothing is imported or created before the first number. A resumed run gives `from_step`, the first step that it
    makes anew: TensorBoard then hides what an interrupted run wrote from there on.
    """

    def __init__(self, directory: str | os.PathLike[str], *, from_step: int | None = None) -> None:
        # Absolute: tensorboardX takes "s3:…" and "gs:…" at the start of a name for a bucket on the network.
        self._directory = os.path.abspath(directory)
        own = not os.path.islink(self._directory) and os.path.isdir(self._directory)
        check(
            own or not os.path.lexists(self._directory),
            f"{self._directory!r} must be a directory and no link; delete it, or use --no-tensorboard",
        )
        self._from_step = from_step
        self._writer: Any = None
        self._given_up = False

    def write(self, step: int, metrics: Mapping[str, float | int | str]) -> None:
        """Write the finite numbers; text and NaN have no place in a curve."""
        if self._given_up or self._has_died():
            return
        try:
            for name, value in metrics.items():
                if name != "step" and not isinstance(value, str) and math.isfinite(value):
                    self._open().add_scalar(name, float(value), step)
        except OSError as error:
            self._give_up(str(error))

    def close(self) -> None:
        """Write what is still waiting."""
        if self._writer is not None and not self._given_up and not self._has_died():
            try:
                self._writer.close()
            except OSError as error:
                self._give_up(str(error))
        self._writer = None

    def _open(self) -> Any:
        if self._writer is None:
            from tensorboardX import SummaryWriter

            # A queue without limit: with one, a thread that could not write would leave training waiting for ever.
            self._writer = SummaryWriter(self._directory, purge_step=self._from_step, flush_secs=10, max_queue=0)
        return self._writer

    def _has_died(self) -> bool:
        """Whether the thread that writes met a full disk."""
        events = getattr(getattr(self._writer, "file_writer", None), "event_writer", None)
        thread = getattr(events, "_worker", None)
        if thread is None or thread.is_alive():
            return False
        self._give_up("the disk may be full")
        return True

    def _give_up(self, reason: str) -> None:
        """The curves are a copy of what is logged elsewhere: no reason to stop for."""
        self._given_up = True
        warnings.warn(
            f"cannot write {self._directory}: {reason}; the run goes on without TensorBoard files", stacklevel=3
        )
