"""The policy for NumPy: an .npz of plain arrays, and the module that acts with it."""

import inspect
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from m2ac.deploy import numpy_policy
from m2ac.deploy.network import Network


def policy_file(network: Network, about: Mapping[str, Any]) -> bytes:
    """`policy.npz`; the numbers of `about` go with it."""
    header = {
        "format": "m2ac policy",
        "schema": 1,
        "layers": len(network.layers),
        "hidden": network.hidden,
        "last": network.last,
        **about,
    }
    arrays: dict[str, Any] = {"about": np.array(json.dumps(header))}
    for i, (weight, bias) in enumerate(network.layers):
        arrays |= {f"{i}.weight": weight, f"{i}.bias": bias}
    arrays |= {"low": network.low, "high": network.high, "middle": network.middle, "half": network.half}
    if network.shift is not None:
        arrays |= {"shift": network.shift, "scale": network.scale}
    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **arrays)
    return data.getvalue()


def loader() -> str:
    """`policy.py`."""
    return inspect.getsource(numpy_policy)


def acting(data: bytes) -> Callable[[Any], Any]:
    """The policy that the file holds."""
    return numpy_policy.Policy(io.BytesIO(data))
