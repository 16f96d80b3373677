"""A ratio of maxima in words: as a share, as the cost of a neighbour, or as the change that is excluded."""

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
    """`162 % (129 … 200 %) of bridge`, or why the ratio is unknown."""
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
    """`162 % (129 … 200 %)`; for a bound, its only limit: `≤ 28 % (up to 31 %)`."""
    low, high = (None if limit is None else _percents(limit) for limit in (ratio.low, ratio.high))
    limits = f"up to {high} %" if low is None else f"{low} % or more" if high is None else f"{low} … {high} %"
    return f"{bounded(_percents(ratio.ratio or 0.0), ratio)} % ({limits})"


def _percents(ratio: float) -> str:
    """A ratio in percent: without decimals, or with two significant digits below 10 %."""
    return f"{100 * ratio:,.0f}" if ratio >= 0.1 or not ratio else f"{100 * ratio:.2g}"


_NOISE = (Unknown.TOO_FEW, Unknown.BASE_MAY_BE_ZERO)


def _measured(ratio: RatioOfMeans, value: float) -> str:
    return f"{bounded(_percents(value), ratio)} % measured"


def _repetitions(ratio: RatioOfMeans) -> str:
    return f"n = {min(ratio.n_new, ratio.n_base)}"


def not_measurable(ratio: RatioOfMeans) -> str:
    """Why a ratio is not measurable: `too noisy to tell (n = 2)`, `not measurable: …`; empty where it is.

    A ratio whose interval does not exclude a change by half is too noisy, too.
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
    """`51 % (43 … 58 %)`: the lost part, for a known ratio."""
    if ratio.ratio is None:
        return not_measurable(ratio)
    low, high = (None if limit is None else 1 - limit for limit in (ratio.high, ratio.low))
    bounds: dict[str, Literal["", "≤", "≥"]] = {"≤": "≥", "≥": "≤"}
    return _with_limits(replace(ratio, ratio=1 - ratio.ratio, low=low, high=high, bound=bounds.get(ratio.bound, "")))


def limit_excluded(ratios: Iterable[RatioOfMeans]) -> int | None:
    """The percent above which changes are excluded for all ratios with a known limit; None without any."""
    known = [limit for ratio in ratios if (limit := ratio.excluded) is not None]
    # Rounded up: a change above the number shown is also above the exact limit.
    return ceil(round(100 * max(known), 6)) if known else None


def excluded(own: Iterable[RelativeMaximum]) -> str:
    """The largest change that is not excluded, over the neighbours where it is known; for the others the reason."""
    every = list(own)
    unclear = grouped(
        (maximum for maximum in every if not_measurable(maximum.ratio)), lambda maximum: not_measurable(maximum.ratio)
    )
    known = limit_excluded(maximum.ratio for maximum in every if not not_measurable(maximum.ratio))
    said = [] if known is None else [f"changes above {known} % are excluded"]
    for why, alike in unclear.items():
        scenarios = ", ".join(dict.fromkeys(maximum.scenario for maximum in alike))
        said.append(why if known is None else f"{why} beside {scenarios}")
    return ", ".join(said) or "no loss of throughput"
