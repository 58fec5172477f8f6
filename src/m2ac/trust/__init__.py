"""Whether a model deserves its trust on a task: measured on fresh real episodes, summed up, and what that suggests."""

from m2ac.trust.findings import Findings, find
from m2ac.trust.measure import Fresh, Measured, measure

__all__ = ["Findings", "Fresh", "Measured", "find", "measure"]
