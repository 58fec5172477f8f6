"""Which libraries there are, and what each of them is timed at."""

from typing import NamedTuple


class System(NamedTuple):
    """A library and the module that works with it."""

    label: str
    module: str
    ours: bool = False


SYSTEMS = {
    "m2ac": System("m2ac", "benchmarks.ours", ours=True),
    "sbx": System("SBX", "benchmarks.sbx_sac"),
    "sb3": System("stable-baselines3", "benchmarks.sb3_sac"),
    "mbrl": System("mbrl-lib", "benchmarks.mbrl_lib"),
}


class Phase(NamedTuple):
    """A piece of work that several systems can do."""

    title: str
    unit: str
    work: str  # its name in the workers
    systems: tuple[str, ...]
    where: str = ""  # on "one core", on "two", or else on all
    every: int = 1  # rounds from one time to the next


ALL, MODEL_BASED = ("m2ac", "sbx", "sb3", "mbrl"), ("m2ac", "mbrl")
PHASES = {
    "sac_update": Phase("SAC update, batch 256, 200 per call", "update", "sac_update", ALL),
    "ensemble_step": Phase("ensemble training step, 7 × 256 rows", "step", "ensemble_step", MODEL_BASED),
    "imagined_all": Phase("imagined transition, all members asked", "transition", "imagined_all", MODEL_BASED),
    "imagined_all_in_blocks": Phase(
        "the same, theirs in blocks too", "transition", "imagined_all_in_blocks", MODEL_BASED
    ),
    "imagined_one": Phase("imagined transition, all kept (MBPO)", "transition", "imagined_one", MODEL_BASED),
    "acting": Phase("acting on one observation", "action", "acting", ALL),
    "cycle": Phase("MBPO cycle of 250 steps", "cycle", "cycle", MODEL_BASED, every=2),
    "sac_update_one_core": Phase("SAC update on one core", "update", "sac_update", ALL, where="one core"),
    "sac_update_two_runs": Phase("SAC update of two runs on two cores", "update", "sac_update", ("m2ac",), where="two"),
}
"""`sac_update_two_runs` compares m2ac with itself: one process on two cores, and two with a core each."""
