"""Line 5 of Algorithm 1: train the models on D_env with early stopping.

The whole fit, its early stopping included, is compiled once: the number of rows, batches and epochs is data. It can be
run in slices of a bounded number of batches, so that a caller can show progress or stop between them.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from m2ac.compiling import compile_for_ensemble
from m2ac.dynamics.ensemble import (
    Ensemble,
    EnsembleParams,
    Output,
    init_ensemble,
    member_outputs,
    standardise,
    standardise_target,
)
from m2ac.dynamics.split import Split, shuffled, split_rows, standardised
from m2ac.finite import all_finite
from m2ac.model_config import ModelConfig
from m2ac.replay import Real, take_real
from m2ac.types import Key, Transition

BOUND_WEIGHT = 0.01
EVALUATION_BLOCK = 500
MAX_INT32 = 2**31 - 1


class Dynamics(NamedTuple):
    """The ensemble and its optimiser, warm from fit to fit."""

    ensemble: Ensemble
    optimiser: optax.OptState


class Examples(NamedTuple):
    """Rows as the networks learn from them."""

    inputs: Float[Array, "B I"]
    target: Float[Array, "B D1"]
    terminated: Bool[Array, "B"]


class Fit(NamedTuple):
    """A fit under way."""

    ensemble: Ensemble
    optimiser: optax.OptState
    split: Split
    key: Key
    shuffle: Int[Array, "N"]  # this epoch's order of the bootstrap
    batch: Int[Array, ""]  # batches done in this epoch
    epoch: Int[Array, ""]  # epochs done
    stale: Int[Array, ""]  # epochs since a member improved
    done: Bool[Array, ""]
    best: tuple  # type: ignore[type-arg]  # each member's parameters at its best
    best_loss: Float[Array, "K"]
    loss: Float[Array, ""]  # sum of this epoch's training losses
    trained: Int[Array, ""]  # batches that are in the sum
    skipped: Int[Array, ""]  # batches of the whole fit that were left out: something in them was not finite
    last_loss: Float[Array, ""]  # mean training loss of the last whole epoch


class FitReport(NamedTuple):
    """How a fit went."""

    epochs: Int[Array, ""]
    batches: Int[Array, ""]
    train_loss: Float[Array, ""]
    holdout_nll: Float[Array, "K"]
    holdout_mse: Float[Array, "K"]
    skipped: Int[Array, ""]  # of the batches


def init_dynamics(
    config: ModelConfig, obs_dim: int, action_dim: int, *, learns_termination: bool, key: Key
) -> Dynamics:
    """Untrained members and a fresh Adam."""
    ensemble = init_ensemble(config, obs_dim, action_dim, learns_termination=learns_termination, key=key)
    return Dynamics(ensemble, optax.adam(config.learning_rate).init(ensemble.params))


def examples_of(ensemble: Ensemble, rows: Transition) -> Examples:
    """Inputs and targets by the ensemble's standardisation."""
    return Examples(standardise(ensemble, rows.obs, rows.action), standardise_target(ensemble, rows), rows.terminated)


def _row_losses(output: Output, rows: Examples) -> tuple[Float[Array, "B"], Float[Array, "B"], Float[Array, "B"]]:
    """A member's Gaussian loss, squared error and termination cross-entropy, row by row."""
    squared = jnp.square(output.mean - rows.target)
    # Without the constant and the factor 1/2 of the density, as the reference code: they shift and scale only.
    nll = jnp.mean(squared * jnp.exp(-output.log_variance) + output.log_variance, axis=-1)
    if output.termination is None:
        return nll, jnp.mean(squared, axis=-1), jnp.zeros_like(nll)
    end = optax.sigmoid_binary_cross_entropy(output.termination, rows.terminated.astype(nll.dtype))
    return nll, jnp.mean(squared, axis=-1), end


def ensemble_loss(
    params: EnsembleParams,
    rows: tuple[Examples, ...],
    weight: Float[Array, "B"],
    weight_decay: tuple[float, ...],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The members' losses, weight decay on weights only, and the pull on the log-variance bounds, summed.

    Also the members' losses alone: a step of training asks for the gradient of the one and the value of the other, and
    nothing then spends time on the sum of all squared weights.
    """
    fitted = jnp.float32(0)
    pull = jnp.sum(params.max_log_variance - params.min_log_variance) * BOUND_WEIGHT
    outputs = member_outputs(params, [own.inputs for own in rows])
    for member, output, own in zip(params.members, outputs, rows, strict=True):
        nll, _, end = _row_losses(output, own)
        fitted += jnp.sum(weight * (nll + end)) / jnp.sum(weight)
        for layer, decay in zip(member, weight_decay, strict=True):
            pull += decay * 0.5 * jnp.sum(jnp.square(layer.weight))
    return fitted + pull, fitted


def holdout_losses(ensemble: Ensemble, real: Real, split: Split) -> tuple[Float[Array, "K"], Float[Array, "K"]]:
    """Each member's mean NLL (with the termination's cross-entropy) and squared error on the held-out rows."""
    members = len(ensemble.params.members)
    last = split.order.shape[0] - 1

    def add_block(i: Int[Array, ""], sums: Float[Array, "2 K"]) -> Float[Array, "2 K"]:
        position = i * EVALUATION_BLOCK + jnp.arange(EVALUATION_BLOCK)
        rows = examples_of(ensemble, take_real(real, split.order[jnp.minimum(position, last)]))
        counts = position < split.holdout
        losses = [_row_losses(output, rows) for output in member_outputs(ensemble.params, [rows.inputs] * members)]
        block = jnp.stack(
            [
                jnp.stack([jnp.sum(jnp.where(counts, nll + end, 0.0)) for nll, _, end in losses]),
                jnp.stack([jnp.sum(jnp.where(counts, mse, 0.0)) for _, mse, _ in losses]),
            ]
        )
        return sums + block

    blocks = (split.holdout + EVALUATION_BLOCK - 1) // EVALUATION_BLOCK
    sums = jax.lax.fori_loop(0, blocks, add_block, jnp.zeros((2, members)))
    return sums[0] / split.holdout, sums[1] / split.holdout


@partial(jax.jit, static_argnames="config")
def start_fit(dynamics: Dynamics, real: Real, config: ModelConfig, *, key: Key) -> Fit:
    """Split the rows, draw the bootstraps, standardise."""
    key_split, key_fit = jax.random.split(key)
    split = split_rows(real, config, key=key_split)
    ensemble = standardised(dynamics.ensemble, real, split, targets=config.scale_targets is True)
    zero = jnp.int32(0)
    return Fit(
        ensemble=ensemble,
        optimiser=dynamics.optimiser,
        split=split,
        key=key_fit,
        shuffle=shuffled(split.order.shape[0], split.train, key=jax.random.fold_in(key_fit, 0)),
        batch=zero,
        epoch=zero,
        stale=zero,
        done=jnp.array(False),
        best=ensemble.params.members,
        best_loss=jnp.full(config.members, jnp.inf, dtype=float),
        loss=jnp.float32(0),
        trained=zero,
        skipped=zero,
        last_loss=jnp.float32(jnp.nan),
    )


def _train_batch(fit: Fit, real: Real, config: ModelConfig) -> Fit:
    """One step of Adam on a batch of every member's own bootstrap; the last batch of an epoch may be part full."""
    split = fit.split
    position = fit.batch * config.batch_size + jnp.arange(config.batch_size)
    weight = (position < split.train).astype(jnp.float32)
    drawn = fit.shuffle[jnp.minimum(position, split.train - 1)]
    drawn_rows = (split.order[split.holdout + split.bootstrap[k, drawn]] for k in range(config.members))
    rows = tuple(examples_of(fit.ensemble, take_real(real, own)) for own in drawn_rows)
    params = fit.ensemble.params
    gradient, loss = jax.grad(ensemble_loss, has_aux=True)(params, rows, weight, config.weight_decay)
    updates, optimiser = optax.adam(config.learning_rate).update(gradient, fit.optimiser)
    return fit._replace(
        ensemble=fit.ensemble._replace(params=optax.apply_updates(params, updates)),
        optimiser=optimiser,
        batch=fit.batch + 1,
        loss=fit.loss + loss,
        trained=fit.trained + 1,
    )


def _train_batch_guarded(fit: Fit, real: Real, config: ModelConfig) -> Fit:
    """`_train_batch`, left out where a number is not finite after it."""
    after = _learned(_train_batch(fit, real, config))
    whole = all_finite(after)
    params, optimiser, loss = jax.tree.map(partial(jnp.where, whole), after, _learned(fit))
    return fit._replace(
        ensemble=fit.ensemble._replace(params=params),
        optimiser=optimiser,
        batch=fit.batch + 1,
        loss=loss,
        trained=fit.trained + whole,
        skipped=fit.skipped + ~whole,
    )


def _learned(fit: Fit) -> tuple[EnsembleParams, optax.OptState, Float[Array, ""]]:
    """What a batch changes."""
    return fit.ensemble.params, fit.optimiser, fit.loss


@jax.jit
def fit_is_finite(fit: Fit) -> Bool[Array, ""]:
    """Whether no batch so far left anything behind that is not finite."""
    return all_finite(_learned(fit)) & ((fit.epoch == 0) | jnp.isfinite(fit.last_loss))


@jax.jit
def faulty_dynamics(dynamics: Dynamics) -> Bool[Array, "members_and_rest"]:
    """Which members hold a number that is not finite; then the same of the rest, and of the optimiser."""
    ensemble, optimiser = dynamics
    rest = ensemble._replace(params=ensemble.params._replace(members=()))
    return ~jnp.stack([all_finite(part) for part in (*ensemble.params.members, rest, optimiser)])


def batches_per_epoch(fit: Fit, config: ModelConfig) -> Int[Array, ""]:
    """The last one may be part full."""
    return (fit.split.train + config.batch_size - 1) // config.batch_size


def judged(fit: Fit, loss: Float[Array, "K"], config: ModelConfig) -> Fit:
    """Remember the members that improved on their best holdout loss, and decide whether to go on."""
    gain = fit.best_loss - loss
    first = ~jnp.isfinite(fit.best_loss)
    if config.improvement_of == "size":
        enough = gain > config.improvement * jnp.abs(fit.best_loss)
    else:  # MBPO's rule, made for a squared error: it accepts worse models once the loss is negative
        enough = gain / fit.best_loss > config.improvement
    improved = jnp.isfinite(loss) & (first | enough)
    best = tuple(
        jax.tree.map(partial(jnp.where, improved[k]), member, fit.best[k])
        for k, member in enumerate(fit.ensemble.params.members)
    )
    stale = jnp.where(jnp.any(improved), 0, fit.stale + 1)
    epoch = fit.epoch + 1
    limit = MAX_INT32 if config.max_epochs is None else config.max_epochs
    # With few rows an epoch is a batch or two, and five of them are too few steps to call a member stale.
    out_of_patience = (stale > config.patience) & (stale * batches_per_epoch(fit, config) >= config.patience_batches)
    return fit._replace(
        epoch=epoch,
        stale=stale,
        done=out_of_patience | (epoch >= limit),
        best=best,
        best_loss=jnp.where(improved, loss, fit.best_loss),
    )


def _end_epoch(fit: Fit, real: Real, config: ModelConfig) -> Fit:
    """Judge every member on the held-out rows and put the bootstrap into a new order."""
    nll, mse = holdout_losses(fit.ensemble, real, fit.split)
    fit = judged(fit, nll if config.stop_on == "nll" else mse, config)
    return fit._replace(
        shuffle=shuffled(fit.shuffle.shape[0], fit.split.train, key=jax.random.fold_in(fit.key, fit.epoch)),
        batch=jnp.int32(0),
        loss=jnp.float32(0),
        trained=jnp.int32(0),
        last_loss=fit.loss / fit.trained,
    )


@compile_for_ensemble(static_argnames="config")
def fit_slice(fit: Fit, real: Real, budget: Int[Array, ""], config: ModelConfig) -> Fit:
    """Go on with a fit for at most `budget` batches, or to its end."""
    return _slice(fit, real, budget, config, _train_batch)


@compile_for_ensemble(static_argnames="config")
def fit_slice_guarded(fit: Fit, real: Real, budget: Int[Array, ""], config: ModelConfig) -> Fit:
    """`fit_slice` that leaves out, and counts, every batch after which a number is not finite."""
    return _slice(fit, real, budget, config, _train_batch_guarded)


def _slice(
    fit: Fit, real: Real, budget: Int[Array, ""], config: ModelConfig, train: Callable[[Fit, Real, ModelConfig], Fit]
) -> Fit:
    per_epoch = batches_per_epoch(fit, config)

    def go_on(carry: tuple[Fit, Int[Array, ""]]) -> tuple[Fit, Int[Array, ""]]:
        fit, left = carry
        batches = jnp.minimum(per_epoch - fit.batch, left)
        fit = jax.lax.fori_loop(0, batches, lambda _, f: train(f, real, config), fit)
        ended = fit.batch == per_epoch
        fit = jax.lax.cond(ended, lambda f: _end_epoch(f, real, config), lambda f: f, fit)
        return fit, left - batches

    fit, _ = jax.lax.while_loop(lambda carry: ~carry[0].done & (carry[1] > 0), go_on, (fit, budget))
    return fit


def best_members(loss: Float[Array, "K"], count: int) -> Int[Array, "E"]:
    """The `count` members of the lowest loss; where fewer have a finite one, these again and again."""
    finite = jnp.isfinite(loss)
    ranking = jnp.argsort(jnp.where(finite, loss, jnp.inf))
    return ranking[jnp.arange(count) % jnp.maximum(jnp.sum(finite), 1)].astype(jnp.int32)


@compile_for_ensemble(static_argnames="config")
def finish_fit(fit: Fit, real: Real, config: ModelConfig) -> tuple[Dynamics, FitReport]:
    """Every member back at its best, the elites chosen among those whose holdout loss is finite."""
    ensemble = fit.ensemble._replace(params=fit.ensemble.params._replace(members=fit.best))
    nll, mse = holdout_losses(ensemble, real, fit.split)
    elites = best_members(nll if config.stop_on == "nll" else mse, config.elites)
    ensemble = ensemble._replace(elites=elites)
    report = FitReport(fit.epoch, fit.epoch * batches_per_epoch(fit, config), fit.last_loss, nll, mse, fit.skipped)
    return Dynamics(ensemble, fit.optimiser), report
