"""The sentences about the stability of UUTs, the same on the console and on the pages."""

from collections.abc import Iterable, Iterator

from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.report.formats import UNKNOWN, change, count, percent_limit
from netbench.statistics.drift import BootEffects, Drift, FirstTrials, Steadiness

_AN_HOUR_FROM_S = 1800.0  # shorter campaigns are not extrapolated to an hour
_LEAST_SHOWN = 1e-6


def drift_words(drift: Drift) -> str:
    """`−4.1 % (−5.2 … −3.0 %)`; `none above 0.8 %`, where none is significant; else why it is unknown."""
    if drift.change is None:
        return f"unknown: {drift.unknown}"
    if drift.significant:
        limits = (
            UNKNOWN if drift.low is None or drift.high is None else f"{change(drift.low)[:-2]} … {change(drift.high)}"
        )
        return f"{change(drift.change)} ({limits})"
    if drift.excluded is None:
        return "unknown: too few repetitions"
    return _none_above(drift.excluded)


def drift_an_hour_words(drift: Drift) -> str:
    """The drift per hour; empty for campaigns shorter than half an hour."""
    if drift.change is None or drift.excluded is None or drift.over_s < _AN_HOUR_FROM_S:
        return ""
    part = 3600 / drift.over_s
    return change(drift.change * part) if drift.significant else _none_above(drift.excluded * part)


def boots_words(boots: BootEffects | None) -> str:
    """`5 boots: standard deviation 2.1 % between boots, 0.4 % within a boot; …`; `5 boots, no difference`."""
    if boots is None:
        return UNKNOWN
    if not boots.significant:
        return f"{count(len(boots.boots), 'boot')}, no difference"
    before, after = boots.largest_step
    step = change(after.mean - before.mean)
    return (
        f"{count(len(boots.boots), 'boot')}: standard deviation {_percent(boots.between)} between boots, "
        f"{_percent(boots.within)} within a boot; largest step {step}, from boot {before.number} to boot {after.number}"
    )


def first_trials_words(first: FirstTrials | None) -> str:
    """`the first 2: −3.1 %`; `no difference`."""
    if first is None:
        return UNKNOWN
    return f"{_first(first.trials)}: {change(first.change)}" if first.significant else "no difference"


def p_of(one: Drift | BootEffects | FirstTrials | None) -> str:
    """The p, corrected for the number of UUTs, to three decimals."""
    if one is None or one.corrected is None:
        return UNKNOWN
    return "<0.001" if one.corrected < 0.001 else f"{one.corrected:.3f}"


def steadiness_remarks(found: Iterable[Steadiness]) -> Iterator[str]:
    """A line for each large drift, effect of boots and effect of first trials."""
    for steadiness in found:
        if steadiness.drift.is_large:
            yield f"drift of {steadiness.uut} over the campaign: {drift_words(steadiness.drift)}"
        if steadiness.boots and steadiness.boots.is_large:
            yield f"{steadiness.uut}, {boots_words(steadiness.boots)}"
        if steadiness.first and steadiness.first.is_large:
            yield f"{steadiness.uut}, {first_trials_words(steadiness.first)} against the others of each boot"


def steadiness_warnings(found: Iterable[Steadiness]) -> Iterator[CampaignWarning]:
    """A warning for each change of more than a percent during the measurement, which affects means."""
    for steadiness in found:
        drift, boots, first = steadiness.drift, steadiness.boots, steadiness.first
        if drift.is_large:
            hourly = drift_an_hour_words(drift)
            yield CampaignWarning(
                WarningKind.DRIFT,
                f"UUT {steadiness.uut}: the throughput drifted by {drift_words(drift)} from its first trial to its last"
                f"{f', {hourly} an hour' if hourly else ''} (p {p_of(drift)}). Means cover all of this time. Find what "
                "changed (CPU frequency, temperature, other load on the machine, memory of the UUT), and measure again "
                "before you trust small differences.",
            )
        if boots and boots.is_large:
            yield CampaignWarning(
                WarningKind.BOOTS_DIFFER,
                f"UUT {steadiness.uut}: the throughput depends on the boot ({boots_words(boots)}; p {p_of(boots)}). "
                "Intervals over boots include this. On a single boot they do not: use order: interleaved, or "
                "reboot: trial.",
            )
        if first and first.is_large:
            yield CampaignWarning(
                WarningKind.FIRST_TRIALS_DIFFER,
                f"UUT {steadiness.uut}: {_first(first.trials)} of each boot differ from those after them by "
                f"{change(first.change)} (p {p_of(first)}). Exclude them from the results: warm_up_trials: "
                f"{first.trials}, or auto.",
            )


def _first(trials: int) -> str:
    return "the first trial" if trials == 1 else f"the first {trials} trials"


def _none_above(excluded: float) -> str:
    limit = percent_limit(max(excluded, _LEAST_SHOWN)) if excluded < 1 else f"{100 * excluded:,.0f}"
    return f"none above {limit} %"


def _percent(ratio: float) -> str:
    return change(ratio).lstrip("+")
