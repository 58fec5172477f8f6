"""Small but whole training runs in processes of their own, to be interrupted."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from faults.row import Row
from m2ac.runs import checkpoint

_COMMON = [
    *("--env", "Pendulum-v1", "--steps", "500", "--random-steps", "100", "--model-every", "50"),
    *("--updates-per-step", "4", "--eval-every", "100", "--eval-episodes", "1"),
    *("--final-episodes", "1", "--checkpoint-every", "25", "--no-tensorboard"),
]
_SAC = [*_COMMON, "--sac.hidden", "32", "--sac.batch-size", "64"]
_DDPG = [*_COMMON, "--ddpg.hidden", "32", "--ddpg.batch-size", "64"]
_WORLD = [
    *_DDPG,
    *("--world.hidden", "32", "--world.layers", "2", "--world.reward-hidden", "16", "--world.reward-layers", "1"),
    *("--world.pretrain", "300"),
]
_PPO = [
    *("--env", "Pendulum-v1", "--steps", "2000", "--ppo.rollout", "120", "--ppo.envs", "3", "--ppo.batch-size", "20"),
    *("--ppo.hidden", "16", "--eval-every", "200", "--eval-episodes", "1", "--final-episodes", "1"),
    *("--checkpoint-every", "50", "--no-tensorboard"),
]
_MODEL = [
    *_SAC,
    *("--horizon", "2", "--rollouts-per-update", "4", "--model.members", "3", "--model.elites", "2"),
    *("--model.hidden", "32", "--model.layers", "2", "--model.weight-decay", "1e-5", "1e-5", "1e-5"),
]
KINDS = {
    "m2ac": ["--algo", "m2ac", *_MODEL],
    "m2ac, epoch rhythm": ["--algo", "m2ac", "--rhythm", "epoch", *_MODEL],
    "sac": ["--algo", "sac", *_SAC],
    "mbpo": ["--algo", "mbpo", *_MODEL],
    "m2ac, hardstop, nll": ["--algo", "m2ac", "--mask.stop", "hardstop", "--mask.uncertainty", "nll", *_MODEL],
    "steve": ["--algo", "steve", *_WORLD],
    "mve": ["--algo", "mve", *_WORLD],
    "ddpg": ["--algo", "ddpg", *_DDPG],
    "ppo": ["--algo", "ppo", *_PPO],
    "mbpo, epoch rhythm": ["--algo", "mbpo", "--rhythm", "epoch", *_MODEL],
}
"""Runs of all phases: collecting, fits with early stopping, masked rollouts, updates, evaluations, saves."""

LONGEST = 300.0
"""Seconds after which a process that has not ended has hung."""

# A shell's background job ignores SIGINT, and so does what it starts; the campaign may be one.
_CODE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from m2ac.cli import main
sys.exit(main())
"""


class Reference(NamedTuple):
    """The uninterrupted run."""

    settings: list[str]
    fingerprint: str  # of its final state
    evals: list[tuple[int, int, float]]
    metrics: list[dict[str, object]]
    seconds: float  # that it took


def start(out: Path, settings: Sequence[str], *, command: str = "train") -> "subprocess.Popen[str]":
    """The run as a process of its own group, whose signals reach nobody else."""
    place = [str(out)] if command == "resume" else [*settings, "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, command, *place],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"},
    )


def finish(out: Path, settings: Sequence[str], *, command: str = "train") -> None:
    """Run to the end."""
    process = start(out, settings, command=command)
    _, said = process.communicate(timeout=LONGEST)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {said.strip().splitlines()[-1:]}")


def read(out: Path, settings: list[str], seconds: float = 0.0) -> Reference:
    """What a finished run left."""
    from m2ac.runs.directory import RunDirectory

    found = checkpoint.load_newest(out / "checkpoints", warn=must_not_warn)
    assert found is not None
    run = RunDirectory.read(out)
    metrics = [
        {name: value for name, value in row.items() if name != "seconds" and not name.startswith(("time/", "process/"))}
        for row in run.read_metrics()
    ]
    evals = [(row["step"], row["episode"], row["return"]) for row in run.read_evals()]
    return Reference(settings, checkpoint.fingerprint(found.state), evals, metrics, seconds)


def must_not_warn(text: str) -> None:
    """For a loader that has nothing to complain of."""
    raise RuntimeError(text)


def reference(scratch: Path, kind: str) -> Reference:
    """The uninterrupted run; a first one fills the cache of compiled programs, so that the second's time is typical."""
    settings = KINDS[kind]
    finish(scratch / f"{kind} warm", settings)
    began = time.monotonic()
    finish(scratch / kind, settings)
    return read(scratch / kind, settings, time.monotonic() - began)


def differences(out: Path, whole: Reference) -> list[str]:
    """In what a finished run is not the uninterrupted one."""
    ended = read(out, whole.settings)
    return [name for name in ("fingerprint", "evals", "metrics") if getattr(ended, name) != getattr(whole, name)]


def trials(
    what: str, n: int, scratch: Path, one: Callable[[Path, Reference, random.Random], str | None], *, workers: int = 2
) -> Row:
    """`one` interrupts a run of its own and says what went wrong, None for nothing; all kinds of runs in turn."""
    kinds = list(KINDS)[:n]
    whole = {kind: reference(scratch, kind) for kind in kinds}

    def judged(number: int) -> str | None:
        kind = kinds[number % len(kinds)]
        try:
            told = one(scratch / f"run-{number}", whole[kind], random.Random(number))
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
        return None if told is None else f"trial {number} ({kind}): {told}"

    with ThreadPoolExecutor(workers) as pool:
        failures = [told for told in pool.map(judged, range(n)) if told is not None]
    return Row(what, n, n - len(failures), failures)


def interrupted(
    out: Path, settings: Sequence[str], number: signal.Signals, moment: float
) -> "subprocess.Popen[str] | None":
    """The process after the signal, still to be waited for; None where the run was over before that moment."""
    process = start(out, settings)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, number)
        return process
    assert process.stderr is not None
    process.stderr.close()
    return None
