"""`python -m m2ac.live.learner`: the process that learns. What comes in are steps, what goes out are policies."""

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import IO, Any

from m2ac.config import RunConfig
from m2ac.live.feeding import Ended, Fed, Inbox, fed_training
from m2ac.live.messages import FAILURE, POLICY, ROW, SAVE, SETUP, STATUS, read, unpacked, write
from m2ac.live.session import session_of
from m2ac.runs import checkpoint
from m2ac.runs.directory import Logged, RunDirectory
from m2ac.runs.keeping import save_run, take_up
from m2ac.runs.loop import Loop, record_loop
from m2ac.runs.policy import policy_arrays
from m2ac.runs.tensors import serialised
from m2ac.settings import UserError, from_dict

FOREVER = 2**31 - 2
EVERY = 1.0
"""Seconds between two policies where steps come without a pause."""

NICE = 5
"""How far the learner steps back behind the control loop where both want a core."""


class Learner:
    """Learns from what comes in, tells its policy after every cycle, and keeps a run directory where one is wanted."""

    def __init__(self, setup: dict[str, Any], inbox: Inbox, out: IO[bytes]) -> None:
        self._out = out
        asked, loop = from_dict(RunConfig, setup["config"]), Loop(setup["obs_dim"], setup["low"], setup["high"])
        world, past, config = session_of(asked, loop)
        self.config = config
        self.directory = None if asked.out is None else RunDirectory.open(asked.out, config, asked=asked)
        found = None
        if self.directory is not None:
            record_loop(self.directory.path, loop)
            found = checkpoint.load_newest(self.directory.checkpoints, warn=self._say)
        self.training: Fed = fed_training(config, world, inbox=inbox, state=found.state if found else None)
        self._elapsed = self._taken_up(found)
        if self.training.is_new and past.experience is not None:
            self.training.absorb(past.experience.rows)
            if past.experience.notes:
                self._say("; ".join(past.experience.notes))
            if self.directory is not None:
                self.directory.record_data(past.experience.sources)
        self._started = self._saved = self._told = time.monotonic()
        self._saved_at = self.training.counters.steps
        self._told_at = self.training.counters.updates
        if self._told_at:  # before, random actions are better than those of a network that has learned nothing
            self.tell_policy()
        inbox.while_idle = self._while_idle

    def _taken_up(self, found: checkpoint.Checkpoint | None) -> float:
        """The seconds that the run took before, its logs cut back to the checkpoint it goes on from."""
        if self.directory is None:
            return 0.0
        if found is None:
            self.directory.cut_back(Logged(0, 0))
            return 0.0
        checkpoint.set_aside(self.directory.checkpoints, newer_than=found.path)
        elapsed, _ = take_up(found, self.training, self.directory)
        return elapsed

    def _write(self, kind: bytes, payload: bytes) -> None:
        with suppress(BrokenPipeError):  # the control loop has gone, which the inbox is told as well
            write(self._out, kind, payload)

    def _say(self, text: str) -> None:
        self._write(STATUS, json.dumps({"message": text}).encode())

    def _tell(self, status: dict[str, Any]) -> None:
        training = self.training
        inbox, counters = training.inbox, training.counters
        counts = {
            "steps": counters.steps,
            "updates": counters.updates,
            "let_go": training.let_go,
            "waiting": len(inbox),
            "taken": inbox.taken,
            "due": training.due,
        }
        self._write(STATUS, json.dumps(counts | status, default=float).encode())

    def tell_policy(self) -> None:
        """Send the current policy."""
        pieces = serialised(policy_arrays(self.training.acting_policy()))
        self._write(POLICY, b"".join(bytes(piece) for piece in pieces))

    def run(self) -> None:
        """Learn for as long as steps come; what has come is kept however this ends."""
        try:
            self._tell({"metrics": {}})
            for progress in self.training.run(FOREVER):
                if progress.metrics is not None:
                    self._log(progress.metrics)
                if self.training.inbox.closed:  # whoever waits for us, or is gone, should not have to wait for updates
                    break
                self._keep_up_to_date()
                self._save_where_due()
        except Ended:
            pass
        finally:
            self.training.store_rest()
            self.save()
            if self.directory is not None:
                self.directory.close()

    def _while_idle(self) -> None:
        self._keep_up_to_date()
        self._save_where_due()

    def _save_where_due(self) -> None:
        late = time.monotonic() - self._saved > 60 * self.config.checkpoint_minutes
        if self.training.inbox.save_due or (late and self.training.counters.steps > self._saved_at):
            self.save()

    def _keep_up_to_date(self) -> None:
        """Tell the policy and how far it is, once a second or where there is nothing else to do."""
        training = self.training
        late = time.monotonic() - self._told >= EVERY
        if training.inbox and not late:
            return
        # While updates are due each makes a better policy; whoever waits for steps to be taken need not wait for them.
        if late or training.now().settled:
            self._told = time.monotonic()
            if training.counters.updates > self._told_at:
                self._told_at = training.counters.updates
                self.tell_policy()
        self._tell({})

    def _log(self, metrics: Any) -> None:
        seconds = self._elapsed + time.monotonic() - self._started
        if self.directory is not None:
            self.directory.append_metrics({**metrics, "seconds": round(seconds, 3)})
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        self._tell({"metrics": numbers})

    def save(self) -> None:
        """Keep everything, where there is a directory for it."""
        self.training.inbox.saved()
        self._saved, self._saved_at = time.monotonic(), self.training.counters.steps
        if self.directory is not None:
            save_run(self.directory, self.training, self.config, self._elapsed + self._saved - self._started)
            self._tell({"saved": str(self.directory.path)})


def main() -> int:
    """Read the setup and then steps from standard input; policies and words go to standard output."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints must not get between the messages
    os.nice(NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the loop, whose end is the end of what comes in
    first = read(incoming)
    if first is None or first[0] != SETUP:
        return 2
    setup, inbox = json.loads(first[1]), Inbox()
    for asked_to_end in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked_to_end, lambda *_: inbox.close())

    def receive() -> None:
        try:
            while (message := read(incoming)) is not None:
                kind, payload = message
                if kind == ROW:
                    inbox.put(unpacked(payload, setup["obs_dim"], len(setup["low"])))
                elif kind == SAVE:
                    inbox.ask_to_save()
        finally:
            inbox.close()

    threading.Thread(target=receive, daemon=True).start()
    try:
        Learner(setup, inbox, outgoing).run()
    except UserError as error:
        with suppress(BrokenPipeError):
            write(outgoing, FAILURE, str(error).encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
