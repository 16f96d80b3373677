"""The caveats of a campaign: limits of its findings, with remedies, and reasons for missing results."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from netbench.model.campaign import CampaignResults
from netbench.model.limits import LimitKind
from netbench.model.packet_counts import OTHER_HEADERS
from netbench.model.verdict import Reason, ReasonKind, Verdict
from netbench.report.formats import capitalised, count, enumerated, section_texts, sentence
from netbench.statistics.changed_fields import ChangedFrames, by_packet_and_field, changed_frames
from netbench.statistics.groups import Group, best_groups, grouped
from netbench.statistics.interference import relative_maxima
from netbench.statistics.intervals import MOST_REPETITIONS, RatioOfMeans, Unknown, repetitions_for

_MOST_CAVEATS = 3
_CLOSE_ENOUGH = 0.1  # the widest interval of a ratio, ±
_REMEDIES: dict[ReasonKind | LimitKind, str] = {
    ReasonKind.OFFERED_OUT_OF_TOLERANCE: "lower_load",
    ReasonKind.CAPTURE_DROPPED: "bpf_sink",
    ReasonKind.TESTER_DROPPED: "bpf_sink",
    ReasonKind.TESTER_DISTURBED: "idle_machine",
    ReasonKind.UNEVEN_PACING: "idle_machine",
    LimitKind.REQUESTED_LOAD: "raise_load",
    LimitKind.SOURCE: "faster_source",
}


def caveats(
    results: CampaignResults, groups: Sequence[Group], of_flows: Iterable[tuple[str, str]] = ()
) -> list[tuple[str, str]]:
    """The most important caveats, each with the id of the section that shows it; `of_flows` are found elsewhere."""
    found = [
        *_missing(results),
        *of_flows,
        *_changed(results, groups),
        *_lower_bounds(groups),
        *_wide_intervals(groups),
        *_emulated(results),
    ]
    is_alone = len(found) == 1
    shown = [
        (text if is_alone else f"({number}) {text}", anchor)
        for number, (text, anchor) in enumerate(found[:_MOST_CAVEATS], 1)
    ]
    if rest := found[_MOST_CAVEATS:]:
        titles = dict.fromkeys(section_texts(anchor, by="")[1] for _, anchor in rest)
        text = sentence("caveats.more", caveats=count(len(rest), "more caveat"), sections=enumerated(list(titles)))
        shown.append((text, rest[0][1]))
    return shown


def no_result(results: CampaignResults) -> str:
    """Why there is no result, with the remedy."""
    measured = list(results.wanted_trials)
    if not measured:
        return sentence("caveats.nothing_measured", planned=f"{results.planned_trials:,}")
    trials = count(len(measured), "measured trial")
    kinds = _kinds_against(results)
    if not kinds:
        return sentence("caveats.nothing_counted", trials=trials)
    kind, number = kinds[0]
    remedy = _remedy(kind) or sentence("caveats.see_verdicts")
    return sentence(
        "caveats.nothing_valid", trials=trials, kind=kind.value, often=count(number, "trial"), remedy=remedy
    )


def _missing(results: CampaignResults) -> Iterator[tuple[str, str]]:
    """The trials without results that count."""
    if results.searches:
        return
    if (missing := results.missing_trials) > 0:
        text = sentence("caveats.missing", missing=f"{missing:,}", planned=f"{results.planned_trials:,}")
        yield text, "verdicts"
    trials = list(results.wanted_trials)
    if excluded := sum(trial.verdict is not Verdict.VALID for trial in trials):
        kind, number = _kinds_against(results)[0]
        text = sentence(
            "caveats.invalid",
            excluded=f"{excluded:,}",
            trials=count(len(trials), "trial"),
            verb="is" if excluded == 1 else "are",
            kind=("" if number == excluded else "most often ") + kind.value,
        )
        remedy = _remedy(kind)
        yield f"{text} {capitalised(remedy)}." if remedy else text, "verdicts"


def _changed(results: CampaignResults, groups: Sequence[Group]) -> Iterator[tuple[str, str]]:
    """The header fields that are not as expected at the sink, by packet, and for UUTs with the same changes at once."""
    described = {name for name, packet in results.packets.items() if isinstance(packet, Mapping) and "expect" in packet}
    by_pair = grouped(
        by_packet_and_field(changed_frames(groups)),
        lambda changed: (changed.measurement.uut, changed.measurement.frame_size.packet),
    )
    alike = grouped(
        by_pair, lambda pair: (pair[1], tuple(changed.field._replace(frames=0) for changed in by_pair[pair]))
    )
    for (packet, _), pairs in list(alike.items())[:_MOST_CAVEATS]:
        texts = [
            _changed_text([by_pair[pair][place] for pair in pairs], has_expect=packet in described)
            for place in range(len(by_pair[pairs[0]]))
        ]
        if (more := len(texts) - _MOST_CAVEATS) > 0:
            texts[_MOST_CAVEATS:] = [count(more, "more field")]
        frames = f"{packet} frames" if packet else "plain frames"
        uuts = _named(uut for uut, _ in pairs)
        yield sentence("caveats.changed", fields="; ".join(texts), uuts=uuts, frames=frames), "changed-fields"
    if left := sum(len(pairs) for pairs in list(alike.values())[_MOST_CAVEATS:]):
        yield sentence("caveats.more_changed", pairs=count(left, "more pair")), "changed-fields"


def _changed_text(same: Sequence[ChangedFrames], *, has_expect: bool) -> str:
    """The change of one field of a stream through some UUTs, and its remedy; `has_expect`: a user described it."""
    field = same[0].field
    if field.name == OTHER_HEADERS and field.arrived:
        key = "changed_headers"
    elif not field.arrived:
        key = "changed_field"
    elif field.arrived == field.sent:
        key = "changed_as_sent" if has_expect else "changed_not_rewritten"
    elif field.expected == field.sent:
        key = "changed_by_uut"
    else:
        key = "changed_otherwise"
    return sentence(
        f"caveats.{key}",
        field=same[0].name,
        sent=field.sent,
        expected=field.expected,
        arrived=field.arrived,
        changed=f"{sum(changed.frames for changed in same):,}",
        received=f"{sum(changed.received for changed in same):,}",
    )


def _lower_bounds(groups: Sequence[Group]) -> Iterator[tuple[str, str]]:
    """The maxima that are only lower bounds; packets are named if they do not share the limits."""
    best = best_groups(groups)
    limited: dict[LimitKind, list[Group]] = {}
    for group in best:
        if group.limited_by and not group.limited_by.is_uut:
            limited.setdefault(group.limited_by.kind, []).append(group)
    for limit, of_limit in limited.items():
        remedy = _remedy(limit) or sentence("remedies.idle_machine")
        text = _with_packets(_packets_by_uut(of_limit), _packets_by_uut(best))
        yield sentence("caveats.lower_bound", uuts=text, limit=limit.value, remedy=remedy), "maximum"


def _packets_by_uut(groups: Iterable[Group]) -> dict[str, list[str]]:
    """The names of the packets of these groups, by UUT."""
    names = grouped(groups, lambda group: group.uut)
    return {
        uut: list(dict.fromkeys(group.frame_size.packet or "plain" for group in of_uut))
        for uut, of_uut in names.items()
    }


def _with_packets(concerned: Mapping[str, Sequence[str]], measured: Mapping[str, Sequence[str]]) -> str:
    """The UUTs that a caveat concerns: `bridge (with vlan frames); route`; packets only if others are not concerned."""
    by_packets = grouped(
        concerned, lambda uut: () if set(concerned[uut]) == set(measured[uut]) else tuple(concerned[uut])
    )
    return "; ".join(
        _named(uuts) + (f" (with {_named(packets)} frames)" if packets else "") for packets, uuts in by_packets.items()
    )


def _wide_intervals(groups: Sequence[Group]) -> Iterator[tuple[str, str]]:
    """Intervals that are missing or too wide."""
    valid = [len(group.valid) for group in groups if group.valid]
    if valid and max(valid) == 1:
        yield sentence("caveats.one_repetition"), "results"
        return
    maxima = relative_maxima(groups)
    wide = [maximum for maximum in maxima if _is_wide(maximum.ratio)]
    if wide:
        intervals = [group.throughput_fps for maximum in wide for group in (maximum.best, maximum.base)]
        known = (interval for interval in intervals if interval and interval.mean)
        needed = max((repetitions_for(interval, _CLOSE_ENOUGH / 2) for interval in known), default=3)
        many = f"{needed} repetitions or more" if needed >= MOST_REPETITIONS else f"{needed} repetitions"
        of_wide, measured = (_packets_by_uut(maximum.best for maximum in of) for of in (wide, maxima))
        uuts = _with_packets(of_wide, measured)
        yield sentence("caveats.wide_interval", uuts=uuts, many=many, needed=needed), "isolation"


def _is_wide(ratio: RatioOfMeans) -> bool:
    if ratio.unknown in (Unknown.TOO_FEW, Unknown.BASE_MAY_BE_ZERO):
        return True
    return ratio.excluded is not None and ratio.excluded > _CLOSE_ENOUGH


def _emulated(results: CampaignResults) -> Iterator[tuple[str, str]]:
    if emulated := [uut for uut in results.uuts if uut in results.emulated]:
        yield sentence("caveats.emulated", uuts=_named(emulated)), "uuts"


def frequent_kinds(by_trial: Iterable[Iterable[Reason]]) -> list[tuple[ReasonKind, int]]:
    """The kinds of reasons, the most frequent first, each with the number of its trials."""
    kinds = (dict.fromkeys(reason.kind for reason in reasons) for reasons in by_trial)
    return Counter(chain.from_iterable(kinds)).most_common()


def _kinds_against(results: CampaignResults) -> list[tuple[ReasonKind, int]]:
    return frequent_kinds(
        [reason for reason in trial.reasons if reason.kind.verdict is not Verdict.VALID]
        for trial in results.wanted_trials
    )


def _remedy(cause: ReasonKind | LimitKind) -> str:
    """The remedy; empty if there is none."""
    return sentence(f"remedies.{_REMEDIES[cause]}") if cause in _REMEDIES else ""


def _named(uuts: Iterable[str]) -> str:
    names = list(uuts)
    if len(names) > _MOST_CAVEATS + 1:
        return f"{', '.join(names[:_MOST_CAVEATS])} and {len(names) - _MOST_CAVEATS} more"
    return enumerated(names)
