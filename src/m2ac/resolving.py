"""What a configuration comes to: every value that was left open, from the task, the algorithm and the other values."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from m2ac.config import EXPANDING, MODELLED, AgentConfig, RunConfig
from m2ac.settings import check, override

C = TypeVar("C", bound=AgentConfig)

MOST_PRETRAINED = 10_000
"""Updates of a world model before the first step, one for each logged transition: as many as STEVE's code makes."""

MOST_ROWS = 1_000_000
"""Real transitions that a run keeps unless more are asked for."""


def resolve(config: C, task: Mapping[str, Any], *, action_dim: int, steps: int, logged: int = 0) -> C:
    """The same configuration with no None left where a value is needed.

    `task` holds the task's values by dotted name, such as "sac.target_entropy"; what the user set stays. A run of that
    many steps may begin with `logged` transitions.
    """
    updates = config.updates_per_step or {"m2ac": 10, "mbpo": 10, "sac": 1, "ppo": None}.get(config.algo, 4)
    every = config.model_every or {"mbpo": 250, "epoch": 1000}[config.rhythm]
    random_steps = _random_steps(config, task, steps=steps, logged=logged)
    scaled = task.get("scale_observations", True) if config.scale_observations is None else config.scale_observations
    offline = (0 if steps else 50_000) if config.offline_updates is None else config.offline_updates
    check(
        not offline or logged >= 2,
        f"offline_updates must be 0 without logged experience, got {offline}; give it with --data, or leave it out",
    )
    entropy = config.sac.target_entropy
    values: dict[str, Any] = {
        "horizon": _horizon(config),
        "updates_per_step": updates,
        "model_every": every,
        "retain": config.retain or (max(1, 1000 // every) if config.rhythm == "mbpo" else 1),
        "random_steps": random_steps,
        "offline_updates": offline,
        "scale_observations": config.algo != "ppo" and scaled,
        "model": _model(config, task),
        "replay": {"capacity": _capacity(config, every=every, steps=steps, logged=logged)},
        "sac": {"target_entropy": task.get("sac.target_entropy", -float(action_dim)) if entropy is None else entropy},
        **_of_learner(config, task, random_steps, logged),
    }
    if config.algo in MODELLED:
        values["mask"] = _mask(config)
    if isinstance(config, RunConfig):
        values["steps"] = steps
        usual = 5 * config.ppo.rollout if config.algo == "ppo" else task.get("eval_every", 1000)
        values["eval_every"] = config.eval_every or usual
    return override(config, values)


def as_written(values: Any) -> Any:
    """Resolved values from a file; where an earlier version wrote it, with what was the case before a setting existed.

    What is no such file at all is left as it is, for others to refuse.
    """
    model = values.get("model") if isinstance(values, Mapping) else None
    if not isinstance(model, Mapping) or "scale_targets" in model:
        return values
    return {**values, "model": {**model, "scale_targets": False}}


def _model(config: AgentConfig, task: Mapping[str, Any]) -> dict[str, Any]:
    model = config.model
    scaled = task.get("model.scale_targets", True) if model.scale_targets is None else model.scale_targets
    lowest = model.min_log_variance
    if lowest is None and not scaled:  # a task's is of its own units
        lowest = task.get("model.min_log_variance")
    return {
        "hidden": model.hidden or task.get("model.hidden", 200),
        "scale_targets": scaled,
        "min_log_variance": replace(model, scale_targets=scaled, min_log_variance=lowest).first_min_log_variance,
    }


def _horizon(config: AgentConfig) -> int | None:
    if config.algo in MODELLED:
        return config.horizon or 1
    if config.algo in ("mve", "steve"):
        return 3 if config.horizon is None else config.horizon
    return None


def _random_steps(config: AgentConfig, task: Mapping[str, Any], *, steps: int, logged: int) -> int:
    if config.algo == "ppo":
        return 0
    random_steps: int = task.get("random_steps", 5000)
    if config.random_steps is not None:
        random_steps = config.random_steps
    elif logged >= 2:
        random_steps = 0
    elif random_steps >= steps:  # a run shorter than the task's exploration would learn nothing
        random_steps = max(2, -(-steps // 5))
    check(
        random_steps + logged >= 2,
        f"random_steps must be at least 2, got {random_steps}; the first fit needs a row to learn from and one to be "
        f"judged by",
    )
    return random_steps


def room_for(steps: int, logged: int) -> int:
    """Rows that the real buffer has room for where nothing else is asked for."""
    return max(min(steps + logged, MOST_ROWS), logged)


def _capacity(config: AgentConfig, *, every: int, steps: int, logged: int) -> int:
    """Rows of the real buffer, which must hold what is looked at together."""
    room, given = room_for(steps, logged), config.replay.capacity
    needed, of = (config.ppo.rollout, "ppo.rollout") if config.algo == "ppo" else (every, "model_every")
    least = needed if config.algo == "ppo" else min(every, room)
    check(
        given is None or given >= least,
        f"replay.capacity must be at least {of} ({needed}), got {given}; raise it or leave it out",
    )
    check(
        given is None or given >= logged,
        f"replay.capacity must hold the {logged} logged transitions, got {given}; raise it or leave it out",
    )
    return given or (max(room, needed) if config.algo == "ppo" else room)


def _of_learner(config: AgentConfig, task: Mapping[str, Any], random_steps: int, logged: int) -> dict[str, Any]:
    """The groups of the learners other than SAC."""
    if config.algo in EXPANDING:
        several = 4 if config.algo == "steve" else 1
        known = max(random_steps, min(logged, MOST_PRETRAINED))
        pretrain = known if config.world.pretrain is None else config.world.pretrain
        return {
            "ddpg": {"critics": config.ddpg.critics or several},
            "world": {"members": config.world.members or several, "pretrain": pretrain},
        }
    if config.algo == "ppo":
        discount = task.get("ppo.discount", 0.99) if config.ppo.discount is None else config.ppo.discount
        rate = config.ppo.learning_rate or task.get("ppo.learning_rate", 3e-4)
        return {"ppo": {"discount": discount, "learning_rate": rate}}
    return {}


def _mask(config: AgentConfig) -> dict[str, Any]:
    """What is kept, by which score, and what it costs."""
    mask = config.mask
    by_threshold, keep_all = mask.rule == "threshold", config.algo == "mbpo" or mask.rule == "all"
    uncertainty = mask.uncertainty or ("gjs" if by_threshold else "ovr")
    penalty = 0.0 if keep_all or by_threshold or uncertainty == "nll" else 1e-3
    return {
        "rate": 1.0 if keep_all else mask.rate,
        "penalty": penalty if mask.penalty is None else mask.penalty,
        "stop": mask.stop or ("hardstop" if by_threshold else "nonstop"),
        # Where everything is kept the score only has to exist, and One-vs-All is 0 for a member on its own.
        "uncertainty": "ova" if config.alone and uncertainty in ("ovr", "gjs") else uncertainty,
    }
