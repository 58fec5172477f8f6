"""One run from its configuration to its picture, continued where it was left."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from m2ac.algorithms.training import Progress, Training
from m2ac.config import DEFAULT_STEPS, RunConfig, resolve
from m2ac.envs import find_task, make_env
from m2ac.envs.notices import Notices
from m2ac.envs.world import World
from m2ac.report.curve import draw_learning_curve
from m2ac.runs import checkpoint
from m2ac.runs.directory import EvalRow, RunDirectory, default_out
from m2ac.runs.display import Display, Pace, Status, make_display
from m2ac.runs.stopping import stopping
from m2ac.runs.tensorboard import TensorBoard


class Result(NamedTuple):
    """How a run ended."""

    directory: Path
    step: int
    finished: bool  # False: stopped by a signal, saved, to be continued by the same command
    signal: int | None
    returns: list[float]  # of the last evaluation's episodes


class _Run:
    """The moving parts of `execute`."""

    def __init__(self, config: RunConfig, stream: TextIO) -> None:
        task = find_task(config.env)
        limit, notices = config.step_timeout, Notices()
        self.training_world = World(
            make_env(task), seed=config.seed, stream="train", step_timeout=limit, notices=notices
        )
        self.evaluation_world = World(
            make_env(task), seed=config.seed, stream="eval", step_timeout=limit, notices=notices
        )
        steps = config.steps or task.defaults.get("steps", DEFAULT_STEPS)
        out = config.out or default_out(config)
        self.config = resolve(
            dataclasses.replace(config, out=out, steps=steps),
            task.defaults,
            action_dim=self.training_world.action_dim,
            steps=steps,
        )
        self.steps: int = steps
        self.directory = RunDirectory.open(out, self.config, asked=config)
        self.directory.hold()
        self.display: Display = make_display(stream)
        self.evals = self.directory.read_evals()
        self.tensorboard: TensorBoard | None = None
        if self.directory.done:
            return
        self.elapsed_before = 0.0
        self.training = self._training(task.terminated)
        self.evals = self.directory.read_evals()
        self.returns = _mean_returns(self.evals)
        if self.config.tensorboard:
            self.tensorboard = TensorBoard(self.directory.path / "tensorboard", from_step=self.training.step + 1)
        self.started = self.saved = time.monotonic()
        self.pace = Pace(self.steps)
        self.seen: dict[str, Any] = {}
        self.train_return: float | None = None

    def _training(self, termination_fn: Any) -> Training:
        """A fresh training, or the one of the newest checkpoint."""
        found = checkpoint.load_newest(self.directory.checkpoints, warn=self.display.message)
        if found is not None:
            self.elapsed_before = float(found.manifest.get("elapsed", 0.0))
        training = Training(
            self.config, self.training_world, termination_fn=termination_fn, state=found.state if found else None
        )
        if found is None and self.evals:
            self.display.message("no checkpoint is left of this run, so it starts again from its first step")
        self.directory.cut_back(training.step)
        if found is not None:
            self.display.message(f"continuing at step {training.step} from {found.path}")
            if not training.rejoin():
                self.display.message("this environment cannot be replayed exactly; the run goes on with a new episode")
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
        # At the end of a cycle, whose metrics are written: what a later kill loses is then whole cycles.
        overdue = time.monotonic() - self.saved > 60 * self.config.checkpoint_minutes
        if overdue and (progress.metrics is not None or progress.phase == "exploring"):
            self.save()
        self.show(progress.phase)

    def _evaluation_due(self, progress: Progress) -> bool:
        assert self.config.eval_every is not None
        assert self.config.random_steps is not None
        if not progress.settled or not self.config.random_steps <= progress.step < self.steps:
            return False
        last = self.evals[-1]["step"] if self.evals else -1
        return progress.step // self.config.eval_every > last // self.config.eval_every

    def log(self, metrics: Mapping[str, Any]) -> None:
        self.seen |= metrics
        self.directory.append_metrics({**metrics, "seconds": round(self.elapsed, 3)})
        self.curve(int(metrics["step"]), metrics)

    def curve(self, step: int, metrics: Mapping[str, Any]) -> None:
        if self.tensorboard is not None:
            self.tensorboard.write(step, {k: v for k, v in metrics.items() if isinstance(v, int | float)})

    def evaluate(self, episodes: int) -> None:
        """Play with the mean action in the environment kept for it."""
        self.show("evaluating")
        policy, step = self.training.acting_policy(), self.training.step
        first = self.evals[-1]["episode"] + 1 if self.evals else 0
        rows: list[EvalRow] = []
        for number in range(first, first + episodes):
            played = self.evaluation_world.play(policy, number)
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
        self.evals += rows
        self.directory.append_evals(rows)
        self.returns.append(float(np.mean([row["return"] for row in rows])))
        self.curve(step, {"eval/return": self.returns[-1]})

    def show(self, phase: str) -> None:
        self.pace.update(self.training.step)
        self.display.update(
            Status(
                step=self.training.step,
                steps=self.steps,
                phase=phase,
                returns=self.returns,
                train_return=self.train_return,
                steps_per_second=self.pace.steps_per_second,
                seconds_left=self.pace.seconds_left,
                model_loss=self.seen.get("model/holdout_nll"),
                share_kept=self.seen.get("trust/share_kept"),
                elapsed=self.elapsed,
            )
        )

    def save(self) -> None:
        path = self.directory.checkpoints / checkpoint.checkpoint_name(self.training.step)
        checkpoint.save(path, self.training.state, self.config, elapsed=self.elapsed)
        checkpoint.prune(self.directory.checkpoints)
        checkpoint.save_policy(self.directory.path / "policy.safetensors", self.training.acting_policy())
        self.saved = time.monotonic()

    def draw(self) -> None:
        config = self.config
        horizon = f", rollout length {config.horizon}" if config.horizon else ""
        draw_learning_curve(
            self.evals,
            title=f"{config.algo.upper()} on {config.env}{horizon}, seed {config.seed}",
            path=self.directory.learning_curve,
            metrics=self.directory.read_metrics(),
        )

    def last_returns(self) -> list[float]:
        """Returns of the last evaluation's episodes, none before the first."""
        return [row["return"] for row in self.evals if row["step"] == self.evals[-1]["step"]]

    def finish(self) -> None:
        """Score the trained policy and say that the run is over."""
        if not self.evals or self.evals[-1]["step"] < self.training.step:  # else it was killed right after this
            self.evaluate(self.config.final_episodes)
        returns = self.last_returns()
        self.directory.mark_done(
            {
                "step": self.training.step,
                "seconds": self.elapsed,
                "episodes": len(returns),
                "mean_return": float(np.mean(returns)),
                "std_return": float(np.std(returns)),
            }
        )

    def close(self) -> None:
        self.directory.close()
        self.display.close()
        if self.tensorboard is not None:
            self.tensorboard.close()
        self.training_world.close()
        self.evaluation_world.close()


def _mean_returns(evals: list[EvalRow]) -> list[float]:
    """The mean of every evaluation, in order."""
    by_step: dict[int, list[float]] = {}
    for row in evals:
        by_step.setdefault(row["step"], []).append(row["return"])
    return [float(np.mean(returns)) for returns in by_step.values()]


def execute(config: RunConfig, *, stream: TextIO) -> Result:
    """Train, evaluate, log, save and draw; the display goes to `stream`."""
    run = _Run(config, stream)
    try:
        if run.directory.done:
            run.display.message(
                "this run is finished already; choose another --out or delete the directory for a new one"
            )
            return Result(run.directory.path, run.steps, True, None, run.last_returns())
        try:
            with stopping() as stop:
                for progress in run.training.run(run.steps):
                    run.note(progress)
                    if stop.signal is not None:
                        run.log(run.training.cycle_metrics())
                        break
        finally:
            run.save()  # also what was learned before an environment failed
        finished = stop.signal is None
        if finished:
            run.finish()
        if run.evals:
            run.draw()
        run.show("finished" if finished else "stopped")
        return Result(run.directory.path, run.training.step, finished, stop.signal, run.last_returns())
    finally:
        run.close()
