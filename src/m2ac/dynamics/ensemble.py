"""The ensemble of probabilistic networks p_θ1 … p_θK over (reward, next observation), as in MBPO."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from m2ac.dynamics.gaussian import Gaussian, of_member, pick
from m2ac.model_config import ModelConfig
from m2ac.networks import MLP, apply_mlp, init_mlp, truncated_normal
from m2ac.types import Key, Transition

CHUNK = 1000
"""Rows of one member evaluated at a time where every row has a member of its own."""


class EnsembleParams(NamedTuple):
    """What training changes."""

    members: tuple[MLP, ...]  # separate networks: K separate products beat one batched product on a CPU
    max_log_variance: Float[Array, "D1"]  # shared by the members
    min_log_variance: Float[Array, "D1"]


class Ensemble(NamedTuple):
    """K networks, the standardisation of their inputs and targets, and which of them are the elite."""

    params: EnsembleParams
    input_mean: Float[Array, "I"]
    input_std: Float[Array, "I"]
    target_mean: Float[Array, "D1"]  # 0 and 1 where targets are not scaled
    target_std: Float[Array, "D1"]
    elites: Int[Array, "E"]  # indices of the members with the lowest holdout loss


class Output(NamedTuple):
    """One member's view: the change of the world, standardised, and the logit of its end where that is learned."""

    mean: Float[Array, "*B D1"]  # reward, then next_obs − obs
    log_variance: Float[Array, "*B D1"]
    variance: Float[Array, "*B D1"]
    termination: Float[Array, "*B"] | None


def init_ensemble(
    config: ModelConfig, obs_dim: int, action_dim: int, *, learns_termination: bool, key: Key
) -> Ensemble:
    """Fresh members; every one is elite until a fit says otherwise, in order of their number."""
    assert config.hidden is not None
    outputs = 2 * (obs_dim + 1) + learns_termination
    sizes = [obs_dim + action_dim, *[config.hidden] * config.layers, outputs]
    return Ensemble(
        EnsembleParams(
            members=tuple(init_mlp(sizes, truncated_normal, key=k) for k in jax.random.split(key, config.members)),
            # A dtype is given: without it the arrays would be weakly typed, and a later fit would compile again.
            max_log_variance=jnp.full(obs_dim + 1, config.max_log_variance, dtype=float),
            min_log_variance=jnp.full(obs_dim + 1, config.first_min_log_variance, dtype=float),
        ),
        input_mean=jnp.zeros(obs_dim + action_dim),
        input_std=jnp.ones(obs_dim + action_dim),
        target_mean=jnp.zeros(obs_dim + 1),
        target_std=jnp.ones(obs_dim + 1),
        elites=jnp.arange(config.elites, dtype=jnp.int32),
    )


def soft_clamp(x: Array, low: Array, high: Array) -> Array:
    """Between low and high, with a gradient everywhere, also for the bounds."""
    x = high - jax.nn.softplus(high - x)
    return low + jax.nn.softplus(x - low)


def soft_clamped_variance(x: Array, low: Array, high: Array) -> Array:
    """exp(soft_clamp(x, low, high)), with one exponential in place of five transcendental functions."""
    return jnp.exp(low) + 1.0 / (jnp.exp(-high) + jnp.exp(-x))


def _read(params: EnsembleParams, raw: Float[Array, "*B O"]) -> Output:
    dims = params.max_log_variance.shape[0]
    bounds = params.min_log_variance, params.max_log_variance
    return Output(
        mean=raw[..., :dims],
        log_variance=soft_clamp(raw[..., dims : 2 * dims], *bounds),
        variance=soft_clamped_variance(raw[..., dims : 2 * dims], *bounds),
        termination=raw[..., 2 * dims] if raw.shape[-1] > 2 * dims else None,
    )


def batched_members() -> bool:
    """Whether all members are one batched product: the faster way on a GPU, the slower one on a CPU."""
    return jax.default_backend() != "cpu"


def member_outputs(params: EnsembleParams, inputs: Sequence[Float[Array, "B I"]]) -> list[Output]:
    """Every member on standardised inputs of its own."""
    network = partial(apply_mlp, activation=jax.nn.swish)
    if not batched_members():
        return [_read(params, network(m, x)) for m, x in zip(params.members, inputs, strict=True)]
    stacked: MLP = jax.tree.map(lambda *layers: jnp.stack(layers), *params.members)
    return [_read(params, raw) for raw in jax.vmap(network)(stacked, jnp.stack(inputs))]


def standardise(ensemble: Ensemble, obs: Float[Array, "*B D"], action: Float[Array, "*B A"]) -> Float[Array, "*B I"]:
    """The networks' input."""
    return (jnp.concatenate([obs, action], axis=-1) - ensemble.input_mean) / ensemble.input_std


def target_of(rows: Transition) -> Float[Array, "*B D1"]:
    """What the model is to predict: the reward, then the change of the observation."""
    return jnp.concatenate([rows.reward[..., None], rows.next_obs - rows.obs], axis=-1)


def standardise_target(ensemble: Ensemble, rows: Transition) -> Float[Array, "*B D1"]:
    """What the networks are to predict."""
    return (target_of(rows) - ensemble.target_mean) / ensemble.target_std


def in_units(ensemble: Ensemble, output: Output) -> Gaussian:
    """What a member predicts, in the units of rewards and observations."""
    return Gaussian(
        mean=output.mean * ensemble.target_std + ensemble.target_mean,
        variance=output.variance * jnp.square(ensemble.target_std),
    )


def predict(
    ensemble: Ensemble, obs: Float[Array, "B D"], action: Float[Array, "B A"]
) -> tuple[Gaussian, Float[Array, "K B"] | None]:
    """Every member's distribution of (reward, next_obs − obs), and its logit of the end of the episode."""
    x = standardise(ensemble, obs, action)
    outputs = member_outputs(ensemble.params, [x] * len(ensemble.params.members))
    predictions = [in_units(ensemble, output) for output in outputs]
    prediction = Gaussian(*(jnp.stack(parts) for parts in zip(*predictions, strict=True)))
    if outputs[0].termination is None:
        return prediction, None
    return prediction, jnp.stack([o.termination for o in outputs])


def predict_drawn(
    ensemble: Ensemble, obs: Float[Array, "B D"], action: Float[Array, "B A"], member: Int[Array, "B"]
) -> tuple[Gaussian, Float[Array, "B"] | None]:
    """`predict` of one member per row; on a CPU that is all that is evaluated.

    The rows are laid out member by member, each member's share filled up to whole chunks; a loop takes as many chunks
    as there are, so that the shapes stay fixed whatever was drawn.
    """
    if batched_members():
        prediction, logits = predict(ensemble, obs, action)
        return of_member(prediction, member), None if logits is None else pick(logits, member)
    members = ensemble.params.members
    x = standardise(ensemble, obs, action)
    is_member = member[:, None] == jnp.arange(len(members))
    nth = jnp.take_along_axis(jnp.cumsum(is_member, axis=0, dtype=jnp.int32), member[:, None], axis=1)[:, 0] - 1
    chunks = (jnp.sum(is_member, axis=0, dtype=jnp.int32) + CHUNK - 1) // CHUNK
    ends = jnp.cumsum(chunks)
    place = (ends - chunks)[member] * CHUNK + nth
    most = -(-x.shape[0] // CHUNK) + len(members)
    laid_out = jnp.zeros((most * CHUNK, x.shape[1])).at[place].set(x, unique_indices=True)
    networks = [partial(apply_mlp, m, activation=jax.nn.swish) for m in members]

    def add_chunk(i: Int[Array, ""], raw: Float[Array, "N O"]) -> Float[Array, "N O"]:
        rows = jax.lax.dynamic_slice_in_dim(laid_out, i * CHUNK, CHUNK)
        output = jax.lax.switch(jnp.sum(i >= ends), networks, rows)
        return jax.lax.dynamic_update_slice_in_dim(raw, output, i * CHUNK, axis=0)

    raw = jnp.zeros((most * CHUNK, members[0][-1].bias.shape[0]))
    output = _read(ensemble.params, jax.lax.fori_loop(0, ends[-1], add_chunk, raw)[place])
    return in_units(ensemble, output), output.termination
