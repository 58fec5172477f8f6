"""A watch over a training: critic values beyond what the rewards allow, and what was left out as not finite."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from m2ac.algorithms.numbers import mean_of_finite
from m2ac.learners.choice import GROUPS, Learner, Losses
from m2ac.learners.sac import SACLosses
from m2ac.replay import Real

TOLERANCE = 0.1
"""Share of their width by which the bounds are widened, and the least they reach to either side of zero is ten times
this: a critic that has learned nothing has values of that size."""


@jax.jit
def reward_range(real: Real) -> Float[Array, "2"]:
    """The lowest and the highest reward in D_env."""
    valid = jnp.arange(real.reward.shape[-1]) < real.size
    return jnp.stack(
        [
            jnp.min(jnp.where(valid, real.reward, jnp.inf)),
            jnp.max(jnp.where(valid, real.reward, -jnp.inf)),
        ]
    )


def value_bounds(lowest: float, highest: float, bonus: float, discount: float) -> tuple[float, float]:
    """Between which a critic's values lie, where rewards lie between those and each later step adds at most the bonus.

    Zero is always between them: an episode may terminate at once, and critics start there.
    """
    steps = 1.0 / (1.0 - discount)
    entropy = bonus * discount * steps
    low, high = min(lowest, 0.0) * steps - entropy, max(highest, 0.0) * steps + entropy
    room = TOLERANCE * (high - low) + 10 * TOLERANCE
    return low - room, high + room


def watch_metrics(losses: Losses, rewards: Float[np.ndarray, "2"], learner: Learner) -> dict[str, Any]:
    """The mean value of a cycle beside the bounds that the real rewards allow.

    Imagined rewards are not the measure: they can be wrong, which is what this is to show. The entropy bonus counts
    with the temperature at the start where that was higher: values follow it by some cycles.
    """
    values = np.asarray(losses.value)
    made = np.isfinite(values)
    if not made.any():
        return {}
    bonus = 0.0
    if isinstance(losses, SACLosses):
        temperature, entropy = np.asarray(losses.temperature)[made], np.asarray(losses.entropy)[made]
        bonus = max(float(temperature.max()), learner.how.temperature) * float(np.abs(entropy).max())
    low, high = value_bounds(float(rewards[0]), float(rewards[1]), bonus, learner.discount)
    value = mean_of_finite(values)
    return {
        "watch/value_lowest": low,
        "watch/value_highest": high,
        "watch/value_beyond": int(not low <= value <= high),
    }


def notices(metrics: Mapping[str, Any], *, seed: int) -> dict[str, str]:
    """What a user should be told of a cycle, by kind, so that each kind can be told once; mostly nothing."""
    where = f"in the cycle up to step {metrics['step']} (seed {seed})"
    told = {}
    group = next((name for name in GROUPS if f"{name}/value" in metrics), "sac")
    modelled = "trust/share_kept" in metrics
    cautiously = " or model rewards more cautiously (a lower mask.rate, a shorter horizon)" if modelled else ""
    if metrics.get("watch/value_beyond"):
        told["values"] = (
            f"the critics' mean value {metrics[f'{group}/value']:.4g} {where} is beyond what the rewards allow, "
            f"{metrics['watch/value_lowest']:.4g} to {metrics['watch/value_highest']:.4g}: they may be diverging; "
            f"lower {group}.learning_rate{cautiously}"
        )
    if metrics.get(f"{group}/skipped_updates"):
        told["updates"] = (
            f"{metrics[f'{group}/skipped_updates']} updates {where} were skipped because their numbers were not "
            f"finite, the last with {metrics[f'{group}/skipped_because']}; scale rewards and observations to about 1"
        )
    if metrics.get("model/skipped_batches"):
        told["batches"] = (
            f"{metrics['model/skipped_batches']} of {metrics['model/batches']} batches of the model's fit {where} were "
            f"skipped because their numbers were not finite; scale rewards and observations to about 1"
        )
    if metrics.get("model/refused"):
        told["fit"] = (
            f"no member of the model had a finite holdout loss {where}, so the fit before stays; "
            f"scale rewards and observations to about 1"
        )
    if metrics.get("trust/nonfinite_rows"):
        told["rows"] = (
            f"{metrics['trust/nonfinite_rows']} of {sum(metrics['trust/alive_by_step'])} imagined rows {where} were "
            f"not finite and are left out; scale rewards and observations to about 1"
        )
    return told
