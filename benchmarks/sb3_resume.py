"""stable-baselines3's SAC in a process of its own, to be killed and resumed: `python -m benchmarks.sb3_resume RUN HOW`.

HOW is "start" or a way of resuming: "documented"; "reseeded", the same with another seed after loading, without which
the run's first random numbers come again; "own code", with the callback below in place of the library's.
"""

import hashlib
import json
import os
import random
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

STEPS, EVERY, SEED = 1500, 250, 0
SETTINGS = {"learning_starts": 250, "buffer_size": STEPS, "policy_kwargs": {"net_arch": [64, 64]}}
PACKAGES = ("stable-baselines3", "torch", "numpy", "gymnasium")


class WholeState(BaseCallback):
    """A careful user's checkpoint: after the update, with everything random and the environment, renamed when whole."""

    def __init__(self, run: Path) -> None:
        super().__init__()
        self.run = run

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        step, model = self.model.num_timesteps, self.model
        new, path = self.run / f"new-{step}", self.run / f"whole-{step}"
        if step == 0 or step % EVERY or path.exists():
            return
        new.mkdir(exist_ok=True)
        model.save(new / "model.zip")
        model.save_replay_buffer(new / "buffer.pkl")
        rest = (model.get_env(), model.action_space.np_random, random_state())
        (new / "rest.pkl").write_bytes(cloudpickle.dumps(rest))
        os.rename(new, path)


def random_state() -> tuple[Any, ...]:
    """Of the three generators that every library shares."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002


def load_whole(run: Path, step: int) -> SAC:
    """The inverse of `WholeState`."""
    path = run / f"whole-{step}"
    env, space, (python, numpy, pytorch) = cloudpickle.loads((path / "rest.pkl").read_bytes())
    model = SAC.load(path / "model.zip", env=env, device="cpu", force_reset=False)
    model.load_replay_buffer(path / "buffer.pkl")
    model.action_space._np_random = space
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    torch.set_rng_state(pytorch)
    return model


def load_documented(run: Path, step: int) -> SAC:
    """As the documentation says."""
    model = SAC.load(run / f"rl_model_{step}_steps.zip", env=gym.make("Pendulum-v1"), device="cpu")
    model.load_replay_buffer(run / f"rl_model_replay_buffer_{step}_steps.pkl")
    return model


def load_newest(run: Path, how: str) -> tuple[SAC, list[str]]:
    """The newest checkpoint that loads, and what was wrong with newer ones."""
    load, name = (load_whole, "whole-{}") if how == "own code" else (load_documented, "rl_model_{}_steps.zip")
    refused = []
    for step in range(STEPS, 0, -EVERY):
        if (run / name.format(step)).exists():
            try:
                return load(run, step), refused
            except Exception as error:
                refused.append(f"{step}: {type(error).__name__}: {str(error).replace(str(run), 'RUN')}")
    raise SystemExit(f"no checkpoint of {run} loads: {refused}")


def flat(value: Any) -> bytes:
    """A nested value as bytes that are equal where it is."""
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}".encode() + value.tobytes()
    if isinstance(value, dict):
        value = sorted(value.items(), key=lambda item: str(item[0]))
    return b"".join(map(flat, value)) if isinstance(value, list | tuple) else repr(value).encode()


def parts(model: SAC) -> dict[str, str]:
    """SHA-256 of each part of the whole state; times on the clock are no part of it."""
    optimisers = (model.actor.optimizer, model.critic.optimizer, model.ent_coef_optimizer)
    buffer, env = model.replay_buffer, model.get_env().envs[0].unwrapped
    names = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts", "pos", "full")
    values = {
        "networks": (model.policy.state_dict(), model.log_ent_coef),
        "optimisers": [optimiser.state_dict() for optimiser in optimisers],
        "replay buffer": [getattr(buffer, name) for name in names],
        "counters": (model.num_timesteps, model._n_updates, model._episode_num),
        "episode returns": [(float(episode["r"]), episode["l"]) for episode in model.ep_info_buffer],
        "episode under way": (model._last_obs, env.state, env.np_random.bit_generator.state),
        "random state": random_state(),
    }
    return {name: hashlib.sha256(flat(value)).hexdigest() for name, value in values.items()}


def counts(model: SAC) -> dict[str, int]:
    """How far it is."""
    return {"steps": model.num_timesteps, "updates": model._n_updates, "rows": model.replay_buffer.size()}


def main(run: Path, how: str) -> None:
    """Train from the beginning or the newest checkpoint to the end; the last line says as JSON what it came to."""
    torch.set_num_threads(1)
    if how == "start":
        model, refused = SAC("MlpPolicy", "Pendulum-v1", seed=SEED, device="cpu", **SETTINGS), []
    else:
        model, refused = load_newest(run, how)
    found = counts(model)
    if how == "reseeded":
        model.set_random_seed(SEED + model.num_timesteps)
    documented = CheckpointCallback(EVERY, str(run), save_replay_buffer=True, save_vecnormalize=True)
    model.learn(STEPS - model.num_timesteps, callback=[documented, WholeState(run)], reset_num_timesteps=False)
    result = {"resumed": found, "refused": refused, "final": counts(model), "parts": parts(model)}
    score, _ = evaluate_policy(model, make_vec_env("Pendulum-v1", seed=10_000), n_eval_episodes=5)
    print(json.dumps({**result, "return": float(score), "versions": {name: version(name) for name in PACKAGES}}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
