"""The findings as numbers for other programs and as a few lines for people."""

from typing import Any

import numpy as np

from m2ac.algorithms.numbers import mean_of_finite
from m2ac.trust.calibration import LEVELS, TerminationQuality
from m2ac.trust.findings import Findings, Quantiles, Worth
from m2ac.trust.places import name_of
from m2ac.trust.ranking import RATES, Reliability
from m2ac.trust.resampling import Interval
from m2ac.trust.suggest import Estimate, Suggestion

OFF = 0.05
"""A dimension whose intervals hold so much more or less than they claim, in the mean over the levels, is named."""

FEW_ENDS = 5
"""Real ends below which nothing is said of how many the model expects."""


def numbers(found: Findings) -> dict[str, Any]:
    """All but the single transitions, by name."""
    about, cal = found.about, found.calibration
    return {
        "run": about.run,
        "env": about.env,
        "algo": about.algo,
        "step": about.step,
        "horizon": about.horizon,
        "mask": about.mask,
        "score": about.score,
        "actions": "sampled" if about.sampled else "mean",
        "episodes": [each._asdict() for each in about.played],
        "transitions": len(found.measured.error),
        "error": {
            "absolute": mean_of_finite(found.measured.error),
            "relative": mean_of_finite(found.measured.relative),
            "shares": found.shares,
        },
        "rank_correlation": {name: ranks._asdict() for name, ranks in found.ranks.items()},
        "mask_worth": {name: _worth(each) for name, each in found.worth.items()},
        "calibration": {
            "levels": LEVELS,
            "obs": cal.obs,
            "obs_intervals": cal.between,
            "reward": cal.inside[:, 0],
            "by_dimension": cal.inside[:, 1:].T,
            "bias_by_dimension": cal.bias[1:],
        },
        "reward": found.reward._asdict(),
        "termination": None if found.termination is None else found.termination._asdict(),
        "open_loop": _quantiles(found.alone),
        "masked_rollouts": {"kept": _quantiles(found.kept), "dropped": _quantiles(found.dropped)},
        "worst": [place._asdict() for place in found.worst],
        "relations": [relation._asdict() for relation in found.relations],
        "suggestion": {**_suggestion(found.suggestion), "doubts": doubts_of(found)},
    }


def _worth(worth: Worth) -> dict[str, Any]:
    return {name: {"rates": RATES, **each._asdict()} for name, each in worth._asdict().items()}


def _quantiles(each: Quantiles) -> dict[str, Any]:
    return {"rows": each.rows, "median": each.median, "quantile_90": each.high}


def _suggestion(each: Suggestion) -> dict[str, Any]:
    estimates = {n: v._asdict() for n, v in each._asdict().items() if isinstance(v, Estimate)}
    return {**each.rule._asdict(), **estimates, "looked": each.looked}


def between(interval: Interval | None, form: str) -> str:
    """(0.3 to 0.5), or nothing."""
    return "" if interval is None else f" ({interval.low:{form}} to {interval.high:{form}})"


def _length(horizon: Estimate) -> str:
    if not horizon.value:
        return "length 0: not even one step is shown to be good enough"
    return f"length {horizon.value:.0f}{between(horizon.interval, '.0f')}"


def options(found: Findings) -> str:
    """The suggestion as it is typed."""
    horizon, rate = found.suggestion.horizon.value, found.suggestion.rate.value
    # With all that the run's own settings, which --config may bring in, would say otherwise. A score by which nothing
    # is worth dropping is no reason for a penalty either.
    mask = "--mask.rule all --mask.rate 1 --mask.penalty 0" if rate == 1 else f"--mask.rate {rate:g}"
    if rate < 1 and not found.about.ranks:
        mask = f"--mask.rule rank {mask} --mask.uncertainty {found.about.score}"
    return f"--horizon {max(1, int(horizon))} {mask}"


def doubts_of(found: Findings) -> list[str]:
    """What speaks against relying on the suggestion, and on the score that the mask ranks by."""
    own, better = found.about.score, better_score(found)
    said = list(found.suggestion.doubts)
    if better is not None:
        said.append(
            f"{better} would be the better score for a mask here: {gained(found.worth[better].relative)} of an "
            f"oracle's gain and {gained(found.worth[better].absolute)} absolute; whether learning gains by "
            f"--mask.uncertainty {better} is not known"
        )
    ends = found.termination
    if (
        ends is not None
        and max(ends.real, ends.expected) >= FEW_ENDS
        and not ends.real / 2 <= ends.expected <= 2 * ends.real
    ):
        said.append(
            f"the model expects {ends.expected:.2g} ends where {ends.real} came: critics learn from the former; give a "
            "termination_fn, or collect more"
        )
    worth = found.worth[own].absolute
    if worth.interval is not None and worth.interval.high < 0:
        said.append(
            f"by the absolute error {own} keeps the wrong rows: its score is lower where the error is larger; "
            f"a divergence is small where the predicted variance is large"
        )
    return said


def better_score(found: Findings) -> str | None:
    """The score whose gain is clearly above that of the mask's own by the relative error, and above by the absolute."""
    own = found.worth[found.about.score]
    best = max(found.worth, key=lambda name: np.nan_to_num(found.worth[name].relative.share, nan=-np.inf))
    other = found.worth[best]
    if own.relative.interval is None or other.relative.interval is None:
        return None
    clear = other.relative.interval.low > own.relative.interval.high
    return best if clear and other.absolute.share > own.absolute.share else None


def misjudged(found: Findings) -> tuple[list[str], list[str]]:
    """The dimensions of which the model is too sure, and those of which it is too careful, the worst first."""
    bias = found.calibration.bias
    order = [int(d) for d in np.argsort(bias, kind="stable")]
    return [name_of(d) for d in order if bias[d] < -OFF], [name_of(d) for d in reversed(order) if bias[d] > OFF]


def lines(found: Findings) -> list[str]:
    """What was found, in short."""
    about, measured, suggestion = found.about, found.measured, found.suggestion
    ranks, worth = found.ranks[about.score], found.worth[about.score]
    totals = [played.total for played in about.played]
    how = "sampled actions, as in training" if about.sampled else "the mean action"
    return [
        f"{about.env}, {about.algo} at step {about.step}: {len(totals)} fresh episodes with {how}, "
        f"{len(measured.error)} transitions, mean return {np.mean(totals):.1f}",
        f"one step        off by {mean_of_finite(measured.error):.3f} spreads, "
        f"{mean_of_finite(measured.relative):.2f} times what the model expects; most of it in {_most(found.shares)}",
        f"score {about.score:9s} rank correlation with the error {ranks.relative:.2f} in the model's units, "
        f"{ranks.absolute:.2f} absolute; as a mask {gained(worth.relative)} of an oracle's gain "
        f"({gained(worth.absolute, interval=False)} absolute)",
        f"calibration     the 90 % intervals hold {100 * _inside(found, 0.9):.0f} % of the observations and "
        f"{100 * float(found.calibration.inside[LEVELS == 0.9, 0][0]):.0f} % of the rewards{_named(found)}",
        f"reward          off by {found.reward.in_spreads:.3f} spreads, bias {found.reward.bias:+.3g}"
        f"{between(found.reward.bias_between, '.2g')}",
        f"termination     {termination_said(found.termination)}",
        f"on its own      {_drift(found.alone)}",
        f"suggestion      {options(found)}, a rule of thumb; {_length(suggestion.horizon)}"
        f", rate {suggestion.rate.value:g}"
        f"{between(suggestion.rate.interval, 'g')}",
        *(f"  but           {doubt}" for doubt in doubts_of(found)),
    ]


def _inside(found: Findings, level: float) -> float:
    return float(found.calibration.obs[level == LEVELS][0])


def _most(shares: dict[str, float]) -> str:
    """The dimensions that make up half of the squared error, three at most."""
    named, total = [], 0.0
    for name, share in shares.items():
        named.append(f"{name} ({100 * share:.0f} %)")
        total += share
        if total >= 0.5 or len(named) == 3:
            break
    return ", ".join(named)


def gained(each: Reliability, *, interval: bool = True) -> str:
    """41 % (30 to 52 %)."""
    if np.isnan(each.share):
        return "nothing"
    around = "" if each.interval is None or not interval else f" ({_percents(each.interval)})"
    return f"{100 * each.share:.0f} %{around}".replace("-", "−")


def _percents(interval: Interval) -> str:
    return f"{100 * interval.low:.0f} to {100 * interval.high:.0f} %"


def _named(found: Findings) -> str:
    sure, careful = misjudged(found)
    said = [f"too {how} of {_listed(names)}" for how, names in (("sure", sure), ("careful", careful)) if names]
    return "; " + ", ".join(said) if said else ""


def _listed(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def termination_said(quality: TerminationQuality | None) -> str:
    """What is known of the learned end of episodes."""
    if quality is None:
        return "known for this task, not learned"
    if quality.real == 0:
        return (
            f"learned; no episode terminated here, so recall is unknown; "
            f"{quality.expected:.2g} ends expected, Brier score {quality.brier:.2g}"
        )
    return (
        f"learned; {quality.real} ends, {quality.expected:.3g} expected; at one half "
        f"precision {_ratio(quality.precision)}, recall {_ratio(quality.recall)}, "
        f"Brier score {quality.brier:.2g} (always saying the share: {quality.brier_of_share:.2g})"
    )


def _ratio(value: float) -> str:
    return "unknown" if np.isnan(value) else f"{value:.2f}"


def _drift(alone: Quantiles) -> str:
    """At some lengths."""
    last = int(np.sum(~np.isnan(alone.median)))
    steps = sorted({h for h in (1, 5, 10, last) if h <= last})
    said = [f"{alone.median[h - 1]:.2g} after {h}" for h in steps]
    return f"median error in spreads: {', '.join(said)} steps" if said else "no step was seen"
