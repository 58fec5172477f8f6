"""mbrl-lib: MBPO in PyTorch, with its own ensemble, trainer, model environment, buffers and Soft Actor-Critic.

What its examples leave to the user is set to what is fastest: no logger, single precision, as many threads as are best
for each phase.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from mbrl.algorithms.mbpo import rollout_model_and_populate_sac_buffer
from mbrl.env.termination_fns import no_termination
from mbrl.models import GaussianMLP, ModelEnv, ModelTrainer, OneDTransitionRewardModel
from mbrl.planning.sac_wrapper import SACAgent
from mbrl.third_party.pytorch_sac_pranz24 import SAC
from mbrl.util import ReplayBuffer
from mbrl.util.common import (
    get_basic_buffer_iterators,
    step_env_and_add_to_buffer,
    train_model_and_save_model_and_data,
)
from omegaconf import OmegaConf

from benchmarks import sizes
from benchmarks.worker import Prepared, fastest, seconds_of, serve, thread_counts, timed


def _filled(rows: int) -> ReplayBuffer:
    stored, nothing = sizes.transitions(rows), np.zeros(rows, dtype=bool)
    buffer = ReplayBuffer(rows, (sizes.OBS,), (sizes.ACTIONS,), rng=np.random.default_rng(0))
    buffer.add_batch(stored.obs, stored.action, stored.next_obs, stored.reward, nothing, nothing)
    return buffer


class Library:
    """The parts of its MBPO, put together as `mbrl.algorithms.mbpo.train` does."""

    def __init__(self) -> None:
        self.real = _filled(sizes.ROWS)
        self.imagined = ReplayBuffer(sizes.RETAINED * sizes.ROLLOUTS, (sizes.OBS,), (sizes.ACTIONS,))
        ensemble = GaussianMLP(
            in_size=sizes.OBS + sizes.ACTIONS,
            out_size=sizes.OBS + 1,
            device="cpu",
            num_layers=sizes.LAYERS,
            ensemble_size=sizes.MEMBERS,
            hid_size=sizes.MODEL_WIDTH,
            propagation_method="random_model",
            activation_fn_cfg={"_target_": "torch.nn.SiLU"},
        )
        self.model = OneDTransitionRewardModel(ensemble, normalize=True, num_elites=sizes.ELITES)
        self.model.update_normalizer(self.real.get_all())
        self.model.set_elite(range(sizes.ELITES))  # a fit chooses others
        self.trainer = ModelTrainer(self.model, optim_lr=1e-3, weight_decay=1e-5)
        generator = torch.Generator(device="cpu")
        self.model_env = ModelEnv(sizes.Still(), self.model, no_termination, None, generator=generator)
        arguments = SimpleNamespace(
            gamma=0.99,
            tau=5e-3,
            alpha=0.2,
            policy="Gaussian",
            target_update_interval=1,
            automatic_entropy_tuning=True,
            target_entropy=-3.0,
            hidden_size=sizes.WIDTH,
            device="cpu",
            lr=3e-4,
        )
        self.agent = SACAgent(SAC(sizes.OBS, sizes.Still.action_space, arguments))
        self.updates = 0

    def learn(self, buffer: ReplayBuffer, updates: int) -> None:
        """Updates of the agent, each with a batch of its own."""
        for _ in range(updates):
            self.agent.sac_agent.update_parameters(buffer, sizes.BATCH, self.updates, None, reverse_mask=True)
            self.updates += 1

    def imagine(self, real: ReplayBuffer) -> None:
        """Its rollout phase: act, one member per row, store all."""
        rollout_model_and_populate_sac_buffer(self.model_env, real, self.agent, self.imagined, True, 1, sizes.ROLLOUTS)

    def predict_with_all(self, rows_at_a_time: int) -> None:
        """Act, then what every member says about every row; the library has no score, mask or storing for it."""
        starts = self.real.sample(sizes.ROLLOUTS).obs
        with torch.no_grad():
            for start in range(0, sizes.ROLLOUTS, rows_at_a_time):
                obs = starts[start : start + rows_at_a_time]
                action = self.agent.act(obs, sample=True, batched=True)
                self.model.forward(self.model._get_model_input(obs, action), use_propagation=False)


@cache
def _library() -> Library:
    return Library()


@cache
def _update_threads() -> int:
    def call(threads: int) -> None:
        torch.set_num_threads(threads)
        _library().learn(_library().real, sizes.UPDATES // 4)

    return fastest(thread_counts(), call)


@cache
def _fit_threads() -> int:
    return fastest(thread_counts(), _epoch)


@cache
def _rollout_threads() -> int:
    def call(threads: int) -> None:
        torch.set_num_threads(threads)
        _library().imagine(_library().real)

    return fastest(thread_counts(), call)


def _epoch(threads: int) -> None:
    torch.set_num_threads(threads)
    library = _library()
    train, _ = get_basic_buffer_iterators(library.real, sizes.MODEL_BATCH, sizes.HOLDOUT, sizes.MEMBERS)
    library.trainer.train(train, num_epochs=1, evaluate=False, silent=True)


def sac_update() -> Prepared:
    """`update_parameters`, as MBPO's loop calls it."""

    def call() -> None:
        torch.set_num_threads(_update_threads())
        _library().learn(_library().real, sizes.UPDATES)

    return Prepared(timed(call, units=sizes.UPDATES), f"{_update_threads()} threads")


def ensemble_step() -> Prepared:
    """One epoch of its trainer over its bootstrap iterator, whose last batch is part full."""
    batches = sizes.ROWS * (1 - sizes.HOLDOUT) / sizes.MODEL_BATCH
    return Prepared(timed(lambda: _epoch(_fit_threads()), units=batches), f"{_fit_threads()} threads")


def imagined_all() -> Prepared:
    """All members on every row, in one piece as the library does it."""
    return _imagined_by_all(sizes.ROLLOUTS)


def imagined_all_in_blocks() -> Prepared:
    """The same in blocks, which is our way and not the library's, but faster."""
    return _imagined_by_all(sizes.ROLLOUTS // 10)


def _imagined_by_all(rows: int) -> Prepared:
    def call(threads: int) -> None:
        torch.set_num_threads(threads)
        _library().predict_with_all(rows)

    threads = fastest(thread_counts(), call)
    return Prepared(timed(lambda: call(threads), units=sizes.ROLLOUTS), f"{threads} threads, {rows} rows at a time")


def imagined_one() -> Prepared:
    """Its MBPO's rollout phase."""

    def call() -> None:
        torch.set_num_threads(_rollout_threads())
        _library().imagine(_library().real)

    return Prepared(timed(call, units=sizes.ROLLOUTS), f"{_rollout_threads()} threads")


def acting() -> Prepared:
    """`act`, as its evaluation calls it."""
    obs = np.zeros(sizes.OBS, np.float32)

    def call(threads: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(sizes.ACTS):
            _library().agent.act(obs)

    threads = fastest(thread_counts(), call)
    return Prepared(timed(lambda: call(threads), units=sizes.ACTS), f"{threads} threads")


def cycle() -> Prepared:
    """Fit, imagine, then steps with updates after each: the body of `mbrl.algorithms.mbpo.train`."""
    library, real, env = _library(), _filled(sizes.CYCLE_ROWS), sizes.Still()
    fit = OmegaConf.create(
        {
            "model_batch_size": sizes.MODEL_BATCH,
            "validation_ratio": sizes.HOLDOUT,
            "num_epochs_train_model": sizes.EPOCHS,
            "patience": None,
        }
    )

    def call() -> None:
        torch.set_num_threads(_fit_threads())
        train_model_and_save_model_and_data(library.model, library.trainer, fit, real)
        torch.set_num_threads(_rollout_threads())
        library.imagine(real)
        torch.set_num_threads(_update_threads())
        obs, _ = env.reset()
        for _ in range(sizes.STEPS):
            obs, *_ = step_env_and_add_to_buffer(env, obs, library.agent, {}, real)
            library.learn(library.imagined, sizes.UPDATES_PER_STEP)

    return Prepared(lambda: seconds_of(call), "each part as above")


if __name__ == "__main__":
    serve(
        {
            "sac_update": sac_update,
            "ensemble_step": ensemble_step,
            "imagined_all": imagined_all,
            "imagined_all_in_blocks": imagined_all_in_blocks,
            "imagined_one": imagined_one,
            "cycle": cycle,
            "acting": acting,
        },
        packages=("mbrl", "torch", "numpy"),
    )
