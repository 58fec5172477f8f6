"""The formats by name, and an export in several of them: every one compared with the agent before it is handed out."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from m2ac.deploy import numpy_file, onnx_graph, stablehlo
from m2ac.deploy.network import Network
from m2ac.deploy.readme import readme
from m2ac.deploy.verify import OBSERVATIONS, Act, Verdict, observations_around, verify
from m2ac.settings import ConfigError, perhaps

FILES: Mapping[str, tuple[str, ...]] = {
    "numpy": ("policy.npz", "policy.py"),
    "stablehlo": ("policy.stablehlo",),
    "onnx": ("policy.onnx",),
}
"""What each format leaves; the first file is the policy."""

README, RECORD = "README.md", "export.json"
FORMAT, SCHEMA = "m2ac export", 1


class Export(NamedTuple):
    """The files of an export by name, and how each format compares with the agent."""

    files: dict[str, bytes]
    verdicts: dict[str, Verdict]


def check_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """The formats, each once; refused where one is unknown or needs what is not installed."""
    chosen = tuple(dict.fromkeys([formats] if isinstance(formats, str) else formats))
    for name in chosen:
        if name not in FILES:
            raise ConfigError(f'there is no format "{name}".{perhaps(name, FILES)} They are {", ".join(FILES)}.')
    if not chosen:
        raise ConfigError(f"formats must name at least one of {', '.join(FILES)}; numpy needs nothing but NumPy")
    if "onnx" in chosen:
        onnx_graph.check_installed()
    return chosen


def exported(
    network: Network, agent: Act, seen: NDArray[np.float32], about: Mapping[str, Any], formats: Iterable[str]
) -> Export:
    """The network in these formats; `seen` are observations of the environment, `about` says where it is from."""
    about = {**about, **_sizes(network)}
    obs = observations_around(seen)
    files: dict[str, bytes] = {}
    verdicts: dict[str, Verdict] = {}
    for name in check_formats(formats):
        data = _policy(name, network, about)
        verdicts[name] = verify(name, _acting(name, data), agent, network, obs)
        files[FILES[name][0]] = data
        if name == "numpy":
            files["policy.py"] = numpy_file.loader().encode()
    files[README] = readme(about, verdicts).encode()
    record = {
        "format": FORMAT,
        "schema": SCHEMA,
        **about,
        "compared_on": OBSERVATIONS,
        "verdicts": {name: verdict._asdict() for name, verdict in verdicts.items()},
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    files[RECORD] = (json.dumps(record, indent=2) + "\n").encode()
    return Export(files, verdicts)


def _policy(name: str, network: Network, about: Mapping[str, Any]) -> bytes:
    if name == "numpy":
        return numpy_file.policy_file(network, about)
    return onnx_graph.graph(network, about) if name == "onnx" else stablehlo.program(network)


def _acting(name: str, data: bytes) -> Act:
    return {"numpy": numpy_file, "stablehlo": stablehlo, "onnx": onnx_graph}[name].acting(data)


def _sizes(network: Network) -> dict[str, Any]:
    return {
        "obs_dim": network.obs_dim,
        "action_dim": network.action_dim,
        "low": network.low.tolist(),
        "high": network.high.tolist(),
        "action_dtype": network.low.dtype.name,
    }
