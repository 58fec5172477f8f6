"""The paper's bounds as a picture."""

import os
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from m2ac.report.curve import BLUE, GREEN, VERMILLION
from m2ac.theory.sweeps import Sweep
from m2ac.theory.toy import Learned


@matplotlib.rc_context({"text.usetex": False})
def draw_theory(sweeps: Sequence[Sweep], toy: Sequence[Learned], path: str | os.PathLike[str]) -> None:
    """Gap and bound over each sweep, and the toy's return over the mask's rate."""
    figure = Figure(figsize=(11, 7), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2).ravel()
    for panel, sweep in zip(panels, sweeps, strict=False):
        _draw_sweep(panel, sweep)
    _draw_toy(panels[-1], toy)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def _draw_sweep(panel: Axes, sweep: Sweep) -> None:
    shown = sweep.gap > 1e-9  # on a logarithmic axis nothing is nowhere
    panel.semilogy(sweep.at[shown], sweep.bound[shown], color=VERMILLION, label="bound of Theorem 2")
    panel.semilogy(sweep.at[shown], sweep.gap[shown], color=BLUE, label="gap between masked and real value")
    panel.set(xlabel=sweep.over, ylabel="largest over states and actions")
    panel.legend(frameon=False)


def _draw_toy(panel: Axes, toy: Sequence[Learned]) -> None:
    rates = [each.rate for each in toy]
    panel.step(rates, [each.promised for each in toy], where="mid", color=GREEN, linestyle="--", label="promised")
    panel.step(rates, [each.real for each in toy], where="mid", color=BLUE, label="real")
    panel.set(xlabel="share of states and actions left to the model", ylabel="return in the toy")
    panel.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0\nno model", "0.25", "0.5", "0.75", "1\nMBPO"])
    panel.legend(frameon=False, loc="upper left")
