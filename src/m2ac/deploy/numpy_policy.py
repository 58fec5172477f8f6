"""A trained policy that needs nothing but NumPy: `action = Policy("policy.npz")(obs)`."""

import json
from typing import Any

import numpy as np


class Policy:
    """The mean action, in the environment's units, for one observation (n,) or for each row of a batch (B, n)."""

    def __init__(self, file: Any) -> None:
        """`file` is a path, or an open file."""
        with np.load(file, allow_pickle=False) as arrays:
            self.about = json.loads(str(arrays["about"]))
            if (self.about["format"], self.about["schema"]) != ("m2ac policy", 1):
                raise ValueError(f"{file} is not a policy that this file reads; use the policy.py written beside it")
            names = [(f"{i}.weight", f"{i}.bias") for i in range(self.about["layers"])]
            self.layers = [(arrays[w].astype(np.float64), arrays[b].astype(np.float64)) for w, b in names]
            self.low, self.high, self.middle, self.half = (arrays[n] for n in ("low", "high", "middle", "half"))
            self.scaling = (arrays["shift"], arrays["scale"]) if "shift" in arrays else None
        self.obs_dim = len(self.layers[0][0])
        weight, bias = self.layers[-1]  # may give more than the mean action, which comes first
        self.layers[-1] = np.ascontiguousarray(weight[:, : len(self.low)]), bias[: len(self.low)]
        ends = [(self.middle + side * self.half).astype(self.low.dtype) for side in (-1, 1)]
        self.ends_round = not np.array_equal(ends, [self.low, self.high])

    def __call__(self, obs: Any) -> Any:
        """The action, of the environment's dtype and within its bounds."""
        x = np.asarray(obs, np.float32)
        if x.ndim not in (1, 2) or x.shape[-1] != self.obs_dim:
            raise ValueError(f"an observation has shape ({self.obs_dim},) or (B, {self.obs_dim}), got {x.shape}")
        if self.scaling is not None:
            x = ((x.astype(np.float64) - self.scaling[0]) * self.scaling[1]).astype(np.float32)
        for weight, bias in self.layers[:-1]:
            x = x @ weight + bias
            x = np.tanh(x) if self.about["hidden"] == "tanh" else np.maximum(x, 0.0)
        weight, bias = self.layers[-1]
        x = x @ weight + bias
        # What is beyond [-1, 1] ends on a bound below.
        unit = (np.tanh(x) if self.about["last"] == "tanh" else x).astype(np.float32)
        action = self.half * unit + self.middle
        if self.ends_round:
            np.copyto(action, self.high, where=unit >= 1)
            np.copyto(action, self.low, where=unit <= -1)
        return np.minimum(np.maximum(action, self.low), self.high).astype(self.low.dtype)
