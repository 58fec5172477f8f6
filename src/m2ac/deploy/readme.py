"""What is written beside an exported policy for whoever is going to use it."""

from collections.abc import Mapping
from typing import Any

import jax

from m2ac.deploy.verify import FAR, OBSERVATIONS, TOLERANCE, Verdict
from m2ac.escaping import visible_line

_NUMPY = """\
## policy.npz and policy.py: NumPy

`pip install numpy`; nothing else is needed.

```python
from policy import Policy

policy = Policy("policy.npz")
action = policy(obs)  # one observation, or a batch of them
```
"""
_STABLEHLO = f"""\
## policy.stablehlo: StableHLO

`pip install jax`, of the version {jax.__version__} or newer; it runs on CPU, CUDA, ROCm and TPU. Observations come as
a batch of float32; each size of batch is compiled once.

```python
import jax
import numpy as np

policy = jax.jit(jax.export.deserialize(bytearray(open("policy.stablehlo", "rb").read())).call)
action = np.asarray(policy(np.asarray(obs, np.float32)[None]))[0]
```
"""
_ONNX = """\
## policy.onnx: ONNX

`pip install onnxruntime`, or another runtime with opset 17. The input `obs` is a batch of float32, the output `action`.

```python
import numpy as np
import onnxruntime

policy = onnxruntime.InferenceSession("policy.onnx")
action = policy.run(["action"], {"obs": np.asarray(obs, np.float32)[None]})[0][0]
```
"""


def readme(about: Mapping[str, Any], verdicts: Mapping[str, Verdict]) -> str:
    """The text of `README.md`."""
    how = {"numpy": _NUMPY, "stablehlo": _STABLEHLO, "onnx": _ONNX}
    bounds = "\n".join(
        f"| {i} | {low!r} | {high!r} |" for i, (low, high) in enumerate(zip(about["low"], about["high"], strict=True))
    )
    table = "\n".join(
        f"| {name} | {each.difference:.1e} | {each.at_extremes:.1e} | {each.median:.0f} µs "
        f"| {each.percentile_99:.0f} µs |"
        for name, each in verdicts.items()
    )
    return f"""\
# A policy for {_code(about["env"])}

{_origin(about)}

- **Observation**: {about["obs_dim"]} finite numbers, as the environment gives them, taken as float32. Whatever
  scaling the policy was trained with is in the files.
- **Action**: {about["action_dim"]} numbers of {about["action_dtype"]} in the environment's units and
  within its bounds: the mean action, without chance.

| action | low | high |
|---:|---:|---:|
{bounds}

{"".join(how[name] + chr(10) for name in verdicts)}\
## How it was checked

Before it was written, each file was compared with the agent on {OBSERVATIONS} observations, one by one and as a batch:
usual ones, and some with numbers of ±{FAR:g} in them. No action differs by more than {TOLERANCE:g} of its range and the
last digit of its dtype. All formats compute in float64, as the agent does, so the order of a sum does not matter.

| format | largest difference, of the range | at extremes | one observation, median | 99th percentile |
|---|---:|---:|---:|---:|
{table}
"""


def _origin(about: Mapping[str, Any]) -> str:
    step = "" if about.get("step") is None else f", as it was at step {about['step']}"
    run = f" of the run {_code(about['run'])}" if about.get("run") else ""
    told = f"Trained with {about['algo']}{step}{run}; exported by m2ac {about['m2ac']}."
    if about.get("mean_return") is None:
        return told
    score = f"{about['mean_return']:.1f}"
    which = "evaluation, the best of the run" if about.get("best") else "last evaluation"
    return f"{told}\nIts {which}, at step {about['evaluated_at']}, had a mean return of {score}."


def _code(text: str) -> str:
    """Text of a user, which must not end the code it stands in."""
    return f"`{visible_line(text).replace('`', chr(39))}`"
