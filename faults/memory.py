"""The memory of a long run does not grow once everything is compiled."""

import json
from pathlib import Path

from faults.row import Row
from faults.training import start

DEFAULT = 200_000
"""Updates."""

PROPERTY = "memory over 200k updates: growth < 1 % after the third cycle"
ALLOWED = 0.01
PER_STEP = 100


def run(n: int, scratch: Path) -> Row:
    """Train with n updates, the memory noted at the end of every cycle."""
    steps = 1000 + n // PER_STEP
    settings = [
        *("--env", "Pendulum-v1", "--horizon", "1", "--steps", str(steps), "--random-steps", "1000"),
        *("--updates-per-step", str(PER_STEP), "--model-every", "50", "--model.max-epochs", "2"),
        *("--rollouts-per-update", "1", "--sac.hidden", "32", "--sac.batch-size", "32", "--model.hidden", "32"),
        *("--eval-every", "500", "--eval-episodes", "1", "--final-episodes", "1", "--checkpoint-every", "200"),
    ]
    process = start(scratch / "run", settings)
    _, said = process.communicate()
    if process.returncode:
        return Row(PROPERTY, 1, 0, [said.strip()[-200:]])
    lines = (scratch / "run" / "metrics.jsonl").read_text().splitlines()
    used = [json.loads(line)["process/memory_mib"] for line in lines]
    growth = max(used[3:]) / used[2] - 1
    told = f"{used[2]:.1f} MiB after the third cycle, at most {max(used[3:]):.1f} in {len(used)}: {growth:+.2%}"
    print(f"    {told}", flush=True)
    return Row(PROPERTY, 1, int(growth < ALLOWED), [] if growth < ALLOWED else [told])


if __name__ == "__main__":
    from faults.row import alone

    alone(run, DEFAULT)
