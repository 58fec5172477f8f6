"""A policy that leaves m2ac: in every format it acts as the agent does, or there is none."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_policies import a_policy, a_run, agent_of
from strange_envs import Plain
from tiny import tiny

from m2ac.agent import AGENTS, Agent
from m2ac.cli import main
from m2ac.deploy import numpy_file, onnx_graph, stablehlo, verify
from m2ac.deploy.formats import FILES, exported
from m2ac.deploy.network import Network, network_of
from m2ac.deploy.numpy_policy import Policy
from m2ac.deploy.verify import EXTREME, MismatchError, observations_around
from m2ac.envs import ActionScale
from m2ac.learners.acting import ActingPolicy, DeterministicPolicy, GaussianPolicy
from m2ac.scaling import Scaling
from m2ac.settings import ConfigError

pytestmark = pytest.mark.usefixtures("as_users_run_it")

ALL = tuple(FILES)
UNIT = ActionScale(-np.ones(2, np.float32), np.ones(2, np.float32))
ACTING = {"numpy": numpy_file.acting, "stablehlo": stablehlo.acting, "onnx": onnx_graph.acting}

each_kind = pytest.mark.parametrize("kind", [ActingPolicy, DeterministicPolicy, GaussianPolicy])
each_format = pytest.mark.parametrize("name", ALL)


def an_agent(algo: str, env: Any = "Pendulum-v1", **others: Any) -> Agent:
    return AGENTS[algo](env, **{**tiny(algo), **others})


def some_observations(obs_dim: int, count: int = 50) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, obs_dim)).astype(np.float32)


def made(name: str, network: Network) -> Callable[[Any], Any]:
    programs = {
        "numpy": lambda: numpy_file.policy_file(network, {}),
        "stablehlo": lambda: stablehlo.program(network),
        "onnx": lambda: onnx_graph.graph(network, {}),
    }
    return ACTING[name](programs[name]())


# It acts as the agent does


@pytest.mark.parametrize("algo", list(AGENTS))
def test_every_algorithm_leaves_in_every_format_and_acts_as_the_agent(algo: str, tmp_path: Path) -> None:
    agent = an_agent(algo)
    if algo == "ppo":
        agent.learn(30)  # by then it standardises what it observes
    agent.export(tmp_path / "out", formats=ALL)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("README.md", "export.json", "policy.npz", "policy.py", "policy.stablehlo", "policy.onnx")
    }
    obs = some_observations(3)
    for name in ALL:
        act = ACTING[name]((tmp_path / "out" / FILES[name][0]).read_bytes())
        for given in (obs, obs[0], obs.astype(np.float64), obs[0].astype(np.float64)):
            expected, _ = agent.predict(given, deterministic=True)
            found = act(given)
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * 4)  # of the range from -2 to 2


@each_kind
def test_in_numpy_it_acts_bit_by_bit_as_the_agent(kind: type[ActingPolicy]) -> None:
    policy = a_policy(kind)
    act, agent = made("numpy", network_of(policy, UNIT)), agent_of(policy, UNIT)
    obs = observations_around(some_observations(5))
    np.testing.assert_array_equal(act(obs), agent(obs))
    for row in obs:
        np.testing.assert_array_equal(act(row), agent(row))


AWKWARD = {
    "far from zero": ([1e6, -3.0], [1e6 + 1, 0.1], np.float64),
    "far from zero in float32": ([1000.0, -1.0], [1000.5, 1.0], np.float32),
    "lopsided": ([-1e30, 0.0], [1.0, 1e-3], np.float32),
    "rounded": ([-0.1, 0.1], [0.7, 0.3], np.float32),
    "half": ([-1.0, 0.0], [3.0, 0.3], np.float16),
}


@each_format
@each_kind
@pytest.mark.parametrize("bounds", AWKWARD)
def test_awkward_bounds_are_kept_and_reached_exactly(name: str, kind: type[ActingPolicy], bounds: str) -> None:
    low, high, dtype = AWKWARD[bounds]
    scale = ActionScale(np.array(low, dtype), np.array(high, dtype))
    policy = a_policy(kind)
    act, agent = made(name, network_of(policy, scale)), agent_of(policy, scale)
    obs = some_observations(5) * np.float32(100)
    found, expected = act(obs), agent(obs)
    assert found.dtype == dtype
    assert ((found >= scale.low) & (found <= scale.high)).all()
    ends = (policy(obs) == 1) | (policy(obs) == -1)
    assert ends.any()
    np.testing.assert_array_equal(found[ends], expected[ends])
    usual = some_observations(5)
    network = network_of(policy, scale)
    found = verify.verify(name, act, agent, network, observations_around(usual))
    one_rounding = np.spacing(np.maximum(abs(scale.low), abs(scale.high))) / (2 * network.half)
    assert found.difference <= 1e-6 + one_rounding.max()


@each_format
def test_scaled_observations_are_scaled_within(name: str) -> None:
    scaling = Scaling(np.array([3e5, 0, 0, 0, 0.0]), np.array([1e-2, 1, 1, 1, 1e4]), np.bool_(True))
    policy = a_policy(scaling=scaling)
    obs = some_observations(5) * np.array([100, 1, 1, 1, 1e-4], "f") + np.array([3e5, 0, 0, 0, 0], "f")
    act = made(name, network_of(policy, UNIT))
    np.testing.assert_allclose(act(obs), agent_of(policy, UNIT)(obs), rtol=0, atol=1e-7)
    without = network_of(policy, UNIT)._replace(shift=None, scale=None)
    assert np.abs(made(name, without)(obs) - act(obs)).max() > 0.1


def test_an_environment_that_cannot_be_copied_is_given_a_second_time(tmp_path: Path) -> None:
    agent = an_agent("sac", Plain())
    with pytest.raises(ConfigError, match="eval_env"):
        agent.export(tmp_path / "out")
    agent.export(tmp_path / "out", eval_env=Plain())
    obs = some_observations(2)
    found = Policy(tmp_path / "out" / "policy.npz")(obs)
    np.testing.assert_array_equal(found, agent.predict(obs, deterministic=True)[0])


# Without m2ac

ONLY_NUMPY = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"numpy", "policy", *sys.stdlib_module_names}:
            raise ImportError(name + " is refused")
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, ".")
"""


def outside(folder: Path, code: str, **arrays: Any) -> np.ndarray:
    """What a process of its own, in that folder, leaves in `action`."""
    given = "".join(f"{name} = np.array({array.tolist()})\n" for name, array in arrays.items())
    text = f"{code.partition('#setup')[0]}import json, numpy as np\n{given}{code.partition('#setup')[2]}"
    command = [sys.executable, "-I", "-c", f"{text}\nprint(json.dumps(np.asarray(action).tolist()))"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout))


def snippets(folder: Path) -> dict[str, str]:
    """The code of the README by format."""
    found = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return dict(zip(ALL, found, strict=True))


def test_the_code_in_the_readme_acts_and_that_of_numpy_where_nothing_else_can_be_imported(tmp_path: Path) -> None:
    agent = an_agent("m2ac")
    out = tmp_path / "out"
    agent.export(out, formats=ALL)
    obs = some_observations(3)[0]
    expected, _ = agent.predict(obs, deterministic=True)
    code = snippets(out)
    assert max(len(text.strip().splitlines()) for text in code.values()) <= 5
    np.testing.assert_array_equal(outside(out, f"{ONLY_NUMPY}#setup{code['numpy']}", obs=obs), expected)
    for name in ("stablehlo", "onnx"):
        np.testing.assert_allclose(outside(out, f"#setup{code[name]}", obs=obs), expected, rtol=0, atol=4e-6)


def test_the_loader_refuses_other_shapes_and_other_files() -> None:
    network = network_of(a_policy(), UNIT)
    act = made("numpy", network)
    for shape in ((4,), (2, 4), (2, 2, 5), ()):
        with pytest.raises(ValueError, match=r"shape \(5,\) or \(B, 5\), got"):
            act(np.zeros(shape))
    other = io.BytesIO(numpy_file.policy_file(network, {"schema": 2}))
    with pytest.raises(ValueError, match=r"use the policy.py written beside it"):
        Policy(other)


def test_the_readme_and_the_record_say_what_it_is_and_where_it_is_from(tmp_path: Path) -> None:
    assert main(["export", str(a_run(tmp_path / "run"))]) == 0
    out = tmp_path / "run" / "export"
    text = (out / "README.md").read_text(encoding="utf-8")
    for words in ("`Pendulum-v1`", "step 70", "run `run`", "-123.4", "3 finite numbers", "1 numbers of float32"):
        assert words in text
    assert "| 0 | -2.0 | 2.0 |" in text
    record = json.loads((out / "export.json").read_bytes())
    assert (record["env"], record["step"], record["mean_return"]) == ("Pendulum-v1", 70, -123.4)
    assert Policy(out / "policy.npz").about["high"] == [2.0]


# How it is compared


def test_the_observations_are_seen_ones_disturbed_ones_and_extreme_ones() -> None:
    seen = some_observations(5)
    obs = observations_around(seen)
    assert (obs.shape, obs.dtype) == ((1000, 5), np.float32)
    assert {row.tobytes() for row in obs[:400]} <= {row.tobytes() for row in seen}
    assert not {row.tobytes() for row in obs[400:]} & {row.tobytes() for row in seen}
    assert np.abs(obs[:EXTREME]).max() < 10
    far = np.abs(obs[EXTREME:]) == 1000
    assert 0.3 < far.mean() < 0.7
    assert far.any(axis=1).all()
    assert far.all(axis=1).any()


@each_format
@each_kind
def test_at_extremes_too_what_differs_is_the_last_digit_alone(name: str, kind: type[ActingPolicy]) -> None:
    policy = a_policy(kind, hidden=256)
    network = network_of(policy, UNIT)
    obs = observations_around(some_observations(5))
    found = verify.verify(name, made(name, network), agent_of(policy, UNIT), network, obs)
    assert max(found.difference, found.at_extremes) <= np.spacing(np.float32(1)) / 2  # of a range of 2


@each_kind
def test_the_mean_action_is_that_of_exact_sums_alone_and_in_a_batch(kind: type[ActingPolicy]) -> None:
    policy = a_policy(kind, hidden=256)
    obs = observations_around(some_observations(5))
    x = obs.astype(np.longdouble)
    for i, (weight, bias) in enumerate(policy.layers):
        x = (x if i == 0 else np.tanh(x) if kind is GaussianPolicy else np.maximum(x, 0)) @ weight + bias
    mean = x[:, :2]
    expected = (np.clip(mean, -1, 1) if kind is GaussianPolicy else np.tanh(mean)).astype(np.float32)
    np.testing.assert_array_equal(policy(obs), expected)
    np.testing.assert_array_equal(np.stack([policy(row) for row in obs]), expected)


@each_format
def test_a_weight_that_is_a_thousandth_off_is_noticed(name: str) -> None:
    policy = a_policy()
    network = network_of(policy, UNIT)
    (weight, bias), *others = network.layers
    other = weight.copy()
    other[0, 0] *= 1.001
    obs = observations_around(some_observations(5))
    wrong = made(name, network._replace(layers=((other, bias), *others)))
    with pytest.raises(MismatchError, match=rf"^the {name} policy differs from the agent: action\[\d\] is "):
        verify.verify(name, wrong, agent_of(policy, UNIT), network, obs)


@pytest.mark.parametrize("spoil", [lambda a: a * np.nan, lambda a: a[..., :1], lambda a: a.astype(np.float64)])
def test_actions_that_are_no_numbers_or_of_another_kind_are_noticed(spoil: Callable[[Any], Any]) -> None:
    policy = a_policy()
    agent = agent_of(policy, UNIT)
    obs = observations_around(some_observations(5))
    with pytest.raises(MismatchError, match="nothing was written"):
        verify.verify("numpy", lambda given: spoil(agent(given)), agent, network_of(policy, UNIT), obs)


def test_an_export_has_the_same_bytes_each_time() -> None:
    policy = a_policy()
    network, agent = network_of(policy, UNIT), agent_of(policy, UNIT)
    about = {"env": "X", "algo": "sac", "m2ac": "0"}
    first, second = (exported(network, agent, some_observations(5), about, ALL).files for _ in range(2))
    for name in ("policy.npz", "policy.py", "policy.stablehlo", "policy.onnx"):
        assert first[name] == second[name]
