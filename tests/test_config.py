"""Settings: what is refused and how it is said, names, JSON, and the values that a task fills in."""

import dataclasses
import json
import math
import typing
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m2ac.agent import AGENTS
from m2ac.config import (
    EXPANDING,
    MODELLED,
    AgentConfig,
    Algo,
    DDPGConfig,
    RunConfig,
    SACConfig,
    WorldConfig,
    check_used,
)
from m2ac.model_config import MaskConfig, ModelConfig, ReplayConfig, mask_rates
from m2ac.resolving import resolve
from m2ac.settings import ConfigError, from_dict, override, to_dict

# What cannot work: kind, field, value, and words of the remedy.
OUT_OF_RANGE: list[tuple[type[Any], str, Any, str]] = [
    (MaskConfig, "mask.rate", 0, "use 1 to keep everything"),
    (MaskConfig, "mask.rate", 1.5, "in (0, 1]"),
    (MaskConfig, "mask.rate", -0.5, "in (0, 1]"),
    (MaskConfig, "mask.rate", 1e-6, "keeps no row"),
    (MaskConfig, "mask.rate", math.nan, 'a finite number or "paper"'),
    (MaskConfig, "mask.rate", "papr", 'Perhaps you meant "paper"?'),
    (MaskConfig, "mask.stop", "hardstp", 'Perhaps you meant "hardstop"?'),
    (MaskConfig, "mask.uncertainty", "ovx", '"ovr" or "ova" or "nll"'),
    (MaskConfig, "mask.penalty", -0.1, "reward the model's doubt"),
    (MaskConfig, "mask.penalty", math.inf, "a finite number or none"),
    (MaskConfig, "mask.draw", "elite", 'Perhaps you meant "elites"?'),
    (MaskConfig, "mask.rest", "none", '"all" or "elites"'),
    (ModelConfig, "model.members", 0, "the paper has 7"),
    (ModelConfig, "model.elites", 0, "the paper has 5"),
    (ModelConfig, "model.elites", 8, "lower model.elites or raise model.members"),
    (ModelConfig, "model.hidden", 0, "most tasks use 200"),
    (ModelConfig, "model.layers", 0, "the paper has 4"),
    (ModelConfig, "model.learning_rate", 0, "0.001"),
    (ModelConfig, "model.learning_rate", math.inf, "a finite number"),
    (ModelConfig, "model.batch_size", 0, "256"),
    (ModelConfig, "model.weight_decay", (1e-5,) * 4, "give as many"),
    (ModelConfig, "model.weight_decay", (0.0, 0.0, -1e-5, 0.0, 0.0), "use 0 for none"),
    (ModelConfig, "model.weight_decay", (0, 0, 0, 0, math.nan), "finite"),
    (ModelConfig, "model.weight_decay", 1e-5, "a list"),
    (ModelConfig, "model.holdout_share", 0, "rows on both sides"),
    (ModelConfig, "model.holdout_share", 1, "rows on both sides"),
    (ModelConfig, "model.holdout_max", 0, "a row to judge by"),
    (ModelConfig, "model.stop_on", "mae", 'Perhaps you meant "mse"?'),
    (ModelConfig, "model.improvement", -0.1, "0 counts every fall"),
    (ModelConfig, "model.patience", -1, "0 stops at the first"),
    (ModelConfig, "model.max_epochs", 0, "leave it out"),
    (ModelConfig, "model.min_log_variance", 0.5, "lower it"),
    (ModelConfig, "model.max_log_variance", math.nan, "a finite number"),
    (ReplayConfig, "replay.real_share", 1.1, "MBPO has 0.05"),
    (ReplayConfig, "replay.real_share", -0.1, "MBPO has 0.05"),
    (ReplayConfig, "replay.real_share", "unoin", 'Perhaps you meant "union"?'),
    (ReplayConfig, "replay.capacity", 1, "leave it out"),
    (SACConfig, "sac.hidden", 0, "256"),
    (SACConfig, "sac.layers", 0, "2 is the usual one"),
    (SACConfig, "sac.learning_rate", -1e-3, "0.0003"),
    (SACConfig, "sac.discount", 1, "0.99"),
    (SACConfig, "sac.discount", -0.1, "0.99"),
    (SACConfig, "sac.target_rate", 0, "0.005"),
    (SACConfig, "sac.target_rate", 1.1, "0.005"),
    (SACConfig, "sac.batch_size", 0, "256"),
    (SACConfig, "sac.target_entropy", math.nan, "a finite number or none"),
    (SACConfig, "sac.temperature", 0, "1 is the usual start"),
    (AgentConfig, "algo", "m2ca", 'Perhaps you meant "m2ac"?'),
    (AgentConfig, "horizon", 0, "use --algo sac"),
    (AgentConfig, "horizon", 23_170, "at most 23169"),
    (AgentConfig, "horizon", "abc", "a whole number or none"),
    (AgentConfig, "horizon", 1.5, "a whole number or none"),
    (AgentConfig, "horizon", True, "a whole number or none"),
    (AgentConfig, "seed", -1, "[0, 2**32)"),
    (AgentConfig, "seed", 2**32, "[0, 2**32)"),
    (AgentConfig, "seed", None, "a whole number"),
    (AgentConfig, "rhythm", "epochs", 'Perhaps you meant "epoch"?'),
    (AgentConfig, "updates_per_step", 0, "leave it out"),
    (AgentConfig, "model_every", 0, "leave it out"),
    (AgentConfig, "rollouts_per_update", 0, "use --algo sac"),
    (AgentConfig, "retain", 0, "1 keeps the last phase"),
    (AgentConfig, "random_steps", -1, "0 is for runs that begin with logged experience"),
    (AgentConfig, "skips_allowed", -1, "0 stops at the first update that is not finite"),
    (AgentConfig, "step_timeout", 0, "leave it out for no limit"),
    (AgentConfig, "step_timeout", 1e-9, "[0.001, 86400] seconds"),
    (AgentConfig, "step_timeout", 1e9, "leave it out for no limit"),
    (AgentConfig, "step_timeout", math.nan, "a finite number or none"),
    (AgentConfig, "mask", {"rate": 1}, "a group of settings (MaskConfig)"),
    (RunConfig, "env", "", "see m2ac envs"),
    (RunConfig, "env", 3, "text"),
    (RunConfig, "steps", -5, "two are random"),
    (RunConfig, "steps", 2, "two are random"),
    (RunConfig, "eval_every", 0, "after the random steps and at the end"),
    (RunConfig, "eval_episodes", 0, "raise eval_every"),
    (RunConfig, "final_episodes", 0, "the run's score"),
    (RunConfig, "checkpoint_minutes", 0, "a large number"),
    (RunConfig, "checkpoint_minutes", math.inf, "a finite number"),
    (RunConfig, "tensorboard", 1, "true or false"),
    (RunConfig, "out", 7, "text or none"),
]


@pytest.mark.parametrize(("kind", "name", "value", "remedy"), OUT_OF_RANGE, ids=lambda x: str(x)[:40])
def test_a_value_that_cannot_work_is_refused_with_name_value_and_remedy(
    kind: type[Any], name: str, value: Any, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**{name.rpartition(".")[2]: value})
    message = str(caught.value)
    assert message.startswith((f"{name} must ", f"{name} needs "))
    shown = [repr(value), str(float(value))] if isinstance(value, int) else [repr(value)]
    exceptions = ["got 4", "got an empty string"]  # the number of values, and nothing
    assert any(f"got {text}" in message for text in shown) or any(text in message for text in exceptions)
    assert remedy in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AgentConfig(algo="sac", horizon=4), ("horizon", "algo=sac", "got 4", "leave it out")),
        (
            lambda: AgentConfig(algo="sac", mask=MaskConfig(rate=0.5, stop="hardstop")),
            ("mask settings", "algo=sac", "got rate=0.5, stop=hardstop", "leave them out"),
        ),
        (lambda: AgentConfig(algo="mbpo", mask=MaskConfig(rate=0.5)), ("mask.rate=0.5", "algo=mbpo", "--algo m2ac")),
        (lambda: AgentConfig(algo="mbpo", mask=MaskConfig(penalty=0.1)), ("mask.penalty=0.1", "--algo m2ac")),
        (lambda: AgentConfig(algo="mbpo", mask=MaskConfig(stop="hardstop")), ("mask.stop=hardstop", "--algo m2ac")),
        (
            lambda: AgentConfig(model=ModelConfig(members=1, elites=1)),
            ("model.members", "got 1", "no rest", "--algo mbpo"),
        ),
        (
            lambda: AgentConfig(model=ModelConfig(elites=1), mask=MaskConfig(rest="elites")),
            ("model.elites", "got 1", "no rest", "mask.rest=all"),
        ),
        (lambda: ModelConfig(members=4), ("model.elites", "(4)", "got 5", "lower model.elites")),
        (lambda: RunConfig(steps=100, random_steps=100), ("random_steps", "(100)", "got 100", "raise steps")),
    ],
)
def test_settings_that_contradict_each_other_are_refused_at_construction(make: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_one_member_is_enough_where_everything_is_kept() -> None:
    alone = ModelConfig(members=1, elites=1)
    AgentConfig(algo="mbpo", model=alone)
    AgentConfig(mask=MaskConfig(rate=1, penalty=0), model=alone)


def test_values_of_numpy_and_lists_become_plain_ones() -> None:
    config = AgentConfig(seed=np.int64(3), mask=MaskConfig(rate=np.float64(0.5), penalty=0))
    assert [type(config.seed), type(config.mask.rate), type(config.mask.penalty)] == [int, float, float]
    # A list cannot be hashed, and so not be compiled with.
    assert hash(ModelConfig(layers=1, weight_decay=[0, 1])) == hash(ModelConfig(layers=1, weight_decay=(0.0, 1.0)))  # type: ignore[arg-type]


# Names


def test_override_takes_dotted_and_nested_names_and_leaves_the_rest() -> None:
    config = override(RunConfig(seed=5), {"mask.rate": 0.25, "mask": {"stop": "hardstop"}, "horizon": 4})
    assert config == RunConfig(seed=5, horizon=4, mask=MaskConfig(rate=0.25, stop="hardstop"))
    assert override(config, {"mask": MaskConfig()}).mask == MaskConfig()
    assert override(config, {}) == config


def test_values_that_are_valid_only_together_can_be_set_one_by_one_in_any_order() -> None:
    values = {"model.members": 3, "model.elites": 2, "model.layers": 1, "model.weight_decay": [0, 0]}
    wanted = ModelConfig(members=3, elites=2, layers=1, weight_decay=(0, 0))
    for items in (list(values.items()), list(values.items())[::-1]):
        assert override(AgentConfig(), dict(items)).model == wanted


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"horzon": 3}, 'there is no setting "horzon". Perhaps you meant "horizon"?'),
        ({"mask.rat": 1}, 'there is no setting "mask.rat". Perhaps you meant "mask.rate"?'),
        ({"mask": {"rat": 1}}, 'there is no setting "mask.rat". Perhaps you meant "mask.rate"?'),
        ({"rate": 0.5}, 'there is no setting "rate". Perhaps you meant "mask.rate"?'),
        ({"target_rate": 1}, 'there is no setting "target_rate". Perhaps you meant "sac.target_rate"?'),
        (
            {"gamma": 0.9},
            'there is no setting "gamma". Perhaps you meant "sac.discount" or "ddpg.discount" or "ppo.discount"?',
        ),
        ({"learning_starts": 5}, 'there is no setting "learning_starts". Perhaps you meant "random_steps"?'),
        ({"sac": {"tau": 1}}, 'there is no setting "sac.tau". Perhaps you meant "sac.target_rate"?'),
        (
            {"eval_every": 5},
            '"eval_every" is a setting of a run, not of an agent; m2ac train --eval-every takes it, and so does Live '
            "where it has a meaning there",
        ),
        ({"zzz": 0.5}, 'there is no setting "zzz". m2ac train --help lists them all.'),
        ({"seed.x": 1}, 'there is no setting "seed.x": seed has no parts; set it itself'),
        ({"mask": 0.5}, "mask must be a group of settings (MaskConfig), got 0.5; leave it out for its default"),
        (
            {"model": ReplayConfig()},
            f"model must be a group of settings (ModelConfig), got {ReplayConfig()!r}; leave it out for its default",
        ),
    ],
)
def test_a_wrong_name_is_refused_and_the_right_one_suggested(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(AgentConfig(), values)
    assert str(caught.value) == message


# JSON


def leaves(kind: type[Any], prefix: str = "") -> list[str]:
    names = []
    for field in dataclasses.fields(kind):
        made = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        deeper = dataclasses.is_dataclass(made)
        names += leaves(type(made), f"{prefix}{field.name}.") if deeper else [f"{prefix}{field.name}"]
    return names


@pytest.mark.parametrize("name", leaves(RunConfig))
def test_a_wrong_type_in_json_is_refused_by_name(name: str) -> None:
    group, _, field = name.rpartition(".")
    values = {group: {field: {"a": []}}} if group else {field: {"a": []}}
    with pytest.raises(ConfigError, match=rf"^{name} must be .*got \{{'a': \[\]\}}"):
        from_dict(RunConfig, values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], 'the configuration must be a group of settings, got []; write it as {"algo": …} or leave it out'),
        ({"mask": 3}, 'mask must be a group of settings, got 3; write it as {"rule": …} or leave it out'),
        ({"mask.rate": 0.5}, 'there is no setting "mask.rate"; write it as {"mask": {"rate": …}}'),
        ({"stepz": 3}, 'there is no setting "stepz". Perhaps you meant "steps"?'),
        ({"sac": {"gama": 3}}, 'there is no setting "sac.gama". m2ac train --help lists them all.'),
        ({"seed": 1.0}, "seed must be a whole number, got 1.0; leave it out for its default"),
        (
            {"seed": 10**5000},
            "seed must be a whole number, got a number with too many digits to show; leave it out for its default",
        ),
    ],
)
def test_json_of_another_form_is_refused(values: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(RunConfig, values)
    assert str(caught.value) == message


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def run_configs(draw: st.DrawFn) -> RunConfig:
    number = st.integers(1, 10_000)
    small = st.floats(1e-9, 1e9)
    algo = draw(st.sampled_from(typing.get_args(Algo)))
    members = draw(st.integers(2, 9))
    layers = draw(st.integers(1, 4))
    mask = MaskConfig()
    if algo == "m2ac":
        mask = MaskConfig(
            rate=draw(st.just("paper") | st.floats(0.001, 1)),
            stop=draw(maybe(st.sampled_from(["nonstop", "hardstop"]))),
            uncertainty=draw(maybe(st.sampled_from(["ovr", "ova", "nll", "gjs"]))),
            penalty=draw(maybe(st.floats(0, 1))),
            draw=draw(st.sampled_from(["elites", "all"])),
        )
    return RunConfig(
        algo=algo,
        horizon=None if algo in ("sac", "ddpg", "ppo") else draw(maybe(st.integers(1, 20))),
        seed=draw(st.integers(0, 2**32 - 1)),
        rhythm="mbpo" if algo in (*EXPANDING, "ppo") else draw(st.sampled_from(["mbpo", "epoch"])),
        updates_per_step=None if algo == "ppo" else draw(maybe(number)),
        random_steps=None if algo == "ppo" else draw(maybe(st.integers(2, 500))),
        mask=mask,
        model=ModelConfig(
            members=members,
            elites=draw(st.integers(1, members)),
            hidden=draw(maybe(number)),
            layers=layers,
            weight_decay=tuple(draw(st.lists(st.floats(0, 1), min_size=layers + 1, max_size=layers + 1))),
            learning_rate=draw(small),
            max_epochs=draw(maybe(number)),
        ),
        replay=ReplayConfig(
            real_share=draw(st.just("union") | st.floats(0, 1)), capacity=draw(maybe(st.integers(2048, 10**6)))
        ),
        ddpg=DDPGConfig(critics=draw(maybe(st.integers(1, 9)))),
        world=WorldConfig(members=draw(maybe(st.integers(1, 9))), pretrain=draw(maybe(st.integers(0, 500)))),
        sac=SACConfig(target_entropy=draw(maybe(st.floats(-100, 100))), temperature=draw(small)),
        env=draw(st.text(min_size=1)),
        steps=draw(maybe(st.integers(2048, 10**7))),
        out=draw(maybe(st.text())),
        tensorboard=draw(st.booleans()),
    )


@given(run_configs())
def test_every_valid_configuration_comes_back_from_json(config: RunConfig) -> None:
    again = from_dict(RunConfig, json.loads(json.dumps(to_dict(config), allow_nan=False)))
    assert again == config
    assert hash(again) == hash(config)


@given(run_configs(), st.integers(2048, 10**7))
def test_resolving_leaves_nothing_open_keeps_what_was_set_and_is_done_once(config: RunConfig, steps: int) -> None:
    resolved = resolve(dataclasses.replace(config, steps=steps), {}, action_dim=3, steps=steps)
    before, after = to_dict(config), to_dict(resolved)
    open_ones = {name for name in leaves(RunConfig) if value_of(after, name) is None}
    assert open_ones <= {
        "checkpoint_every",
        "out",
        "step_timeout",
        "model.max_epochs",
        *(["horizon"] if config.algo in ("sac", "ppo", "ddpg") else []),
        *(["updates_per_step"] if config.algo == "ppo" else ["ppo.discount", "ppo.learning_rate"]),
        *([] if config.algo in MODELLED else ["mask.penalty", "mask.stop", "mask.uncertainty"]),
        *([] if config.algo in EXPANDING else ["ddpg.critics", "world.members", "world.pretrain"]),
    }
    changed = {name for name in leaves(RunConfig) if value_of(before, name) not in (None, value_of(after, name))}
    assert changed <= {"steps", *(["mask.rate"] if config.algo == "mbpo" else [])}
    assert resolve(resolved, {}, action_dim=3, steps=steps) == resolved


def value_of(values: Any, name: str) -> Any:
    for part in name.split("."):
        values = values[part]
    return values


# Resolving

TASK = {
    "steps": 3000,
    "random_steps": 500,
    "sac.target_entropy": -3.0,
    "model.hidden": 400,
    "eval_every": 500,
}


def test_a_tasks_values_fill_what_is_open() -> None:
    config = resolve(RunConfig(), TASK, action_dim=6, steps=3000)
    assert (config.random_steps, config.sac.target_entropy, config.model.hidden) == (500, -3.0, 400)
    assert (config.eval_every, config.horizon, config.updates_per_step, config.model_every) == (500, 1, 10, 250)
    assert (config.retain, config.replay.capacity, config.mask.penalty, config.steps) == (4, 3000, 0.001, 3000)


def test_what_the_user_set_stays() -> None:
    config = RunConfig(
        random_steps=60,
        offline_updates=30,
        scale_observations=True,
        eval_every=10,
        horizon=4,
        updates_per_step=3,
        model_every=50,
        retain=2,
        model=ModelConfig(hidden=16, scale_targets=False, min_log_variance=-9.0),
        sac=SACConfig(target_entropy=0.0),
        mask=MaskConfig(penalty=0.0, stop="hardstop", uncertainty="nll"),
        replay=ReplayConfig(capacity=900),
    )
    assert resolve(config, TASK, action_dim=6, steps=3000, logged=2) == dataclasses.replace(config, steps=3000)


def test_without_a_task_the_usual_values_fill_what_is_open() -> None:
    config = resolve(AgentConfig(), {}, action_dim=6, steps=2_000_000)
    assert (config.horizon, config.updates_per_step, config.model_every, config.retain) == (1, 10, 250, 4)
    assert (config.random_steps, config.model.hidden, config.sac.target_entropy) == (5000, 200, -6.0)
    assert (config.replay.capacity, config.mask.rate, config.mask.penalty) == (1_000_000, "paper", 0.001)
    epoch = resolve(AgentConfig(rhythm="epoch"), {}, action_dim=6, steps=10_000)
    assert (epoch.model_every, epoch.retain) == (1000, 1)


def test_mbpo_keeps_everything_unpenalised_and_sac_has_no_model() -> None:
    mbpo = resolve(AgentConfig(algo="mbpo", horizon=3), {}, action_dim=1, steps=10_000)
    assert (mbpo.mask.rate, mbpo.mask.penalty, mbpo.horizon, mbpo.updates_per_step) == (1.0, 0.0, 3, 10)
    sac = resolve(AgentConfig(algo="sac"), {"horizon": 5}, action_dim=1, steps=10_000)
    assert (sac.horizon, sac.updates_per_step, sac.mask) == (None, 1, MaskConfig())


def test_a_rule_brings_its_own_score_stop_and_penalty() -> None:
    def resolved(**mask: Any) -> MaskConfig:
        return resolve(AgentConfig(mask=MaskConfig(**mask)), {}, action_dim=1, steps=10_000).mask

    rank, threshold, everything = (resolved(rule=rule) for rule in ("rank", "threshold", "all"))
    assert (rank.uncertainty, rank.stop, rank.penalty, rank.rate) == ("ovr", "nonstop", 1e-3, "paper")
    assert (threshold.uncertainty, threshold.stop, threshold.penalty) == ("gjs", "hardstop", 0)
    assert (everything.uncertainty, everything.stop, everything.penalty, everything.rate) == ("ovr", "nonstop", 0, 1)
    asked = resolved(rule="threshold", uncertainty="ovr", stop="nonstop", penalty=0.5)
    assert (asked.uncertainty, asked.stop, asked.penalty) == ("ovr", "nonstop", 0.5)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ({"rule": "threshold", "rate": 0.5}, "mask.rate has no meaning for mask.rule=threshold, got 0.5"),
        ({"rule": "all", "rate": 0.5}, "mask.rate has no meaning for mask.rule=all, got 0.5"),
        ({"quantile": 1.0}, r"mask.quantile must be in \(0, 1\), got 1.0"),
        ({"factor": 0.0}, "mask.factor must be positive, got 0.0"),
        ({"factor": 3.0}, "mask.quantile and mask.factor have no meaning for mask.rule=rank, got 0.95 and 3.0"),
        ({"rule": "threshold", "uncertainty": "nll"}, "mask.uncertainty must not be nll with mask.rule=threshold"),
    ],
)
def test_rules_with_settings_of_others_are_refused(mask: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MaskConfig(**mask)


@pytest.mark.parametrize(
    ("algo", "settings", "message"),
    [
        ("steve", {"model": {"members": 9}}, r"model.members has no meaning for algo=steve, got 9; .* see world\.…"),
        ("sac", {"model": {"hidden": 512}}, "model.hidden has no meaning for algo=sac, got 512; leave it out$"),
        ("sac", {"retain": 2}, "retain has no meaning for algo=sac, got 2"),
        ("sac", {"replay": {"real_share": 0.5}}, "replay.real_share has no meaning for algo=sac, got 0.5"),
        ("ddpg", {"sac": {"discount": 0.9}}, r"sac.discount has no meaning for algo=ddpg, got 0.9; .* see ddpg\.…"),
        ("ppo", {"model_every": 7}, "model_every has no meaning for algo=ppo, got 7"),
        ("m2ac", {"world": {"hidden": 7}}, "world.hidden has no meaning for algo=m2ac, got 7"),
    ],
)
def test_settings_that_an_algorithm_does_not_read_are_refused(algo: Any, settings: Any, message: str) -> None:
    base = AgentConfig(algo=algo)
    asked = override(base, settings)
    with pytest.raises(ConfigError, match=message):
        check_used(asked, base)
    check_used(asked, asked)  # where nothing was asked for, as of a run that is resumed
    with pytest.raises(ConfigError, match=message):
        AGENTS[algo]("Pendulum-v1", **settings)


def test_the_nll_score_goes_unpenalised_unless_asked() -> None:
    nll = AgentConfig(mask=MaskConfig(uncertainty="nll"))
    assert resolve(nll, {}, action_dim=1, steps=10_000).mask.penalty == 0
    asked = override(nll, {"mask.penalty": 0.5})
    assert resolve(asked, {}, action_dim=1, steps=10_000).mask.penalty == 0.5


@pytest.mark.parametrize(("steps", "expected"), [(3, 2), (5, 2), (11, 3), (500, 100), (501, 500), (3000, 500)])
def test_a_run_shorter_than_the_tasks_exploration_explores_for_a_fifth(steps: int, expected: int) -> None:
    assert resolve(RunConfig(), TASK, action_dim=1, steps=steps).random_steps == expected


def test_a_buffer_that_cannot_hold_one_cycle_is_refused() -> None:
    config = AgentConfig(replay=ReplayConfig(capacity=100))
    with pytest.raises(ConfigError, match=r"^replay.capacity must be at least model_every \(250\), got 100; raise it"):
        resolve(config, {}, action_dim=1, steps=10_000)
    assert resolve(config, {}, action_dim=1, steps=100).replay.capacity == 100


@pytest.mark.parametrize("rest", ["all", "elites"])
def test_a_member_with_nobody_to_be_compared_with_still_gets_a_finite_score(rest: Any) -> None:
    model = ModelConfig(members=1, elites=1) if rest == "all" else ModelConfig(elites=1)
    config = AgentConfig(algo="mbpo", model=model, mask=MaskConfig(rest=rest))
    assert resolve(config, {}, action_dim=1, steps=10_000).mask.uncertainty == "ova"


# The share kept


def test_the_papers_schedule_is_exact() -> None:
    assert mask_rates("paper", 4) == (Fraction(4, 10), Fraction(3, 10), Fraction(2, 10), Fraction(1, 10))
    assert mask_rates("paper", 10) == tuple(Fraction(n, 22) for n in range(10, 0, -1))
    assert mask_rates("paper", 1) == (Fraction(1, 2),)


@given(st.integers(2, 1000))
def test_the_papers_schedule_keeps_a_quarter_on_average(horizon: int) -> None:
    assert sum(mask_rates("paper", horizon)) == Fraction(horizon, 4)


def test_a_constant_rate_is_the_decimal_that_was_typed() -> None:
    assert mask_rates(0.29, 2) == (Fraction(29, 100), Fraction(29, 100))
    assert mask_rates(1, 1) == mask_rates(1.0, 1) == (Fraction(1),)
    assert mask_rates(1 / 3, 1) == (Fraction(1, 3),)
