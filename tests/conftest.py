"""Shapes and types of the functions on arrays are checked at run time in the tests."""

import os
import tempfile
from pathlib import Path

# Compiled programs are shared by the tests of one session and the processes they start.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"m2ac-tests-jax-{os.getuid()}"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

from jaxtyping import install_import_hook

PARTS_WITH_SHAPES = ["networks", "replay", "dynamics", "imagination", "learners", "algorithms"]
install_import_hook([f"m2ac.{part}" for part in PARTS_WITH_SHAPES], "beartype.beartype")
