"""The sentences about the stability of UUTs: page, terminal and exports share them."""

from collections.abc import Iterable, Iterator

from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.report.formats import UNKNOWN, change, count, p_value, percent_limit, sentence
from netbench.statistics.drift import BootEffects, Drift, FirstTrials, Steadiness

_AN_HOUR_FROM_S = 1800.0  # shorter campaigns are not extrapolated to an hour
_LEAST_SHOWN = 1e-6


def drift_words(drift: Drift) -> str:
    """`−4.1 % (−5.2 … −3.0 %)`; `none above 0.8 %`, where none is significant; else why it is unknown."""
    if drift.change is None:
        return f"unknown: {drift.unknown}"
    if not drift.significant:
        return "unknown: too few repetitions" if drift.largest_change is None else _none_above(drift.largest_change)
    known = drift.low is not None and drift.high is not None
    limits = f"{change(drift.low).removesuffix(' %')} … {change(drift.high)}" if known else UNKNOWN
    return f"{change(drift.change)} ({limits})"


def drift_an_hour_words(drift: Drift) -> str:
    """The drift per hour; empty for campaigns shorter than half an hour."""
    if drift.change is None or drift.largest_change is None or drift.over_s < _AN_HOUR_FROM_S:
        return ""
    part = 3600 / drift.over_s
    return change(drift.change * part) if drift.significant else _none_above(drift.largest_change * part)


def boots_words(boots: BootEffects | None) -> str:
    """`5 boots: standard deviation 2.1 % between boots, 0.4 % within a boot; …`; `5 boots, no difference`."""
    if boots is None:
        return UNKNOWN
    number = count(len(boots.boots), "boot")
    if not boots.significant:
        return f"{number}, no difference"
    before, after = boots.largest_step
    return sentence(
        "stability.boots",
        boots=number,
        between=change(boots.between).lstrip("+"),
        within=change(boots.within).lstrip("+"),
        step=change(after.mean - before.mean),
        before=before.number,
        after=after.number,
    )


def first_trials_words(first: FirstTrials | None) -> str:
    """`the first 2 trials: −3.1 %`; `no difference`."""
    if first is None:
        return UNKNOWN
    return f"{_first(first.trials)}: {change(first.change)}" if first.significant else "no difference"


def p_of(test: Drift | BootEffects | FirstTrials | None) -> str:
    """The p, corrected for the number of UUTs, to three decimals."""
    return p_value(None if test is None else test.corrected)


def steadiness_remarks(found: Iterable[Steadiness]) -> Iterator[str]:
    """A line for each large drift, effect of boots and effect of first trials."""
    for steadiness in found:
        if steadiness.drift.is_large:
            yield f"drift of {steadiness.uut} over the campaign: {drift_words(steadiness.drift)}"
        if steadiness.boots and steadiness.boots.is_large:
            yield f"{steadiness.uut}, {boots_words(steadiness.boots)}"
        if steadiness.first and steadiness.first.is_large:
            yield f"{steadiness.uut}, {first_trials_words(steadiness.first)} relative to later trials of each boot"


def steadiness_warnings(found: Iterable[Steadiness]) -> Iterator[CampaignWarning]:
    """A warning for each change of more than a percent during the measurement, which affects means."""
    for steadiness in found:
        uut, drift, boots, first = steadiness.uut, steadiness.drift, steadiness.boots, steadiness.first
        if drift.is_large:
            hourly = drift_an_hour_words(drift)
            text = sentence(
                "stability.drift",
                uut=uut,
                drift=drift_words(drift),
                hourly=f", {hourly} an hour" if hourly else "",
                p=p_of(drift),
            )
            yield CampaignWarning(WarningKind.DRIFT, text)
        if boots and boots.is_large:
            text = sentence("stability.boots_differ", uut=uut, boots=boots_words(boots), p=p_of(boots))
            yield CampaignWarning(WarningKind.BOOTS_DIFFER, text)
        if first and first.is_large:
            text = sentence(
                "stability.first_trials_differ",
                uut=uut,
                first=_first(first.trials),
                change=change(first.change),
                p=p_of(first),
                trials=first.trials,
            )
            yield CampaignWarning(WarningKind.FIRST_TRIALS_DIFFER, text)


def _first(trials: int) -> str:
    return "the first trial" if trials == 1 else f"the first {trials} trials"


def _none_above(limit: float) -> str:
    text = percent_limit(max(limit, _LEAST_SHOWN)) if limit < 1 else f"{100 * limit:,.0f}"
    return f"none above {text} %"
