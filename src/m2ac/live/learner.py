"""`python -m m2ac.live.learner`: the process that learns. What comes in are steps, what goes out are policies."""

import json
import os
import sys
import threading
import time
from typing import IO, Any

from m2ac.config import RunConfig
from m2ac.envs.nowhere import Nowhere
from m2ac.envs.world import World
from m2ac.live.feeding import Ended, Fed, Inbox, fed_training
from m2ac.live.messages import FAILURE, POLICY, ROW, SAVE, SETUP, STATUS, read, unpacked, write
from m2ac.resolving import resolve
from m2ac.runs import checkpoint
from m2ac.runs.directory import RunDirectory
from m2ac.runs.execute import save_run
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
        world = World(Nowhere(setup["obs_dim"], setup["low"], setup["high"]), seed=0, stream="train")
        asked = from_dict(RunConfig, setup["config"])
        assert asked.steps is not None
        config = resolve(asked, {}, action_dim=world.action_dim, steps=asked.steps)
        self.config = config
        self.directory = None if asked.out is None else RunDirectory.open(asked.out, config, asked=asked)
        found = None
        if self.directory is not None:
            found = checkpoint.load_newest(self.directory.checkpoints, warn=self._say)
        self.training: Fed = fed_training(config, world, inbox=inbox, state=found.state if found else None)
        self._elapsed = float(found.manifest["elapsed"]) if found else 0.0
        self._started = self._saved = self._told = time.monotonic()
        self._told_at = self.training.counters.updates
        if found is not None:
            self.tell_policy()

    def _say(self, text: str) -> None:
        self._tell({"message": text})

    def _tell(self, status: dict[str, Any]) -> None:
        training = self.training
        inbox, counters = training.inbox, training.counters
        counts = {"steps": counters.steps, "updates": counters.updates, "waiting": len(inbox), "taken": inbox.taken}
        write(self._out, STATUS, json.dumps(counts | status, default=float).encode())

    def tell_policy(self) -> None:
        """Send the current policy."""
        policy = self.training.acting_policy()
        pieces = serialised(policy_arrays(policy))
        write(self._out, POLICY, b"".join(bytes(piece) for piece in pieces))

    def run(self) -> None:
        """Learn for as long as steps come."""
        inbox = self.training.inbox
        try:
            self._tell({"metrics": {}})
            for progress in self.training.run(FOREVER):
                if progress.metrics is not None:
                    self._log(progress.metrics)
                self._keep_up_to_date()
                if inbox.closed:  # whoever waits for us, or is gone, should not have to wait for updates
                    self.training.store_rest()
                    break
                if inbox.save_wanted or time.monotonic() - self._saved > 60 * self.config.checkpoint_minutes:
                    self.save()
        except Ended:
            pass
        finally:
            self.save()
            if self.directory is not None:
                self.directory.close()

    def _keep_up_to_date(self) -> None:
        """Tell the policy and how far it is, once a second or where there is nothing else to do."""
        training = self.training
        if training.inbox and time.monotonic() - self._told < EVERY:
            return
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
        self.training.inbox.save_wanted = False
        self._saved = time.monotonic()
        if self.directory is not None:
            save_run(self.directory, self.training, self.config, self._elapsed + self._saved - self._started)
            self._tell({"saved": str(self.directory.path)})


def main() -> int:
    """Read the setup and then steps from standard input; policies and words go to standard output."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints must not get between the messages
    os.nice(NICE)
    first = read(incoming)
    if first is None or first[0] != SETUP:
        return 2
    setup, inbox = json.loads(first[1]), Inbox()

    def receive() -> None:
        while (message := read(incoming)) is not None:
            kind, payload = message
            if kind == ROW:
                inbox.put(unpacked(payload, setup["obs_dim"], len(setup["low"])))
            elif kind == SAVE:
                inbox.save_wanted = True
        inbox.close()

    threading.Thread(target=receive, daemon=True).start()
    try:
        Learner(setup, inbox, outgoing).run()
    except UserError as error:
        write(outgoing, FAILURE, str(error).encode())
        return 1
    except BrokenPipeError:  # the control loop has gone, and everything is saved
        return 0
    return 0


if __name__ == "__main__":
    from m2ac.runs.caching import prepare_jax

    prepare_jax()
    sys.exit(main())
