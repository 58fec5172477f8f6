"""Draws the two pictures of docs/concepts.md with the library's own functions.

    python docs/pictures/draw_concepts.py

They go to docs/images/one-vs-rest.png and docs/images/mask.png.
"""

from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from m2ac.dynamics.gaussian import Gaussian, merge, of_member
from m2ac.dynamics.uncertainty import one_vs_rest
from m2ac.model_config import mask_rates

IMAGES = Path(__file__).parents[1] / "images"
DRAWN, REST, OTHERS = "#c8553d", "#28536b", "#9aa5ad"


def bell(x: np.ndarray, mean: float, variance: float) -> np.ndarray:
    """The density of a Gaussian."""
    return np.exp(-0.5 * (x - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)


def draw_one_vs_rest(path: Path) -> None:
    """Seven predictions of one number, once where the members agree and once where the drawn one stands alone."""
    x = np.linspace(-4, 4, 400)
    agree = np.array([0.0, -0.15, 0.1, 0.2, -0.1, 0.05, -0.2])
    alone = np.array([1.9, -0.6, -0.9, 0.1, -0.4, -1.2, 0.3])
    figure, axes = plt.subplots(1, 2, figsize=(8, 2.6), sharey=True, layout="constrained")
    for axis, means, title in zip(axes, (agree, alone), ("members agree", "the drawn one stands alone"), strict=True):
        prediction = Gaussian(jnp.asarray(means)[:, None, None], jnp.full((7, 1, 1), 0.25))
        member, company = jnp.array([0]), jnp.ones(7, bool)
        score = float(one_vs_rest(prediction, member, jnp.zeros((1, 1)), company)[0])
        rest = merge(prediction, company.at[0].set(False)[:, None])
        drawn = of_member(prediction, member)
        for mean in means[1:]:
            axis.plot(x, bell(x, mean, 0.25), color=OTHERS, lw=0.8)
        axis.plot(
            x, bell(x, float(rest.mean[0, 0]), float(rest.variance[0, 0])), color=REST, lw=2, label="rest, merged"
        )
        axis.plot(x, bell(x, float(drawn.mean[0, 0]), 0.25), color=DRAWN, lw=2, label="drawn member")
        axis.set_title(f"{title}: score {score:.2f} nats", fontsize=10)
        axis.set_xlabel("predicted change of one number")
        axis.set_yticks([])
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_mask(path: Path) -> None:
    """Rows by rollout step, coloured by whether they are kept; and the share kept for several rollout lengths."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    rows, horizon = 20, 4
    scores = np.sort(
        np.random.default_rng(1).gamma(2.0, 0.5 * np.arange(1, horizon + 1)[:, None], (horizon, rows)), axis=1
    )
    for h, rate in enumerate(mask_rates("paper", horizon)):
        kept = np.arange(rows) < int(rate * rows)
        left.scatter(np.full(kept.sum(), h), scores[h][kept], color=REST, s=14, label="kept" if h == 0 else None)
        left.scatter(
            np.full(rows - kept.sum(), h), scores[h][~kept], color=OTHERS, s=14, label=None if h else "dropped"
        )
    left.set_xticks(range(horizon))
    left.set_xlabel("rollout step h")
    left.set_ylabel("score")
    left.set_title("20 rollouts of length 4 (made-up scores)", fontsize=10)
    left.legend(frameon=False, fontsize=8)
    for length, colour in ((1, OTHERS), (4, DRAWN), (10, REST)):
        right.plot(
            [float(rate) for rate in mask_rates("paper", length)], "o-", ms=4, color=colour, label=f"length {length}"
        )
    right.set_ylim(0, 0.55)
    right.set_xlabel("rollout step h")
    right.set_title("share kept, mask.rate=paper", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    draw_one_vs_rest(IMAGES / "one-vs-rest.png")
    draw_mask(IMAGES / "mask.png")
