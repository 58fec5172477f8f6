"""The paper's bounds on small MDPs, where every quantity in them is known exactly."""

from m2ac.theory.check import Checked, check
from m2ac.theory.statements import FALSE, TRUE, Bound
from m2ac.theory.tabular import Tabular

__all__ = ["FALSE", "TRUE", "Bound", "Checked", "Tabular", "check"]
