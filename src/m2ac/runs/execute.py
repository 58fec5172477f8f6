"""One run from its configuration to its picture, continued where it was left."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from m2ac.algorithms.base import Progress
from m2ac.algorithms.choice import AnyTraining, training_of, worlds_needed
from m2ac.algorithms.training import Training
from m2ac.algorithms.watch import notices
from m2ac.config import RunConfig
from m2ac.envs import Task, find_task, make_env
from m2ac.envs.notices import Notices
from m2ac.envs.seeds import Stream
from m2ac.envs.world import World
from m2ac.report.curve import draw_learning_curve
from m2ac.resolving import resolve
from m2ac.runs import checkpoint, disk
from m2ac.runs.directory import ROOM, EvalRow, Logged, RunDirectory, default_out, lengthen
from m2ac.runs.display import Display, Pace, Status, make_display
from m2ac.runs.environment import memory_mib
from m2ac.runs.experience import Experience, Past
from m2ac.runs.keeping import save_run, take_up
from m2ac.runs.loop import loop_of, record_loop, refuse_other_loop
from m2ac.runs.policy import BEST, Evaluated, read_evaluated, save_policy
from m2ac.runs.stopping import stopping
from m2ac.runs.tensorboard import TensorBoard
from m2ac.settings import UserError


class Result(NamedTuple):
    """How a run ended."""

    directory: Path
    step: int
    finished: bool  # False: stopped by a signal, saved, to be continued by the same command
    signal: int | None
    returns: list[float]  # of the last evaluation's episodes


class _LeftError(Exception):
    """Leaves an evaluation in the middle of an episode."""


class _Run:
    """The moving parts of `execute`."""

    def __init__(
        self, config: RunConfig, task: Task, worlds: Sequence[World], directory: RunDirectory, display: Display
    ) -> None:
        self.config = config
        *self.training_worlds, self.evaluation_world = worlds
        self.directory = directory
        self.display = display
        assert config.steps is not None
        self.steps: int = config.steps
        self.elapsed_before = 0.0
        self.training = self._training(task.terminated)
        self.saved_step = self.training.step
        self.evals = directory.read_evals()
        self.returns = _mean_returns(self.evals)
        best = read_evaluated(directory.path / BEST)  # maybe of an evaluation that is to come again, or was cut
        self.best = max(self.returns, default=-math.inf) if best is None else best.mean_return
        self.tensorboard: TensorBoard | None = None
        if config.tensorboard:
            self.tensorboard = TensorBoard(directory.path / "tensorboard", from_step=self.training.step + 1)
        self.started = self.saved = time.monotonic()
        self.pace, self.offline_pace = Pace(self.steps), Pace(self.config.offline_updates or 0)
        self.seen: dict[str, Any] = {}
        self.noticed: set[str] = set()
        self.train_return: float | None = None
        self.asked_to_stop: Callable[[], bool] = lambda: False

    def _training(self, termination_fn: Any) -> AnyTraining:
        """A fresh training, or the one of the newest checkpoint."""
        found = checkpoint.load_newest(self.directory.checkpoints, warn=self.display.message)
        if found is not None and (found.config.algo, found.config.ppo) != (self.config.algo, self.config.ppo):
            raise checkpoint.CheckpointError(
                f"{found.path} is of another run: algo={found.config.algo}, not {self.config.algo}, or other settings "
                f"of ppo; delete it to use the one before"
            )
        training = training_of(
            self.config, self.training_worlds, termination_fn=termination_fn, state=found.state if found else None
        )
        if found is None:
            if self.directory.read_evals():
                self.display.message("no checkpoint is left of this run, so it starts again from its first step")
            self.directory.cut_back(Logged(0, 0))
            self.directory.remove(BEST)
            return training
        assert self.config.replay.capacity is not None
        training.make_room(self.config.replay.capacity)  # more than there was, if the run has been lengthened
        self.elapsed_before, whole = take_up(found, training, self.directory)
        if not whole:
            self.display.message("the logs have lost some lines from before the checkpoint; the run itself is whole")
        for damaged in checkpoint.set_aside(self.directory.checkpoints, newer_than=found.path):
            self.display.message(f"kept out of the way: {damaged}")
        self.display.message(f"continuing at step {training.step} from {found.path}")
        for difference in self.directory.differences:
            self.display.message(f"{difference}; the numbers may now differ from an uninterrupted run's")
        if not training.rejoin():
            why = "this environment cannot be replayed exactly; " if self.config.rejoin else ""
            self.display.message(f"{why}the run goes on with a new episode")
        return training

    @property
    def elapsed(self) -> float:
        return self.elapsed_before + time.monotonic() - self.started

    def note(self, progress: Progress) -> None:
        """Log what has happened, evaluate and save where it is time."""
        if progress.episode is not None:
            self.train_return = progress.episode.total
        if progress.metrics is not None:
            self.log(progress.metrics)
        if self._evaluation_due(progress):
            self.evaluate(self.config.eval_episodes)
        if self._save_due(progress):
            self.save()
        self.show(progress.phase)

    def absorb(self, experience: Experience) -> None:
        """Begin with what was logged before."""
        assert isinstance(self.training, Training)
        self.training.absorb(experience.rows)
        self.directory.record_data(experience.sources)
        for note in experience.notes:
            self.display.message(note)
        self.display.message(f"beginning with {experience.size} logged transitions")
        if self.steps == 0:
            self.display.message(
                "learning from them alone: where they say nothing the policy is guesswork, and only real episodes tell "
                "what it is worth; try it with care"
            )

    def catch_up(self) -> None:
        """The evaluation that the run was in when it was stopped: it is of this step's policy, not of a later one's.

        Without random steps, also the first of all.
        """
        progress = self.training.now()
        if self._evaluation_due(progress):
            self.evaluate(self.config.eval_episodes)

    def _save_due(self, progress: Progress) -> bool:
        # At the end of a cycle, whose metrics are written: what a later kill loses is then whole cycles.
        if progress.metrics is None and progress.phase != "exploring":
            return False
        every = self.config.checkpoint_every
        if every is not None and progress.step // every > self.saved_step // every:
            return True
        return time.monotonic() - self.saved > 60 * self.config.checkpoint_minutes

    def _evaluation_due(self, progress: Progress) -> bool:
        assert self.config.eval_every is not None
        assert self.config.random_steps is not None
        if not progress.settled or not self.config.random_steps <= progress.step < self.steps:
            return False
        last = self.evals[-1]["step"] if self.evals else -1
        return progress.step // self.config.eval_every > last // self.config.eval_every

    def log(self, metrics: Mapping[str, Any]) -> None:
        self.seen |= metrics
        for kind, text in notices(metrics, seed=self.config.seed).items():
            if kind not in self.noticed:
                self.noticed.add(kind)
                self.display.message(text)
        more = {"process/memory_mib": memory_mib(), "seconds": round(self.elapsed, 3)}
        self.directory.append_metrics({**metrics, **more})
        self.curve(int(metrics["step"]), metrics)

    def curve(self, step: int, metrics: Mapping[str, Any]) -> None:
        if self.tensorboard is not None:
            self.tensorboard.write(step, {k: v for k, v in metrics.items() if isinstance(v, int | float)})

    def evaluate(self, episodes: int) -> bool:
        """Play with the mean action in the environment kept for it; False where it was left to stop."""
        self.show("evaluating")
        policy, step = self.training.acting_policy(), self.training.step

        def policy_unless_asked_to_stop(obs: NDArray[np.float32]) -> NDArray[np.float32]:
            if self.asked_to_stop():
                raise _LeftError
            return policy(obs)

        first = self.evals[-1]["episode"] + 1 if self.evals else 0
        rows: list[EvalRow] = []
        for number in range(first, first + episodes):
            try:
                played = self.evaluation_world.play(policy_unless_asked_to_stop, number)
            except _LeftError:  # when the run is continued, this evaluation is due again
                return False
            rows.append(
                {
                    "step": step,
                    "episode": number,
                    "seed": played.seed,
                    "return": played.total,
                    "length": played.length,
                    "seconds": round(self.elapsed, 3),
                }
            )
        mean = float(np.mean([row["return"] for row in rows]))
        if mean >= self.best:  # before it is logged: then a kill in between repeats both
            self.best = mean
            save_policy(self.directory.path / BEST, policy, Evaluated(step, mean))
        self.evals += rows
        self.directory.append_evals(rows)
        self.returns.append(mean)
        self.curve(step, {"eval/return": self.returns[-1]})
        return True

    def show(self, phase: str) -> None:
        counters, offline = self.training.counters, self.config.offline_updates or 0
        from_log = counters.steps == 0 and (counters.updates < offline or not self.steps)
        done, of, unit, pace = counters.steps, self.steps, "steps", self.pace
        if from_log:
            done, of, unit, pace = counters.updates, offline, "updates", self.offline_pace
        pace.update(done)
        self.display.update(
            Status(
                step=done,
                steps=of,
                unit=unit,
                phase=phase,
                returns=self.returns,
                train_return=self.train_return,
                steps_per_second=pace.steps_per_second,
                seconds_left=pace.seconds_left,
                model_loss=self.seen.get("model/holdout_nll"),
                share_kept=self.seen.get("trust/share_kept"),
                elapsed=self.elapsed,
            )
        )

    def save(self) -> None:
        """Write everything."""
        save_run(self.directory, self.training, self.config, self.elapsed)
        self.saved, self.saved_step = time.monotonic(), self.training.step

    def draw(self) -> None:
        config = self.config
        horizon = f", rollout length {config.horizon}" if config.horizon else ""
        with disk.writing(self.directory.learning_curve, ROOM):
            draw_learning_curve(
                self.evals,
                title=f"{config.algo.upper()} on {config.env}{horizon}, seed {config.seed}",
                path=self.directory.learning_curve,
                metrics=self.directory.read_metrics(),
            )

    def finish(self) -> bool:
        """Score the trained policy, draw and say that the run is over; False where it was stopped before."""
        if not self.evaluate(self.config.final_episodes):
            return False
        self.draw()
        returns = _last_returns(self.evals)
        self.directory.mark_done(
            {
                "step": self.training.step,
                "seconds": self.elapsed,
                "episodes": len(returns),
                "mean_return": float(np.mean(returns)),
                "std_return": float(np.std(returns)),
            }
        )
        return True

    def close(self) -> None:
        """Let go of what is open."""
        if self.tensorboard is not None:
            self.tensorboard.close()


def _last_returns(evals: list[EvalRow]) -> list[float]:
    """Returns of the last evaluation's episodes, none before the first."""
    return [row["return"] for row in evals if row["step"] == evals[-1]["step"]]


def _mean_returns(evals: list[EvalRow]) -> list[float]:
    """The mean of every evaluation, in order."""
    by_step: dict[int, list[float]] = {}
    for row in evals:
        by_step.setdefault(row["step"], []).append(row["return"])
    return [float(np.mean(returns)) for returns in by_step.values()]


def execute(config: RunConfig, *, stream: TextIO, lengthens: bool = False) -> Result:
    """Train, evaluate, log, save and draw; the display goes to `stream`.

    `lengthens` lets the run in `config.out` have more steps than it was to have.
    """
    task = find_task(config.env)
    with ExitStack() as at_the_end:
        make_world = partial(World, seed=config.seed, step_timeout=config.step_timeout, notices=Notices())
        worlds: list[World] = []
        streams: list[Stream] = ["train"] * worlds_needed(config)
        for name in (*streams, "eval"):
            worlds.append(make_world(make_env(task), stream=name))
            at_the_end.callback(worlds[-1].close)
        past = Past(config.data, worlds[0], config.out or default_out(config))
        resolved = _resolved(config, task, worlds[0], logged=past.size)
        assert resolved.out is not None
        assert resolved.steps is not None
        if lengthens:  # only now: an environment that cannot be made must not cost a finished run its end
            _must_go_on(Path(resolved.out))
            refuse_other_loop(Path(resolved.out), loop_of(worlds[0]))
            lengthen(resolved.out, resolved)
        directory = RunDirectory.open(resolved.out, resolved, asked=config)
        at_the_end.callback(directory.close)
        record_loop(directory.path, loop_of(worlds[0]))
        display = make_display(stream)
        at_the_end.callback(display.close)
        if directory.done:
            display.message(
                "this run is finished already; m2ac resume with --steps goes on to more, and for a new one choose "
                "another --out or delete the directory"
            )
            return Result(directory.path, resolved.steps, True, None, _last_returns(directory.read_evals()))
        run = _Run(resolved, task, worlds, directory, display)
        if run.training.is_new and past.experience is not None:
            run.absorb(past.experience)
        at_the_end.callback(run.close)
        return _train(run)


def _must_go_on(path: Path) -> None:
    """A finished run without a checkpoint would begin anew, over what it has left."""
    if (path / "DONE").exists() and checkpoint.load_newest(path / "checkpoints", warn=lambda _: None) is None:
        raise checkpoint.CheckpointError(
            f"the finished run {str(path)!r} has no checkpoint to go on from; train a new one with another --out"
        )


def _resolved(config: RunConfig, task: Task, world: World, *, logged: int) -> RunConfig:
    """The configuration with the task's values where none were given."""
    steps = task.steps(config.algo) if config.steps is None else config.steps
    given = dataclasses.replace(config, out=config.out or default_out(config), steps=steps)
    return resolve(given, task.defaults, action_dim=world.action_dim, steps=steps, logged=logged)


def _train(run: _Run) -> Result:
    with stopping() as stop:
        run.asked_to_stop = lambda: stop.signal is not None
        try:
            run.catch_up()
            for progress in run.training.run(run.steps) if stop.signal is None else ():
                run.note(progress)
                if stop.signal is not None:
                    break
        except BaseException as error:
            _save_after(run, error)
            raise
        run.save()
        finished = stop.signal is None and run.finish()
    if not finished and run.evals:
        run.draw()
    run.show("finished" if finished else "stopped")
    return Result(run.directory.path, run.training.step, finished, stop.signal, _last_returns(run.evals))


def _save_after(run: _Run, error: BaseException) -> None:
    """Keep what was learned before something failed; where that fails too, the first failure is the one to tell."""
    if isinstance(error, disk.DiskError):  # what could not be logged would be missing from the log for good
        return
    try:
        run.save()
    except UserError as second:
        run.display.message(f"the state could not be saved either: {second}")
    else:
        if isinstance(error, UserError):
            run.display.message(f"saved at step {run.training.step}; the same command continues from there")
