"""The policy as an ONNX graph; needs the extra `m2ac[onnx]`."""

import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from m2ac.deploy.network import Network
from m2ac.settings import UserError

OPSET, IR_VERSION = 17, 8
"""Of 2022: what runs ONNX on a device is often old."""


class MissingError(UserError):
    """An extra that is not installed; the message has the command that installs it."""


def check_installed() -> None:
    """Refuse where the extra is missing."""
    _module("onnx")
    _module("onnxruntime")


def graph(network: Network, about: Mapping[str, Any]) -> bytes:
    """A model with the input `obs`, float32 (B, n) for any B, and the output `action`."""
    onnx = _module("onnx")
    steps = _Steps(onnx)
    x = "obs"
    if network.shift is not None and network.scale is not None:
        x = steps.double(x)
        x = steps.add("Sub", x, steps.constant(network.shift))
        x = steps.add("Mul", x, steps.constant(network.scale))
        x = steps.add("Cast", x, to=onnx.TensorProto.FLOAT)
    x = steps.double(x)
    *hidden, last = network.mean_layers
    for layer in hidden:
        x = steps.add("Gemm", x, *(steps.double(steps.constant(array)) for array in layer))
        x = steps.add("Tanh" if network.hidden == "tanh" else "Relu", x)
    unit = steps.add("Gemm", x, *(steps.double(steps.constant(array)) for array in last))
    unit = steps.add("Tanh", unit) if network.last == "tanh" else unit
    unit = steps.add("Cast", unit, to=onnx.TensorProto.FLOAT)
    low, high = (steps.constant(bound.astype(np.float64)) for bound in (network.low, network.high))
    action = steps.add("Mul", steps.double(unit), steps.constant(network.half))
    action = steps.add("Add", action, steps.constant(network.middle))
    one = np.ones((), np.float32)
    action = steps.add("Where", steps.add("GreaterOrEqual", unit, steps.constant(one)), high, action)
    action = steps.add("Where", steps.add("LessOrEqual", unit, steps.constant(-one)), low, action)
    action = steps.add("Min", steps.add("Max", action, low), high)
    kind = onnx.helper.np_dtype_to_tensor_dtype(network.low.dtype)
    steps.add("Cast", action, to=kind, name="action")
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            steps.nodes,
            "policy",
            [onnx.helper.make_tensor_value_info("obs", onnx.TensorProto.FLOAT, ["B", network.obs_dim])],
            [onnx.helper.make_tensor_value_info("action", kind, ["B", network.action_dim])],
            steps.constants,
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="m2ac",
    )
    onnx.helper.set_model_props(model, {"m2ac": json.dumps(about)})
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


class _Steps:
    """The nodes of a graph so far, each with one result."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """One more; the name of its result."""
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def double(self, name: str) -> str:
        """The same in float64; of a constant a runtime makes it once, and the file has half the size."""
        return self.add("Cast", name, to=self._onnx.TensorProto.DOUBLE)

    def constant(self, array: Any) -> str:
        """The name of an array that every call uses."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name


def acting(data: bytes) -> Callable[[Any], Any]:
    """The policy that the graph is, run by ONNX Runtime in one thread, as suits a small network."""
    runtime = _module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def act(obs: Any) -> Any:
        rows = np.asarray(obs, np.float32)
        action = session.run(["action"], {"obs": rows[None] if rows.ndim == 1 else rows})[0]
        return action[0] if rows.ndim == 1 else action

    return act


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingError(f"the onnx format needs {name}, which is not installed: pip install 'm2ac[onnx]'") from None
