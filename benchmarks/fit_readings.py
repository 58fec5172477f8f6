"""What the open points of the model's fit do, without the noise of a whole training.

    python -m benchmarks.fit_readings RUN --core 0 --json results/fit-readings.json

The real rows of a finished run are given to the model again, some thousand more before each fit, as in a training.
Every fitted model is judged on the rows that follow, which it has not seen. What differs is how it is fitted.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EVERY, FIRST = 4000, 5000
"""Rows between two fits, and before the first."""

VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "stops on MSE": {"stop_on": "mse"},
    "patience 2": {"patience": 2},
    "patience 10": {"patience": 10},
    "any improvement counts": {"improvement": 0.0},
    "log-variance from -6": {"min_log_variance": -6.0},
    "learning rate 3e-4": {"learning_rate": 3e-4},
    "no weight decay": {"weight_decay": (0.0, 0.0, 0.0, 0.0, 0.0)},
    "targets scaled": {"scale_targets": True},
    "targets scaled, log-variance from -10": {"scale_targets": True, "min_log_variance": -10.0},
}
"""By name, what is not as MBPO has it."""

SHOWN = ("nll", "fresh/error", "fresh/rank_ovr", "fresh/rank_nll", "fresh/inside_50_obs", "fresh/inside_90_obs")


def fits(run: Path, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One line per fit."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from m2ac.algorithms.diagnostics import Window, judge_model, model_metrics
    from m2ac.algorithms.training import imagination
    from m2ac.config import AgentConfig
    from m2ac.dynamics import fit
    from m2ac.dynamics.ensemble import predict, target_of
    from m2ac.dynamics.gaussian import Gaussian, negative_log_density
    from m2ac.replay import add_real, empty_real, take_real
    from m2ac.resolving import resolve
    from m2ac.runs import checkpoint
    from m2ac.settings import override

    found = checkpoint.load_newest(run / "checkpoints", warn=print)
    assert found is not None
    steps, rows = found.state.counters.steps, found.state.real
    obs_dim, actions = found.manifest["obs_dim"], found.manifest["action_dim"]
    model = {"scale_targets": False, **settings}
    config = resolve(override(AgentConfig(horizon=10), {"model": model}), {}, action_dim=actions, steps=steps)
    how = imagination(config, lambda *_: jnp.array(False), None)
    dynamics = fit.init_dynamics(config.model, obs_dim, actions, learns_termination=False, key=jax.random.key(7))
    real = add_real(empty_real(steps, obs_dim, actions), take_real(rows, jnp.arange(FIRST)), jnp.int32(FIRST))
    for seen in range(FIRST, steps - EVERY + 1, EVERY):
        under_way = fit.start_fit(dynamics, real, config.model, key=jax.random.key(seen))
        while not under_way.done:
            under_way = fit.fit_slice(under_way, real, np.int32(500), config.model)
        dynamics, report = fit.finish_fit(under_way, real, config.model)
        fresh = take_real(rows, jnp.arange(seen, seen + EVERY))
        real = add_real(real, fresh, jnp.int32(EVERY))
        window = Window(1000, 10)
        errors = judge_model(dynamics.ensemble, real, jax.random.key(3), np.int32(seen), window=window, how=how)
        prediction, _ = predict(dynamics.ensemble, fresh.obs, fresh.action)
        elites = Gaussian(*(x[dynamics.ensemble.elites] for x in prediction))
        yield {
            "rows": seen,
            "batches": int(report.batches),
            "nll": float(jnp.mean(negative_log_density(elites, target_of(fresh)))),
            **model_metrics(errors, fresh=window.rows, score="ovr"),
        }


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="directory of a finished run")
    parser.add_argument("--core", type=int, help="the core to run on")
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if chosen.core is not None:
        os.sched_setaffinity(0, {chosen.core})
    told = {}
    for name in chosen.only:
        told[name] = list(fits(chosen.run, VARIANTS[name]))
        means = {key: sum(line[key] for line in told[name]) / len(told[name]) for key in SHOWN}
        batches = sum(line["batches"] for line in told[name])
        print(
            f"{name:37}", " ".join(f"{key} {mean:.3f}" for key, mean in means.items()), f"batches {batches}", flush=True
        )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"rows of": chosen.run.name, "fits": told}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
