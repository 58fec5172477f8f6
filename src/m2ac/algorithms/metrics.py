"""What happened in a cycle, as plain numbers."""

from typing import Any

import numpy as np

from m2ac.algorithms.numbers import Skips, mean_of_finite
from m2ac.algorithms.phases import Trust
from m2ac.dynamics.fit import FitReport
from m2ac.envs.world import Played
from m2ac.imagination.mask import Threshold
from m2ac.imagination.rollout import Imagination
from m2ac.learners.choice import Losses


def episode_metrics(ended: Played) -> dict[str, Any]:
    """A training episode, as plain numbers."""
    return {"train/return": ended.total, "train/length": ended.length}


def loss_metrics(group: str, losses: Losses) -> dict[str, Any]:
    """What the updates of a cycle saw, as plain numbers: means over those that were made."""
    means = {f"{group}/{name}": mean_of_finite(np.asarray(x)) for name, x in losses._asdict().items()}
    return {**means, f"{group}/skipped_updates": 0}


def count_skips(group: str, cycle: dict[str, Any], skips: Skips) -> None:
    """Add updates that were left out to the metrics of a cycle."""
    if skips.updates:
        cycle[f"{group}/skipped_updates"] = cycle.get(f"{group}/skipped_updates", 0) + skips.updates
        cycle[f"{group}/skipped_because"] = skips.what


def fit_metrics(report: FitReport, *, refused: bool) -> dict[str, Any]:
    """How a fit went, as plain numbers; the losses are means over the members that have a finite one."""
    return {
        "model/epochs": int(report.epochs),
        "model/batches": int(report.batches),
        "model/train_loss": float(report.train_loss),
        "model/holdout_nll": mean_of_finite(np.asarray(report.holdout_nll)),
        "model/holdout_mse": mean_of_finite(np.asarray(report.holdout_mse)),
        "model/skipped_batches": int(report.skipped),
        "model/refused": int(refused),
    }


def trust_metrics(trust: Trust, how: Imagination) -> dict[str, Any]:
    """What a rollout phase kept, as plain numbers."""
    kept, alive = np.asarray(trust.kept_by_step), np.asarray(trust.alive_by_step)
    metrics = {
        "trust/rows_kept": int(kept.sum()),
        "trust/share_kept": float(trust.share_kept),
        "trust/kept_by_step": kept.tolist(),
        "trust/alive_by_step": alive.tolist(),
        "trust/nonfinite_rows": int(trust.nonfinite_rows),
        "trust/nonfinite_share": int(trust.nonfinite_rows) / max(1, int(alive.sum())),
        "trust/terminated_rows": int(trust.terminated_rows),
        "trust/terminated_kept": int(trust.terminated_kept),
    }
    if how.score is None:  # nobody asked the other members
        return metrics
    if isinstance(how.mask, Threshold):
        metrics["trust/border"] = float(trust.border)
    return metrics | {
        "trust/uncertainty_kept": float(trust.uncertainty_kept),
        "trust/uncertainty_dropped": float(trust.uncertainty_dropped),
    }
