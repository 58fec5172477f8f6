"""What can be set of the model: how it is fitted, what of its imagination is kept, and how much is learned from it."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from m2ac.settings import at_least, check, positive, set_types

LARGEST_DENOMINATOR = 46_340
"""Its square fits in 31 bits, so floor(rate * rows) is exact in int32 on any device."""


@dataclass(frozen=True)
class MaskConfig:
    """Which imagined transitions are trusted (Algorithm 2)."""

    rule: Literal["rank", "threshold", "all"] = "rank"
    """rank: the share of the rows with the lowest scores, as M2AC; threshold: all rows whose score is below that of
    most first steps from real states, as MACURA; all: every row, as MBPO."""
    rate: float | Literal["paper"] = "paper"
    """Share of the imagined rows kept at each rollout step, in (0, 1]. "paper" is 0.5 at horizon 1 and otherwise decays
    as (H-h)/(2(H+1)); 1 keeps everything."""
    quantile: float = 0.95
    """Threshold rule: the usual score is this quantile of the scores of the rollouts' first steps."""
    factor: float = 2.0
    """Threshold rule: a row is kept if its score is below this many times the usual score."""
    stop: Literal["nonstop", "hardstop"] | None = None
    """Whether a rollout goes on from every row (nonstop) or only from the kept ones (hardstop). None: nonstop, but
    hardstop with the threshold rule."""
    uncertainty: Literal["ovr", "ova", "nll", "gjs"] | None = None
    """Score of the rows: One-vs-Rest or One-vs-All divergence, the ensemble's negative log-likelihood, or the mean
    geometric Jensen-Shannon divergence of all pairs. None: ovr, but gjs with the threshold rule."""
    penalty: float | None = None
    """Kept imagined rewards are lowered by this times the score. None: 0.001, but 0 with the nll score, which can be
    negative, and 0 with the other rules."""
    draw: Literal["elites", "all"] = "elites"
    """The members a prediction is drawn from."""
    rest: Literal["all", "elites"] = "all"
    """The members the drawn one is compared with."""

    def __post_init__(self) -> None:
        set_types(self, "mask.")
        if self.rate != "paper":
            check(0 < self.rate <= 1, f"mask.rate must be in (0, 1], got {self.rate}; use 1 to keep everything")
            check(
                mask_rates(self.rate, 1)[0] > 0,
                f"mask.rate must be at least 1/{LARGEST_DENOMINATOR}, got {self.rate}; so small a share keeps no row",
            )
        check(
            self.rule == "rank" or self.rate in ("paper", 1.0 if self.rule == "all" else "paper"),
            f"mask.rate has no meaning for mask.rule={self.rule}, got {self.rate}; leave it out, or use rank",
        )
        check(
            0 < self.quantile < 1,
            f"mask.quantile must be in (0, 1), got {self.quantile}; 0.95 is the usual one",
        )
        positive("mask.factor", self.factor, "2 is the usual one")
        check(
            self.rule == "threshold" or (self.quantile, self.factor) == (MaskConfig.quantile, MaskConfig.factor),
            f"mask.quantile and mask.factor have no meaning for mask.rule={self.rule}, "
            f"got {self.quantile} and {self.factor}; leave them out, or use mask.rule=threshold",
        )
        check(
            self.rule != "threshold" or self.uncertainty != "nll",
            "mask.uncertainty must not be nll with mask.rule=threshold, got nll: where a score can be negative, a "
            "multiple of the usual one means nothing; use gjs, ovr or ova",
        )
        at_least("mask.penalty", self.penalty, 0, "a negative penalty would reward the model's doubt")

    @property
    def keeps_all(self) -> bool:
        """Whether every row is kept."""
        return self.rate == 1 or self.rule == "all"

    @property
    def is_idle(self) -> bool:
        """Whether no score is needed."""
        return self.keeps_all and (self.penalty == 0 or (self.penalty is None and self.rule == "all"))


@dataclass(frozen=True)
class ModelConfig:
    """The ensemble of probabilistic dynamics models and how it is fitted."""

    members: int = 7
    """Networks in the ensemble (K)."""
    elites: int = 5
    """Members with the lowest holdout loss that predictions are drawn from."""
    hidden: int | None = None
    """Width of the hidden layers. None: the task's, else 200."""
    layers: int = 4
    """Hidden layers."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    batch_size: int = 256
    """Rows per member in a training step."""
    weight_decay: tuple[float, ...] = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)
    """Factor of half the squared weights in the loss, one per layer from input to output."""
    holdout_share: float = 0.2
    """Share of the real rows held out for early stopping."""
    holdout_max: int = 5000
    """At most this many rows are held out."""
    stop_on: Literal["nll", "mse"] = "nll"
    """Holdout loss that early stopping watches: nll as the paper says, mse as MBPO's code does."""
    improvement: float = 0.01
    """A member has improved when its holdout loss fell by more than this share of its best one."""
    improvement_of: Literal["size", "value"] = "size"
    """What that is a share of: the size of the best loss; or its value, sign and all, as in MBPO's code, which takes
    worse for better once the loss is below 0, so that members are trained far beyond their best."""
    patience: int = 5
    """Fitting stops when no member improved for more than this many epochs …"""
    patience_batches: int = 80
    """… and for at least this many batches, which counts only where an epoch is short: below some 4200 rows."""
    max_epochs: int | None = None
    """Upper limit of epochs per fit. None: early stopping alone decides."""
    max_log_variance: float = 0.5
    """Start of the learned upper bound of the log-variance."""
    min_log_variance: float | None = None
    """Start of the learned lower bound of the log-variance. None: -10; -5 for HalfCheetah, which learns faster with it;
    -4 with scaled targets, whose unit is their spread: with less variance, a number that seldom changes would have a
    huge loss in the first row where it does."""
    scale_targets: bool | None = None
    """Whether the fit brings rewards and changes of the observation to a spread of 1, so that small ones are predicted
    as well as large ones. None: not for the tasks known by name, whose settings are MBPO's; for all others."""

    def __post_init__(self) -> None:
        set_types(self, "model.")
        at_least("model.members", self.members, 1, "the paper has 7")
        check(self.members <= 100, f"model.members must be at most 100, got {self.members}; the paper has 7")
        at_least("model.elites", self.elites, 1, "the paper has 5 of 7 members")
        check(
            self.elites <= self.members,
            f"model.elites must be at most model.members ({self.members}), got {self.elites}; "
            f"lower model.elites or raise model.members",
        )
        at_least("model.hidden", self.hidden, 1, "most tasks use 200")
        at_least("model.layers", self.layers, 1, "the paper has 4")
        check(self.layers <= 20, f"model.layers must be at most 20, got {self.layers}; the paper has 4")
        positive("model.learning_rate", self.learning_rate, "0.001 is the usual one")
        at_least("model.batch_size", self.batch_size, 1, "256 is the usual one")
        check(
            len(self.weight_decay) == self.layers + 1,
            f"model.weight_decay needs one value per layer ({self.layers} hidden and the output: {self.layers + 1}), "
            f"got {len(self.weight_decay)}; give as many, 0 for none",
        )
        check(
            min(self.weight_decay) >= 0,
            f"model.weight_decay must not be negative, got {self.weight_decay}; use 0 for none",
        )
        check(
            0 < self.holdout_share < 1,
            f"model.holdout_share must be in (0, 1), got {self.holdout_share}; early stopping needs rows on both sides",
        )
        at_least("model.holdout_max", self.holdout_max, 1, "early stopping needs a row to judge by")
        at_least("model.improvement", self.improvement, 0, "0 counts every fall of the loss")
        at_least("model.patience", self.patience, 0, "0 stops at the first epoch without an improvement")
        at_least("model.patience_batches", self.patience_batches, 0, "0 leaves it to model.patience alone")
        at_least("model.max_epochs", self.max_epochs, 1, "leave it out to let early stopping alone decide")
        check(
            self.min_log_variance is None or self.min_log_variance < self.max_log_variance,
            f"model.min_log_variance must be below model.max_log_variance ({self.max_log_variance}), "
            f"got {self.min_log_variance}; lower it, or raise model.max_log_variance",
        )

    @property
    def first_min_log_variance(self) -> float:
        """Where the lower bound of the log-variance starts."""
        if self.min_log_variance is not None:
            return self.min_log_variance
        return -4.0 if self.scale_targets else -10.0


@dataclass(frozen=True)
class ReplayConfig:
    """Where the learner's batches come from."""

    real_share: float | Literal["union"] = 0.05
    """Share of real rows in every batch; "union" samples uniformly over real and imagined rows together."""
    capacity: int | None = None
    """Real transitions kept. None: as many as the run collects and the log has, at most a million, or the whole log."""

    def __post_init__(self) -> None:
        set_types(self, "replay.")
        if self.real_share != "union":
            check(
                0 <= self.real_share <= 1, f"replay.real_share must be in [0, 1], got {self.real_share}; MBPO has 0.05"
            )
        at_least("replay.capacity", self.capacity, 2, "leave it out to keep every step of the run")


def mask_rates(rate: float | Literal["paper"], horizon: int) -> tuple[Fraction, ...]:
    """The share kept at h = 0 .. H-1, exactly: floats would give floor(.29 * 100) = 28."""
    if rate == "paper":
        if horizon == 1:
            return (Fraction(1, 2),)
        return tuple(Fraction(horizon - h, 2 * (horizon + 1)) for h in range(horizon))
    return (Fraction(repr(float(rate))).limit_denominator(LARGEST_DENOMINATOR),) * horizon
