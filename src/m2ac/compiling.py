"""Compilation of whole phases for the machine at hand."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

import jax

R = TypeVar("R")

# Measured side by side (results/tuning.json): the compiler's default library fuses a product with what follows it,
# which costs more than it gains for long chains of wide layers. This value, one among its kinds of fusion, leaves the
# products alone without the warning that the option's own "none" prints.
CPU_OPTIONS: dict[str, str | bool] = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION",
    "xla_cpu_prefer_vector_width": "512",
}


@cache
def ensemble_options() -> dict[str, str | bool]:
    """What the compiler is told about programs that evaluate the ensemble; nothing where it does not know the words."""
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda x: x + 1, compiler_options=CPU_OPTIONS).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:  # another version of the compiler
        return {}
    return CPU_OPTIONS


def compile_for_ensemble(**how: Any) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """`jax.jit(function, **how)` with the options for the ensemble, decided at the first call."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @cache
        def program() -> Callable[..., R]:
            return jax.jit(function, compiler_options=ensemble_options(), **how)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> R:
            return program()(*args, **kwargs)

        return call

    return decorate
