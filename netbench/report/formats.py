"""Numbers and sentences as text. Numbers have thousands separators, comparable units, and an en dash for unknown.

The sentences are read from `sentences.yaml` and `glossary.yaml`: page, terminal and exports share them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import ceil, floor, inf, log10
from typing import Any

from netbench.config.document import yaml_value
from netbench.model.units import LoadKind
from netbench.statistics.intervals import Interval, RatioOfMeans, Unknown, statement

UNKNOWN = "–"
_TENTHS_FROM = 0.95  # smaller values would lose digits that matter
_MOST_DECIMALS = 6
_TOO_NOISY = 0.5  # a change that a ratio cannot exclude: a neighbour on the same CPU takes half
_NOISE = (Unknown.TOO_FEW, Unknown.BASE_MAY_BE_ZERO)
_UNITS_S = {"minutes": 60.0, "hours": 3600.0, "days": 86_400.0}


def mbps(value: float | None) -> str:
    """Mbit/s, to a tenth; small values to three significant digits."""
    return UNKNOWN if value is None else _tenths(value)


def kfps(fps: float | None) -> str:
    """Thousands of frames per second."""
    return UNKNOWN if fps is None else _tenths(fps / 1000)


# The units in which rates are shown, as they follow a number.
SHOWN_UNITS = {LoadKind.FRAME_RATE: " kfps", LoadKind.OPERATION_RATE: "/s", LoadKind.L1_BIT_RATE: " Mbit/s"}


def shown_rate(rate: float, unit: LoadKind) -> float:
    """A rate in the unit in which it is shown: thousands of frames/s, operations/s, or Mbit/s."""
    return rate / {LoadKind.FRAME_RATE: 1e3, LoadKind.OPERATION_RATE: 1.0, LoadKind.L1_BIT_RATE: 1e6}[unit]


def rate_number(rate: float | None, unit: LoadKind) -> str:
    """The number of a rate in the unit in which it is shown."""
    if rate is None:
        return UNKNOWN
    if unit is LoadKind.OPERATION_RATE:
        return f"{rate:,.0f}" if rate.is_integer() else three_digits(rate)
    return _tenths(shown_rate(rate, unit))


def microseconds(nanoseconds: float | None) -> str:
    """A time in µs, to a tenth; small ones to three significant digits."""
    return UNKNOWN if nanoseconds is None else _tenths(nanoseconds / 1000)


def three_digits(value: float | None) -> str:
    """A number to three significant digits, with all digits of a whole part."""
    if value is None:
        return UNKNOWN
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if abs(value) >= 0.001 else f"{value:.2e}"


def two_digits(half_width: float) -> str:
    """Half the width of an interval, to two significant digits, with all digits of a whole part."""
    if half_width >= 9.95:
        return f"{half_width:,.0f}"
    leading_zeros = max(0, -floor(log10(half_width))) if half_width > 0 else 0
    return f"{half_width:.{leading_zeros + 1}f}"


def percent(ratio: float | None) -> str:
    """A ratio in percent. Only zero reads as 0 %, and only one as 100 %."""
    if ratio is None:
        return UNKNOWN
    if ratio in (0, 1):
        return f"{100 * ratio:.0f} %"
    if abs(100 * ratio) < 0.001:
        return f"{100 * ratio:.1e} %"
    text = f"{100 * ratio:.3f}"
    return f"{'99.999' if text == '100.000' else text} %"


def rough_percent(ratio: float | None) -> str:
    """A ratio in percent to a tenth, and to more digits where those distinguish it from 0 and 100 %."""
    if ratio is None or not 0.001 <= abs(ratio) <= 0.999:
        return percent(ratio)
    return f"{100 * ratio:.1f} %"


def cpu(share: float | None) -> str:
    """CPU time as a share of one CPU, in percent to a tenth; several CPUs make it more than 100 %."""
    return UNKNOWN if share is None else f"{100 * share:,.1f} %"


def change(relative: float | None) -> str:
    """A relative change in percent, to a tenth, with its sign."""
    return UNKNOWN if relative is None else f"{_signed(100 * relative, 1)} %"


def bounded(text: str, ratio: RatioOfMeans) -> str:
    """The text of a ratio, with its sign where it is a bound."""
    return f"{ratio.bound} {text}" if ratio.bound else text


def at_least(text: str, is_lower_bound: bool) -> str:
    """A maximum, with ≥ where it is a lower bound."""
    return f"≥ {text}" if is_lower_bound else text


def change_limits(ratio: RatioOfMeans) -> str:
    """The limits of a relative change in percent, those of a significant one never 0; why, where unknown."""
    return _ratio_limits(ratio, 1, 100, lambda limit, digits: _signed(100 * (limit - 1), digits)) or ratio.why_unknown


def index(value: float | None) -> str:
    """An index whose best value is 1, to three decimals."""
    return UNKNOWN if value is None else f"{value:.3f}"


def index_limits(ratio: RatioOfMeans) -> str:
    """The limits of a ratio that serves as an index, those of a significant one never 1; empty where unknown."""
    return _ratio_limits(ratio, 3, 1, lambda limit, digits: f"{limit:.{digits}f}")


def _ratio_limits(ratio: RatioOfMeans, least: int, unit: float, show: Callable[[float, int], str]) -> str:
    """The limits of a ratio, to the decimals that distinguish significant ones from 1 in this unit; empty for none."""
    if ratio.bound:
        return "of a lower bound"
    if ratio.low is None or ratio.high is None:
        return ""
    limits, decimals = (ratio.low, ratio.high), least
    if ratio.significant:
        changes = [unit * (limit - 1) for limit in limits]
        while decimals < _MOST_DECIMALS and not all(round(value, decimals) for value in changes):
            decimals += 1
    return " … ".join(show(limit, decimals) for limit in limits)


def frames(number: int | None) -> str:
    """A number of frames."""
    return UNKNOWN if number is None else f"{number:,}"


def mean(interval: Interval | None) -> float | None:
    """The mean of an interval, if there is one."""
    return None if interval is None else interval.mean


def p_value(p: float | None) -> str:
    """A p, to three decimals."""
    if p is None:
        return UNKNOWN
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def mbps_interval(interval: Interval | None) -> str:
    """Mean ± half width in Mbit/s, or its limits in brackets; neither where the half width is unknown."""
    return mean_and(mbps(mean(interval)), mbps_spread(interval))


def kfps_interval(interval: Interval | None) -> str:
    """Mean ± half width in thousands of frames per second."""
    return mbps_interval(None if interval is None else interval.scaled(1e-3))


def percent_interval(interval: Interval | None) -> str:
    """Mean ± half width of a ratio, in percent and percentage points, or its limits in brackets."""
    return mean_and(percent(mean(interval)), percent_spread(interval))


def mbps_spread(interval: Interval | None) -> str:
    """± half width, to the digits of the mean, or to as many as distinguish it from 0; empty where there is none.

    Limits instead where it goes below 0, which a rate is not.
    """
    if interval is None or not interval.half_width:
        return ""
    is_small = abs(interval.mean) < _TENTHS_FROM or interval.half_width < 0.05
    width = _tenths(interval.half_width) if is_small else f"{interval.half_width:,.1f}"
    return limits_of(interval, _tenths) or f"± {width}"


def percent_spread(interval: Interval | None) -> str:
    """± half width of a ratio in percentage points, of a ratio of 0 its upper limit; empty where there is none.

    Limits instead where it goes beyond 0 or 100 %.
    """
    if interval is None or not interval.half_width:
        return ""
    if not interval.mean:
        return f"< {percent_limit(interval.half_width)}"
    return limits_of(interval, _percentage, 1.0) or f"± {_percentage(interval.half_width)}"


def cpu_spread(interval: Interval | None) -> str:
    """± half width of a share of a CPU in percentage points, or limits where it goes below 0; empty where unknown."""
    if interval is None or interval.half_width is None:
        return ""
    return limits_of(interval, lambda share: f"{100 * share:,.1f}") or f"± {100 * interval.half_width:,.1f}"


def index_spread(interval: Interval) -> str:
    """± half width of an index, or its limits where that goes beyond 0 or 1; empty where unknown, or where all
    repetitions are alike.
    """
    width = f"± {interval.half_width:.3f}" if interval.half_width else ""
    return limits_of(interval, lambda value: f"{value:.3f}", 1.0) or width


def percent_limit(ratio: float) -> str:
    """A ratio above 0 in percent without the sign, to two digits, rounded up so that it stays an upper limit."""
    step = 10.0 ** (floor(log10(100 * ratio)) - 1)
    limit = ceil(round(100 * ratio / step, 6)) * step
    return f"{limit:.2g}" if limit < 100 else "100"


def time_unit(seconds: float) -> tuple[str, float]:
    """The largest of minutes, hours and days that fits at least twice, and its seconds; else minutes."""
    fitting = [unit for unit, unit_s in _UNITS_S.items() if seconds >= 2 * unit_s] or ["minutes"]
    return fitting[-1], _UNITS_S[fitting[-1]]


def count(number: int, noun: str, many: str = "") -> str:
    """`1 trial`, `2 trials`, `1,000 trials`; `many` is a plural that is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"


def enumerated(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def capitalised(text: str) -> str:
    """The text with a capital at its beginning."""
    return f"{text[:1].upper()}{text[1:]}"


def times_base(ratio: RatioOfMeans | None, base: str) -> str:
    """`1.62 × bridge (1.29 … 2.00)`, or why the ratio is unknown."""
    if ratio is None or ratio.ratio is None:
        return f"not comparable with {base}: {ratio.why_unknown if ratio else 'nothing was received'}"
    times = f"{bounded(_factor(ratio.ratio), ratio)} ×"
    if ratio.unknown is Unknown.ONE_REPETITION:
        return f"{times} {base} (one repetition, no interval)"
    if ratio.unknown in _NOISE:
        return f"too noisy to compare with {base} ({times} measured, {_repetitions(ratio)})"
    if ratio.unknown is not None:
        return f"not comparable with {base}: {ratio.why_unknown}"
    limits = _range(_factor, ratio.low, ratio.high)
    return f"{times} {base} ({limits})" + (", no significant difference" if ratio.significant is False else "")


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
    if (limit := ratio.excluded) is not None and limit > _TOO_NOISY:
        return f"too noisy to tell (±{ceil(100 * limit)} %)"
    return ""


def change_text(ratio: RatioOfMeans) -> str:
    """Return the statement about a relative change, or the reason why the data permit none."""
    return not_measurable(ratio) or statement(ratio)


def cost(ratio: RatioOfMeans) -> str:
    """`51 % (43 … 58 %)`: the lost part, for a known ratio."""
    if ratio.ratio is None:
        return not_measurable(ratio)
    low, high = (None if limit is None else 1 - limit for limit in (ratio.high, ratio.low))
    sign = {"≤": "≥ ", "≥": "≤ "}.get(ratio.bound, "")
    return f"{sign}{_percents(1 - ratio.ratio)} % ({_range(_percents, low, high, ' %')})"


def limit_excluded(ratios: Iterable[RatioOfMeans]) -> int | None:
    """The percent above which changes are excluded for all ratios with a known limit; None without any."""
    known = [limit for ratio in ratios if (limit := ratio.excluded) is not None]
    # Rounded up: a change above the number shown is also above the exact limit.
    return ceil(round(100 * max(known), 6)) if known else None


def excluded(by_scenario: Mapping[str, Sequence[RatioOfMeans]]) -> str:
    """The largest change that is not excluded, over the neighbours where it is known; for the others the reason."""
    ratios = [(scenario, ratio) for scenario, members in by_scenario.items() for ratio in members]
    known = limit_excluded(ratio for _, ratio in ratios if not not_measurable(ratio))
    unclear: dict[str, dict[str, None]] = {}
    for scenario, ratio in ratios:
        if why := not_measurable(ratio):
            unclear.setdefault(why, {})[scenario] = None
    if known is None:
        return ", ".join(unclear) or "no loss of throughput"
    texts = [f"{why} beside {', '.join(names)}" for why, names in unclear.items()]
    return ", ".join((f"changes above {known} % are excluded", *texts))


def mean_and(mean: str, spread: str) -> str:
    """A mean with its spread, limits in brackets."""
    return f"{mean} ({spread})" if "…" in spread else f"{mean} {spread}".strip()


def limits_of(interval: Interval, show: Callable[[float], str], most: float = inf) -> str:
    """The limits of an interval that would go beyond 0 or `most`, cut there; empty where it does not."""
    low, high = interval.mean - (interval.half_width or 0.0), interval.mean + (interval.half_width or 0.0)
    return f"{show(max(0.0, low))} … {show(min(most, high))}" if low < 0 or high > most else ""


def _percentage(ratio: float) -> str:
    return percent(ratio).removesuffix(" %")


def _signed(number: float, decimals: int) -> str:
    text = f"{number:+,.{decimals}f}"
    return text.replace("-", "−") if text.strip("+-0.,") else text[1:]


def _tenths(value: float) -> str:
    if value == 0 or abs(value) >= _TENTHS_FROM:
        return f"{value:,.1f}"
    digits = 2 - floor(log10(abs(value)))
    return f"{value:.{digits}f}" if digits <= 6 else f"{value:.1e}"


def _factor(ratio: float) -> str:
    """A ratio to two decimals, or to two significant digits below 0.1."""
    return f"{ratio:,.2f}" if ratio >= 0.1 or not ratio else f"{ratio:.2g}"


def _percents(ratio: float) -> str:
    """A ratio in percent: without decimals, or with two significant digits below 10 %."""
    return f"{100 * ratio:,.0f}" if ratio >= 0.1 or not ratio else f"{100 * ratio:.2g}"


def _range(show: Callable[[float], str], low: float | None, high: float | None, unit: str = "") -> str:
    """The limits of an interval that may be open on one side."""
    if low is None or high is None:
        return f"up to {show(high or 0.0)}{unit}" if low is None else f"{show(low)}{unit} or more"
    return f"{show(low)} … {show(high)}{unit}"


def _repetitions(ratio: RatioOfMeans) -> str:
    return f"n = {min(ratio.n_new, ratio.n_base)}"


def sentence(key: str, /, **values: object) -> str:
    """The sentence of this key (`findings.no_loss`) with its values filled in."""
    group, _, name = key.partition(".")
    return str(_data("sentences.yaml")[group][name]).format(**values)


def section_texts(anchor: str, **values: object) -> tuple[str, str, str]:
    """The title of a section, its name in the table of contents, and its first sentences."""
    texts = _data("sentences.yaml")["sections"][anchor]
    title = texts["title"].format(**values)
    return title, texts.get("link", title), texts.get("lead", "").format(**values)


def glossary_of(anchor: str) -> Mapping[str, str]:
    """The terms that a section explains, with their meanings."""
    return dict(_data("glossary.yaml").get(anchor) or {})


@cache
def _data(name: str) -> dict[str, dict[str, Any]]:
    text = files("netbench.report").joinpath(name).read_text(encoding="utf-8")
    return dict(yaml_value(text))
