"""The paper's bounds: quantities against other ways to compute them, statements where they are tight, mutants."""

import importlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import m2ac.theory
from m2ac.cli import main
from m2ac.theory import FALSE, TRUE, check, statements, tabular, toy, worlds
from m2ac.theory.check import tightness, violations
from m2ac.theory.statements import Pair

SOME = {name: make(np.random.default_rng(7), 20) for name, make in worlds.KINDS.items()}
ROOM = 1.02
"""The most that a statement loses in the worlds where it is tight: a constant that is off by a tenth is noticed."""


def test_the_counterexample_is_what_the_paper_should_have_said():
    example = worlds.counterexample()
    assert statements.theorem_1(example).gap == pytest.approx([18])
    assert statements.theorem_1(example).value == pytest.approx([18])
    assert statements.theorem_2(example).gap[0, 0] == pytest.approx([18])
    assert statements.theorem_2(example).value[0, 0] == pytest.approx([20])
    assert statements.theorem_2_of_the_appendix(example).value[0, 0] == pytest.approx([1])
    assert violations(statements.theorem_2_of_the_appendix(example)).all()


def test_true_statements_hold_and_false_ones_are_seen_to_fail():
    for row in check(400, seed=3):
        assert row.tried >= 400
        assert (row.violated == 0) == row.holds, row
    assert [row.statement for row in check(4)] == [*TRUE, *FALSE]


@pytest.mark.parametrize("name", TRUE)
def test_every_constant_of_a_statement_matters(name):
    bounds = [TRUE[name](pair) for pair in worlds.TIGHT[name]]
    assert all(not violations(bound).any() for bound in bounds)
    for term in range(len(bounds[0].terms)):
        assert any(violations(_scaled(bound, term, 0.9)).any() for bound in bounds), "a smaller constant is not noticed"
        loosest = max(tightness(_scaled(bound, term, 1.1)) for bound in bounds)
        assert loosest > ROOM, "a larger constant is not noticed"
    assert max(tightness(bound) for bound in bounds) <= ROOM


def _scaled(bound, term, factor):
    return bound._replace(terms=tuple(x * factor if i == term else x for i, x in enumerate(bound.terms)))


MUTANTS = {
    "half of the distance": ("tabular.py", "0.5 * np.abs"),
    "α of the theory": ("tabular.py", "2.0 * self.largest_reward"),
    "what a step by the model counts": ("tabular.py", "np.ones_like(world.reward)"),
    "the same in limited rollouts": ("tabular.py", "1.0 + discount"),
    "policies in Lemma 3": ("statements.py", "2.0 * world.largest_reward * policies"),
    "errors in Lemma 3": ("statements.py", "world.factor * (discounts"),
    "errors in Theorem 1": ("statements.py", "world.factor * world.discount * met"),
    "growth with the horizon": ("statements.py", "world.discount[:, None, None, None] * added"),
}


def noticed(theory) -> bool:
    """Whether any statement is violated or loose in a world where it is tight."""
    bounds = [theory.TRUE[name](pair) for name, tight in theory.worlds.TIGHT.items() for pair in tight]
    return any(violations(bound).any() or tightness(bound) > ROOM for bound in bounds)


@pytest.mark.parametrize("factor", ["0.9", "1.1"])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_constant_of_the_source_that_is_off_by_a_tenth_is_noticed(mutant, factor, tmp_path, monkeypatch):
    file, constant = MUTANTS[mutant]
    package = "mutant_theory"
    here = tmp_path / package
    shutil.copytree(Path(m2ac.theory.__file__).parent, here, ignore=shutil.ignore_patterns("__pycache__"))
    for module in here.glob("*.py"):
        text = module.read_text().replace("m2ac.theory", package)
        if module.name == file:
            assert text.count(constant) == 1
            text = text.replace(constant, f"{factor} * {constant}")
        module.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert noticed(importlib.import_module(package))
    finally:
        for name in [name for name in sys.modules if name.startswith(package)]:
            del sys.modules[name]


def test_nothing_is_noticed_in_the_source_as_it_is():
    assert not noticed(m2ac.theory)


NUMBERS = st.floats(0.0, 1.0, allow_subnormal=False)


def _distributions(draw, *shape):
    x = draw(arrays.arrays(np.float64, shape, elements=NUMBERS)) + 1e-6
    return x / x.sum(axis=-1, keepdims=True)


@st.composite
def pairs(draw):
    states, actions = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    reward = draw(arrays.arrays(np.float64, (states, actions), elements=st.floats(-3, 3, allow_subnormal=False)))
    return worlds.one(
        _distributions(draw, states, actions, states),
        _distributions(draw, states, actions, states),
        reward=reward,
        mask=draw(arrays.arrays(bool, (states, actions))),
        discount=draw(st.floats(0.0, 0.98)),
        policy=_distributions(draw, states, actions),
        other_policy=_distributions(draw, states, actions),
        start=_distributions(draw, states),
        other_start=_distributions(draw, states),
    )


@given(pairs())
def test_every_statement_holds_in_whatever_world(pair: Pair):
    for name, statement in TRUE.items():
        assert not violations(statement(pair)).any(), name


@pytest.mark.parametrize("kind", SOME)
def test_values_are_those_of_the_paths_written_out(kind):
    """Q̃_mask and Σ γᵗ w(t) once more, step by step along the distribution of where the rollouts are."""
    world = SOME[kind].real._replace(discount=np.full(20, 0.8))
    q, steps = tabular.q_values(world), 200
    for s, a in ((0, 0), (2, 1)):
        here = np.zeros_like(world.reward)
        here[:, s, a] = 1.0  # probability of being there by the model alone
        value, used = np.zeros(20), np.zeros(20)
        for t in range(steps):
            value += 0.8**t * (here * np.where(world.mask, world.reward, q)).sum(axis=(1, 2))
            inside = here * world.mask
            used += 0.8**t * inside.sum(axis=(1, 2))
            here = np.einsum("nsa,nsat->nt", inside, world.model)[..., None] * world.policy
        np.testing.assert_allclose(tabular.q_masked(world)[:, s, a], value, atol=1e-9)
        np.testing.assert_allclose(tabular.use(world)[:, s, a], used, atol=1e-9)


@pytest.mark.parametrize("kind", SOME)
def test_masks_between_nothing_and_everything(kind):
    world = SOME[kind].real
    nowhere, everywhere = (world._replace(mask=np.full_like(world.mask, fill)) for fill in (False, True))
    none = np.zeros(len(world.discount))
    for q in (tabular.q_masked, lambda w: tabular.q_m2ac(w, none), lambda w: tabular.masked_up_to(w, 3)[0]):
        np.testing.assert_allclose(q(nowhere), tabular.q_values(world), atol=1e-9)
    for q in (tabular.q_masked, lambda w: tabular.q_m2ac(w, none)):
        np.testing.assert_allclose(q(everywhere), tabular.q_model(world), atol=1e-9)
    np.testing.assert_allclose(tabular.use(everywhere)[:, 0, 0], 1 / (1 - world.discount))
    slow = world._replace(discount=np.minimum(world.discount, 0.9))
    for limited, unlimited in zip(
        tabular.masked_up_to(slow, 400), (tabular.q_masked(slow), tabular.use(slow)), strict=True
    ):
        np.testing.assert_allclose(limited, unlimited, atol=1e-9)


def test_returns_are_those_of_the_visits_summed():
    world = SOME["dense"].real._replace(discount=np.full(20, 0.7))
    seen = tabular.visits(world.p, world.policy, world.start, 200)
    summed = (0.7 ** np.arange(201)[:, None] * (seen * world.reward).sum(axis=(2, 3))).sum(axis=0)
    np.testing.assert_allclose(tabular.returns(world, tabular.q_values(world)), summed, atol=1e-9)


@pytest.mark.parametrize("kind", SOME)
def test_worlds_are_worlds(kind):
    pair = SOME[kind]
    for distributions in (*pair.real[:2], pair.real.policy, pair.real.start, pair.other_policy, pair.other_start):
        np.testing.assert_allclose(distributions.sum(axis=-1), 1.0)
        assert distributions.min() >= 0
    assert (np.abs(pair.real.reward) <= 1).all()
    assert 0 < pair.real.mask.mean() < 1


def test_masks_by_threshold_and_by_rate():
    errors = np.array([[[0.3, 0.1], [0.2, 0.1]]])
    assert worlds.threshold_mask(errors, np.array([0.2])).tolist() == [[[False, True], [True, True]]]
    assert worlds.rate_mask(errors, np.array([0.5])).tolist() == [[[False, True], [False, True]]]
    assert worlds.rate_mask(errors, np.array([0.25])).tolist() == [[[False, True], [False, False]]]
    assert worlds.rate_mask(errors, np.array([1.0])).all()
    assert not worlds.rate_mask(errors, np.array([0.2])).any()


def test_in_the_toy_the_mask_is_worth_having():
    alone, masked, everywhere = toy.learn(0.0), toy.learn(0.75), toy.learn(1.0)
    # Nine tenths of the steps succeed, so ten places take some time; then there is 1 for ever.
    walking = (0.9 * 0.95 / (1 - 0.1 * 0.95)) ** 10 / (1 - 0.95)
    assert (alone.real, masked.real) == pytest.approx((0.0, walking))
    # To the first ice, and one step later in the water for ever.
    falling = -((0.9 * 0.95 / (1 - 0.1 * 0.95)) ** 3) * 0.95 / (1 - 0.95)
    assert everywhere.real == pytest.approx(falling)
    assert everywhere.promised > masked.promised > 0
    assert masked.promised <= masked.real


def test_the_command_tells_and_draws(tmp_path, capsys):
    picture = tmp_path / "bounds.png"
    assert main(["theory", "--mdps", "200", "--picture", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "gap 18, Theorem 1 says 18, Theorem 2 20, the appendix 1" in said
    assert all(name in said for name in (*TRUE, *FALSE))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["theory", "--mdps", "4", "--picture", "None"]) == 0


@pytest.mark.parametrize("args", [["--mdps", "0"], ["--seed", "-1"], ["--picture", "/nowhere/at/all.png"]])
def test_the_command_refuses_in_one_line(args, capsys):
    assert main(["theory", "--mdps", "4", *args]) in (1, 2)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert ";" in said


def test_the_theory_needs_no_jax():
    import subprocess

    code = "import sys, m2ac.theory; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
