"""The policy alone, as a file of its own beside the checkpoints: what scoring, filming and exporting a run need."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from m2ac.config import AgentConfig
from m2ac.envs.world import World
from m2ac.learners.acting import ActingPolicy
from m2ac.learners.choice import acting_policy
from m2ac.runs import disk
from m2ac.runs.checkpoint import has_learned
from m2ac.runs.loop import Loop, read_loop, refuse_other_bounds
from m2ac.runs.tensors import TensorsError, read_tensors, serialised
from m2ac.scaling import Scaling
from m2ac.settings import ConfigError, UserError

FILE, BEST = "policy.safetensors", "best_policy.safetensors"
"""In a run directory: the policy that was saved last, and that of the best evaluation so far."""

EVALUATION = "evaluation."
LARGEST = 2**30


class Evaluated(NamedTuple):
    """What a policy came to in an evaluation of its run."""

    step: int
    mean_return: float


class PolicyError(UserError):
    """A file of a policy that cannot be used; the message names it and what is wrong with it."""


def policy_arrays(policy: ActingPolicy) -> dict[str, np.ndarray]:
    """The policy alone: weights and biases, layer by layer, and what observations go through before."""
    arrays: dict[str, np.ndarray] = {}
    for i, (weight, bias) in enumerate(policy.layers):
        arrays |= {f"{i}.weight": weight, f"{i}.bias": bias}
    if policy.scaling is not None:
        arrays |= {"scaling.shift": policy.scaling.shift, "scaling.scale": policy.scaling.scale}
    return arrays


def policy_of(arrays: Mapping[str, np.ndarray], config: AgentConfig) -> ActingPolicy:
    """The inverse of `policy_arrays`; a ValueError where they are not of a policy."""
    layers = {name: array for name, array in arrays.items() if not name.startswith(("scaling.", EVALUATION))}
    names = [f"{i}.{part}" for i in range(len(layers) // 2) for part in ("weight", "bias")]
    if not layers or set(names) != set(layers):
        raise ValueError("holds no policy")
    pairs = [(layers[weight], layers[bias]) for weight, bias in zip(names[::2], names[1::2], strict=True)]
    widths = [pairs[0][0].shape[0], *(bias.size for _, bias in pairs)]
    for i, (weight, bias) in enumerate(pairs):
        fits = weight.shape == (widths[i], widths[i + 1]) and bias.ndim == 1
        if not fits or weight.dtype != np.float32 or bias.dtype != np.float32:
            raise ValueError(f"holds a policy whose layer {i} does not fit the one before")
    scaling = [arrays[name] for name in ("scaling.shift", "scaling.scale") if name in arrays]
    if not scaling:
        return acting_policy(config, pairs)
    if [(part.shape, part.dtype) for part in scaling] != [((widths[0],), np.dtype(np.float64))] * 2:
        raise ValueError("holds a policy whose scaling does not fit its first layer")
    return acting_policy(config, pairs, Scaling(shift=scaling[0], scale=scaling[1], settled=np.bool_(True)))


def save_policy(path: Path, policy: ActingPolicy, evaluated: Evaluated | None = None) -> None:
    """Write the policy alone, with what it came to where that is known."""
    about = {} if evaluated is None else {EVALUATION + n: np.array(value) for n, value in evaluated._asdict().items()}
    with disk.writing(path, "make room there or choose another place"):
        disk.write_atomically(path, serialised(policy_arrays(policy) | about))


def load_policy(path: Path, config: AgentConfig | None = None) -> ActingPolicy:
    """The inverse of `save_policy`; the configuration says what kind of policy it is, SAC's without one."""
    try:
        return policy_of(read_tensors(path, at_most=LARGEST), config or AgentConfig())
    except (TensorsError, ValueError) as error:
        raise PolicyError(f"{path} {error}; continue the training, which writes it") from error


def read_evaluated(path: Path) -> Evaluated | None:
    """What the policy in the file came to; None where there is no such file, or none that says so."""
    try:
        arrays = read_tensors(path, at_most=LARGEST)
        step, mean = (arrays[EVALUATION + name] for name in Evaluated._fields)
        return Evaluated(int(step), float(mean))
    except (TensorsError, KeyError, TypeError):
        return None


def policy_of_run(run: Path, config: AgentConfig, *, best: bool = False) -> ActingPolicy:
    """The policy that a run saved last, or that of its best evaluation."""
    if best and not (run / BEST).exists():
        raise PolicyError(
            f"{run} has no {BEST}: no evaluation has ended in it yet, or none since that file is kept; continue the "
            f"training, or leave out --best"
        )
    return load_policy(run / (BEST if best else FILE), config)


def policy_of_loop(run: Path, loop: Loop, config: AgentConfig) -> ActingPolicy | None:
    """What a control loop has learned in its run directory so far.

    None before its first update, and of another loop, whose observations or actions mean something else.
    """
    if not has_learned(run / "checkpoints") or read_loop(run) != loop:
        return None
    policy = load_policy(run / FILE, config)
    sizes, needed = (policy.obs_dim, policy.action_dim), (loop.obs_dim, len(loop.low))
    if sizes != needed:
        raise PolicyError(
            f"{run / FILE} has {sizes[0]} observations and {sizes[1]} actions, but the loop has {needed[0]} and "
            f"{needed[1]}; continue the training, which writes it"
        )
    return policy


def must_fit(policy: ActingPolicy, world: World, *, run: Path | None, env: str) -> None:
    """A policy acts only where observations and actions are as many as it was trained with, and in the same units."""
    whose = "this agent" if run is None else repr(str(run))
    sizes = policy.obs_dim, policy.action_dim
    if sizes != (world.obs_dim, world.action_dim):
        raise ConfigError(
            f"the policy of {whose} has {sizes[0]} observations and {sizes[1]} actions, but {env} "
            f"has {world.obs_dim} and {world.action_dim}; continue the training, which writes it anew"
        )
    if run is not None:
        refuse_other_bounds(run, world, env)
