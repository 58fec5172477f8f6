"""Shapes and types of the functions on arrays are checked at run time in the tests."""

import os
import signal
from pathlib import Path

# Compiled programs are shared by the tests and the processes they start, in a place where nobody else can put any.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "m2ac" / "tests"),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
# Tests compile much and compute little; `as_users_run_it` is for those whose last digits are their subject.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

# How long an example takes says nothing on a machine that does other work as well.
hypothesis.settings.register_profile("m2ac", deadline=None)
hypothesis.settings.load_profile("m2ac")

# A shell that starts a job in the background, or nohup, lets it ignore these; tests of stopping must not depend on it.
for ignored, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, usual)

PARTS_WITH_SHAPES = ["networks", "replay", "dynamics", "imagination", "learners", "algorithms", "trust"]
install_import_hook([f"m2ac.{part}" for part in PARTS_WITH_SHAPES], "beartype.beartype")


@pytest.fixture(autouse=True, scope="module")
def room_for_programs():
    """Each compiled program takes some maps of memory, of which Linux allows a process 65 530; past that it crashes."""
    yield
    with open("/proc/self/maps") as maps:
        if sum(1 for _ in maps) > 20_000:
            jax.clear_caches()


@pytest.fixture(scope="module")
def as_users_run_it():
    """Programs of this process optimised as those of users are, for a whole file."""
    for disabled in (False, os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1"):
        jax.clear_caches()
        jax.config.update("jax_disable_most_optimizations", disabled)
        if not disabled:
            yield


@pytest.fixture
def compilations():
    """A list that grows by one with every program that is compiled or fetched from the cache."""
    seen: list[str] = []

    def listen(event: str, duration: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)
