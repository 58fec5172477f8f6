"""A policy for use without m2ac: export."""

import sys
from dataclasses import dataclass

from m2ac.cli.parsing import confirmed_env, parse
from m2ac.cli.training import OfPolicy
from m2ac.config import LIVE
from m2ac.escaping import visible
from m2ac.runs.caching import prepare_jax


@dataclass(frozen=True)
class Exporting(OfPolicy):
    """Write a trained run's policy, its mean action in the environment's units, for use without m2ac."""

    out: str | None = None
    """Directory to write, which an earlier export may be in; the default is export in the run directory."""
    formats: tuple[str, ...] = ("numpy", "stablehlo")
    """Any of numpy (an .npz and a module that needs nothing but NumPy), stablehlo (for JAX and others, on any hardware)
    and onnx, which needs the extra m2ac[onnx]."""


def export(args: list[str]) -> int:
    """`m2ac export`."""
    wanted = parse(Exporting, args, "m2ac export")
    prepare_jax()
    from m2ac.deploy.formats import FILES, check_formats
    from m2ac.runs.directory import RunDirectory
    from m2ac.runs.exporting import export_run

    formats = check_formats(wanted.formats)
    run = RunDirectory.read(wanted.run)
    env = run.config.env
    if wanted.env is not None or env != LIVE:
        env = confirmed_env(env, wanted.env, where=f"the run {wanted.run!r}")
    done = export_run(wanted.run, env=env, out=wanted.out, formats=formats, best=wanted.best)
    for name, verdict in done.export.verdicts.items():
        size = sum(len(done.export.files[file]) for file in FILES[name])
        print(
            f"{name:9s}  {size / 1e6:5.2f} MB  largest difference {verdict.difference:.1e} of the action range, "
            f"{verdict.at_extremes:.1e} at extremes  "
            f"one observation: median {verdict.median:.0f} µs, 99% {verdict.percentile_99:.0f} µs"
        )
    if not run.metrics.exists():
        print("no cycle of learning is complete yet: this policy may be as it began, at random", file=sys.stderr)
    print(f"export: {visible(str(done.path))} (README.md says how to use it)")
    return 0
