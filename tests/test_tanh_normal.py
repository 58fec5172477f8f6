import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import check_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from m2ac.learners.tanh_normal import TanhNormal, from_output, log_prob_of_pre_tanh, sample


def scipy_log_prob(mean, std, x):
    """Change of variables with scipy's normal: log N(x) − log |d tanh/dx| at a pre-tanh value."""
    log_slope = np.log(4.0) - 2 * np.logaddexp(x, -x)
    return np.sum(stats.norm(mean, std).logpdf(x) - log_slope, axis=-1)


@pytest.mark.parametrize(("x64", "rtol"), [(False, 2e-5), (True, 1e-12)], ids=["float32", "float64"])
def test_log_probability_against_scipy(x64, rtol):
    rng = np.random.default_rng(0)
    mean, log_std, noise = rng.normal(size=(3, 200, 4)) * [[[2.0]], [[1.0]], [[1.0]]]
    with jax.enable_x64(x64):
        p = TanhNormal(jnp.array(mean), jnp.array(log_std))
        x = np.asarray(p.mean, np.float64) + np.exp(np.asarray(p.log_std, np.float64)) * noise
        expected = scipy_log_prob(mean, np.exp(log_std), x)
        _, log_prob = sample(p, jnp.array(noise))
        np.testing.assert_allclose(log_prob, expected, rtol=rtol, atol=rtol * 10)
        np.testing.assert_allclose(log_prob_of_pre_tanh(p, jnp.array(x)), expected, rtol=10 * rtol, atol=rtol * 100)


def test_the_density_over_actions_integrates_to_one():
    p = TanhNormal(jnp.array([0.4]), jnp.array([-0.3]))
    with jax.enable_x64(True):

        def density(a):
            return float(np.exp(log_prob_of_pre_tanh(p, jnp.array([np.arctanh(a)]))[()]))

        total, _ = integrate.quad(density, -1 + 1e-12, 1 - 1e-12, limit=200)
    np.testing.assert_allclose(total, 1.0, atol=1e-5)


@settings(max_examples=100, deadline=None)
@given(st.floats(-1e4, 1e4, width=32), st.floats(-30, 10, width=32), st.floats(-5, 5, width=32))
def test_log_probability_and_its_gradient_are_finite_at_any_saturation(mean, log_std, noise):
    def log_prob(output):
        return sample(from_output(output), jnp.array([noise]))[1]

    value, gradient = jax.value_and_grad(log_prob)(jnp.array([mean, log_std]))
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


def test_an_action_that_rounds_to_one_has_the_log_probability_of_its_pre_tanh_value():
    """At x = 20: log N(20; 20, 1) − 2 (log 2 − 20 − log(1 + e⁻⁴⁰)) = −0.918939 − 1.386294 + 40."""
    p = TanhNormal(jnp.array([20.0]), jnp.array([0.0]))
    action, log_prob = sample(p, jnp.array([0.0]))
    assert float(action[0]) == 1.0
    np.testing.assert_allclose(log_prob, 37.694767, rtol=1e-6)


def test_log_std_is_limited():
    p = from_output(jnp.array([0.0, 0.0, -100.0, 100.0]))
    np.testing.assert_array_equal(p.log_std, [-20.0, 2.0])


def test_gradient_of_sample_against_finite_differences():
    with jax.enable_x64(True):
        noise = jnp.array([[0.3, -1.2], [2.0, 0.1]])
        output = jnp.array([[0.5, -0.2, 0.1, -1.0], [3.0, -4.0, -2.0, 0.7]])
        check_gradient(lambda o: sample(from_output(o), noise), output)
