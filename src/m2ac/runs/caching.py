"""Compiled programs, kept between processes."""

import hashlib
import os
import platform
from pathlib import Path


def prepare_jax() -> None:
    """Keep compiled programs between runs: the second start is faster by the time they took to compile.

    To be called before JAX is imported, which reads these settings once.
    """
    os.environ |= jax_settings()


def jax_settings() -> dict[str, str]:
    """Where and when compiled programs are kept, as variables of the environment; what the user has set stays."""
    # Programs are made for one kind of processor; a home directory may be shared by several.
    kind = hashlib.sha256(_processor().encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "m2ac" / "jax" / kind
    ours = {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2"}
    return {name: os.environ.get(name, value) for name, value in ours.items()}


def _processor() -> str:
    """What this processor can do, as far as it says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
