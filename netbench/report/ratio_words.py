"""A ratio of maxima in a sentence: as a part of something, as what a neighbour costs, as what can be excluded."""

from collections.abc import Iterable
from dataclasses import replace
from math import ceil
from typing import Literal

from netbench.report.formats import bounded
from netbench.statistics.groups import grouped
from netbench.statistics.interference import RelativeMaximum
from netbench.statistics.intervals import RatioOfMeans, Unknown

_TOO_NOISY = 0.5  # a change that a ratio cannot exclude: a neighbour on the same CPU takes half


def part_of(ratio: RatioOfMeans | None, of: str) -> str:
    """`162 % (129 … 200 %) of bridge`, or why that cannot be said."""
    if ratio is None or ratio.ratio is None:
        return f"not comparable with {of}: {ratio.why_unknown if ratio else 'nothing was received'}"
    if ratio.unknown is Unknown.ONE_REPETITION:
        return f"{bounded(_percents(ratio.ratio), ratio)} % of {of} (one repetition, no interval)"
    if ratio.unknown in _NOISE:
        return f"too noisy to compare with {of} ({_measured(ratio, ratio.ratio)}, {_repetitions(ratio)})"
    if ratio.unknown is not None:
        return f"not comparable with {of}: {ratio.why_unknown}"
    return f"{_with_limits(ratio)} of {of}" + (", no significant difference" if ratio.significant is False else "")


def _with_limits(ratio: RatioOfMeans) -> str:
    """`162 % (129 … 200 %)`; of a bound the limit that there is: `≤ 28 % (up to 31 %)`."""
    low, high = (None if limit is None else _percents(limit) for limit in (ratio.low, ratio.high))
    limits = f"up to {high} %" if low is None else f"{low} % or more" if high is None else f"{low} … {high} %"
    return f"{bounded(_percents(ratio.ratio or 0.0), ratio)} % ({limits})"


def _percents(ratio: float) -> str:
    """Whole percents; of little a digit more."""
    return f"{100 * ratio:,.0f}" if ratio >= 0.1 or not ratio else f"{100 * ratio:.2g}"


_NOISE = (Unknown.TOO_FEW, Unknown.BASE_MAY_BE_ZERO)


def _measured(ratio: RatioOfMeans, value: float) -> str:
    return f"{bounded(_percents(value), ratio)} % measured"


def _repetitions(ratio: RatioOfMeans) -> str:
    return f"n = {min(ratio.n_new, ratio.n_base)}"


def not_measurable(ratio: RatioOfMeans) -> str:
    """Why a ratio says nothing: `too noisy to tell (n = 2)`, `not measurable: …`; empty where it says something.

    So is a ratio without a significant change whose interval would hide a change by half.
    """
    if ratio.unknown in _NOISE:
        return f"too noisy to tell ({_repetitions(ratio)})"
    if ratio.unknown is not None:
        return f"not measurable: {ratio.why_unknown}"
    if ratio.bound and not ratio.significant:
        return "not measurable: a maximum is only a lower bound"
    if (excluded := ratio.excluded) is not None and excluded > _TOO_NOISY:
        return f"too noisy to tell (±{ceil(100 * excluded)} %)"
    return ""


def cost(ratio: RatioOfMeans) -> str:
    """`51 % (43 … 58 %)`: what is not left, of a ratio that is known."""
    if ratio.ratio is None:
        return not_measurable(ratio)
    low, high = (None if limit is None else 1 - limit for limit in (ratio.high, ratio.low))
    bounds: dict[str, Literal["", "≤", "≥"]] = {"≤": "≥", "≥": "≤"}
    return _with_limits(replace(ratio, ratio=1 - ratio.ratio, low=low, high=high, bound=bounds.get(ratio.bound, "")))


def limit_excluded(ratios: Iterable[RatioOfMeans]) -> int | None:
    """The percent above which a change can be excluded of all of these of which that is known; None where of none."""
    known = [limit for one in ratios if (limit := one.excluded) is not None]
    # Rounded up: what is above the number shown is above the change, too.
    return ceil(round(100 * max(known), 6)) if known else None


def excluded(own: Iterable[RelativeMaximum]) -> str:
    """The largest change that is not excluded, of all neighbours of which that is known; of others why it is not."""
    every = list(own)
    unclear = grouped((one for one in every if not_measurable(one.ratio)), lambda one: not_measurable(one.ratio))
    known = limit_excluded(one.ratio for one in every if not not_measurable(one.ratio))
    said = [] if known is None else [f"changes above {known} % are excluded"]
    for why, alike in unclear.items():
        scenarios = ", ".join(dict.fromkeys(one.scenario for one in alike))
        said.append(why if known is None else f"{why} beside {scenarios}")
    return ", ".join(said) or "no loss of throughput"
