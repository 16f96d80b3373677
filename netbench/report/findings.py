"""The findings of a campaign in a few sentences, at the top of the page and of the terminal output.

They cover throughput relative to the baseline, the cost of packets and of neighbours, the onset of loss, the places of
loss, and caveats. Only UUTs in the same setting are compared, because an emulated CPU does not predict a real one. The
baseline is the first UUT of the topology in each setting.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from netbench.model.campaign import CampaignResults
from netbench.model.limits import OVERLOAD_LOSS_RATIO
from netbench.model.search import SearchResult, SearchState
from netbench.model.traffic import NAPI_POLICY
from netbench.model.verdict import Verdict
from netbench.model.workload import Workload
from netbench.report.caveats import caveats, no_result
from netbench.report.cost_findings import neighbour_findings, packet_findings
from netbench.report.finding import (
    MOST_NAMED,
    Finding,
    comparable_conditions,
    other_packets,
    repetitions_text,
    shortened,
    uuts_by_setting,
    uuts_without_packet,
)
from netbench.report.flow_findings import flow_findings
from netbench.report.formats import (
    at_least,
    capitalised,
    count,
    enumerated,
    frames,
    mbps,
    mbps_interval,
    rough_percent,
    sentence,
    times_base,
)
from netbench.report.styles import label
from netbench.report.tables.searches import bounds_text, remark
from netbench.statistics.groups import Group, best_groups, group_trials, grouped
from netbench.statistics.interference import CountedLoads, compared, counted_loads
from netbench.statistics.intervals import Interval
from netbench.statistics.limits import contradictory_maxima, maximum_of, with_limits, would_not_take_more
from netbench.statistics.lost_frames import LossPlace, lost_frames_by_place

_WORTH_NAMING = 0.1  # share of all lost frames from which a second place is named


def findings(results: CampaignResults, groups: Sequence[Group] | None = None) -> tuple[Finding, ...]:
    """The findings, the most important first; a single one where nothing was measured.

    `groups` are the groups of the results with their limits; they are computed if None. Campaigns with flows have
    findings of their own.
    """
    if results.has_flows:
        return flow_findings(results, _highest_loads(results) if results.searches else ())
    groups = with_limits(group_trials(results)) if groups is None else groups
    if not any(trial.verdict is Verdict.VALID for trial in results.wanted_trials) and not results.searches:
        return (Finding("Result", no_result(results), "verdicts"),)
    known = [
        *(_highest_loads(results) if results.searches else _throughput(results, groups)),
        *packet_findings(results, groups),
        *neighbour_findings(results, groups),
        *(() if results.searches else _loss(results, groups)),
    ]
    # Caveats come before the other findings, so that the first screen shows them.
    if found := caveats(results, groups):
        (lead, anchor), *others = found
        known.append(Finding("Caveats", lead, anchor, " ".join(text for text, _ in others)))
    known += [
        *_contradictions(results, groups),
        *_places(results),
        *_napi_policies(results),
        *_unstable_maxima(results),
    ]
    if results.noise_floor is not None:
        known.append(Finding("Noise", str(results.noise_floor), "results"))
    return tuple(known)


def _throughput(results: CampaignResults, groups: Sequence[Group]) -> Iterator[Finding]:
    """The highest throughput of each UUT at the smallest frames, without neighbours."""
    best = best_groups(groups)
    conditions = comparable_conditions(best, results.packets)
    if conditions is None:
        if any(group.valid for group in groups):
            yield Finding("Throughput", sentence("findings.no_maximum"), "maximum")
        return
    group_of = {group.uut: group for group in best if conditions.include(group)}
    settings, counted = uuts_by_setting(results, group_of), counted_loads(groups)
    parts = [_of_setting(uuts, group_of, counted, results, is_alone=len(settings) == 1) for uuts in settings]
    (lead, first), *others = parts
    details = [*([first] if first else []), *(f"{lead} {more}".strip() for lead, more in others)]
    details.append(sentence("findings.conditions", conditions=f"{conditions}, {repetitions_text(group_of.values())}"))
    if without := uuts_without_packet(best, conditions):
        packet = conditions.frame_size.packet or "plain"
        details.append(sentence("findings.without_packet", uuts=_names(results, without), packet=packet))
    if others_text := other_packets(best, conditions):
        details.append(others_text)
    yield Finding("Throughput", lead, "maximum", " ".join(details))


def _of_setting(
    uuts: Sequence[str],
    group_of: Mapping[str, Group],
    counted: CountedLoads,
    results: CampaignResults,
    *,
    is_alone: bool,
) -> tuple[str, str]:
    """The sentence about the fastest UUT of a setting, and the one about the others.

    `xdp forwards most: 749 ± 139 Mbit/s, 1.62 × bridge (1.29 … 2.00).` With other settings, the number of UUTs that
    are compared is part of the sentence.
    """
    baseline, base = uuts[0], group_of.get(uuts[0])  # a baseline without data is None
    top, *others = sorted((group_of[uut] for uut in uuts if uut in group_of), key=_height, reverse=True)

    def name(uut: str) -> str:
        return label(uut, results.emulated)

    def relative(group: Group) -> str:
        if base is None or group is base:
            return ""
        return f", {times_base(compared(group, base, counted), name(baseline))}"

    texts = {group.uut: f"{name(group.uut)} {_amount(group)}{relative(group)}" for group in others}
    if base is None or not others:
        lead = sentence("findings.only", uut=name(top.uut), amount=_amount(top))
        no_baseline = sentence("findings.no_baseline", baseline=name(baseline)) if base is None else ""
        more = "; ".join(list(texts.values())[:MOST_NAMED])
        return lead, f"{more}. {no_baseline}" if more else no_baseline
    of = "" if is_alone else f" among the {len(others) + 1} comparable UUTs"
    tied = [group for group in (top, *others) if top.is_lower_bound and group.is_lower_bound and group.load == top.load]
    if len(tied) > 1 and any(group is base for group in tied):
        amounts = "; ".join(f"{name(group.uut)} {_most_of(group)}" for group in tied)
        kinds = dict.fromkeys(group.limited_by.kind.value for group in tied if group.limited_by)
        lead = sentence("findings.tied", uuts=enumerated([name(group.uut) for group in tied[:MOST_NAMED]]), of=of)
        details = [sentence("findings.tied_details", amounts=amounts, limits=enumerated(list(kinds)))]
    else:
        tied, details = [top], []
        lead = sentence("findings.most", uut=name(top.uut), of=of, amount=_amount(top), relative=relative(top))
    rest = [text for uut, text in texts.items() if uut not in {group.uut for group in tied}]
    if rest:
        details.append(f"{'; '.join(shortened(rest, 'more_uuts', MOST_NAMED - 1))}.")
    return lead, " ".join(details)


def _amount(group: Group) -> str:
    """The highest throughput, with its limit where that was not the UUT."""
    most = f"{_most_of(group)} Mbit/s"
    return f"{most} (lower bound, limited by {group.limited_by})" if group.is_lower_bound else most


def _most_of(group: Group) -> str:
    """`≥ 749.0 ± 139.0`, in Mbit/s, to the digits of the mean."""
    most = group.maximum_mbps
    text = mbps_interval(most)
    if most is not None and most.mean >= 1 and most.half_width and most.half_width < 0.1:
        text = f"{mbps(most.mean)} ± 0.1"  # rounded up
    return at_least(text, group.is_lower_bound)


def _loss(results: CampaignResults, groups: Sequence[Group]) -> Iterator[Finding]:
    """The loads between which loss begins for each UUT, or the most that its link accepts."""
    conditions = comparable_conditions(best_groups(groups), results.packets)
    if conditions is None:
        return
    onsets: list[tuple[float, str]] = []
    never: dict[str, float] = {}
    backpressure: list[str] = []
    judged: list[Group] = []
    for uut, of_uut in grouped(filter(conditions.include, groups), lambda group: group.uut).items():
        loads = sorted((group for group in of_uut if group.valid and group.offered_mbps), key=_offered)
        if not loads:
            continue
        name = label(uut, results.emulated)
        first = next((index for index, group in enumerate(loads) if would_not_take_more(group)), None)
        group = loads[-1 if first is None else first]
        offered = mbps(_offered(group))
        judged.append(group)
        if first is None:
            never[name] = _offered(group)
        elif (loss := group.loss_ratio) is not None and loss.mean > OVERLOAD_LOSS_RATIO:
            between = f"between {mbps(_offered(loads[first - 1]))} and {offered}" if first else f"at {offered} or less"
            onsets.append((_offered(group), f"{name} {between} ({_loss_text(loss)} at {offered})"))
        else:
            backpressure.append(f"{name} {offered}")
    limit = f"{100 * OVERLOAD_LOSS_RATIO:g} %"
    parts = []
    if onsets:
        texts = [text for _, text in sorted(onsets, key=lambda onset: -onset[0])]  # highest load first
        parts.append(sentence("findings.onset", limit=limit, onsets="; ".join(shortened(texts, "more_onsets"))))
    if never:
        most = mbps(max(never.values()))
        parts.append(sentence("findings.no_onset", limit=limit, uuts=enumerated(list(never)), most=most))
    if backpressure:
        parts.append(sentence("findings.backpressure", loads="; ".join(backpressure)))
    if parts:
        lead, *details = parts
        about = sentence("findings.conditions", conditions=f"{conditions}, {repetitions_text(judged)}")
        yield Finding("Loss", lead, "loss", " ".join((*details, about)))


def _loss_text(ratio: Interval) -> str:
    """`30.1 % ± 2.0`, or the interval cut at 0 and 100 % where it exceeds them."""
    if not ratio.half_width:
        return rough_percent(ratio.mean)
    low, high = ratio.mean - ratio.half_width, ratio.mean + ratio.half_width
    if low < 0 or high > 1:
        return f"{rough_percent(ratio.mean)}, {100 * max(0.0, low):.0f} … {100 * min(1.0, high):.0f} %"
    return f"{rough_percent(ratio.mean)} ± {100 * ratio.half_width:.1f}"


def _places(results: CampaignResults) -> Iterator[Finding]:
    """Where frames were lost: for all UUTs together, and for UUTs that lost most of theirs elsewhere."""
    valid = [trial for trial in results.wanted_trials if trial.verdict is Verdict.VALID]
    if not valid:
        return
    by_uut = {uut: lost_frames_by_place(trials) for uut, trials in grouped(valid, lambda trial: trial.spec.uut).items()}
    places: Counter[LossPlace] = Counter()
    for of_uut in by_uut.values():
        places.update(of_uut)
    total, trials = places.total(), count(len(valid), "valid trial")
    if total <= 0:
        yield Finding("Place of loss", sentence("findings.no_loss", trials=trials), "places")
        return
    (first, most), *others = places.most_common()
    # A second place is named if it is important, or if it is all the rest.
    more = [(place, number) for place, number in others[:1] if number >= _WORTH_NAMING * total or len(others) == 1]
    tops = {place for of_uut in by_uut.values() for place, _ in of_uut.most_common(1)}
    rest = [(place, number) for place, number in others[len(more) :] if number > 0 and place not in tops]
    elsewhere = [
        f"{label(uut, results.emulated)} {rough_percent(number / of_uut.total())} at {place.name}"
        for uut, of_uut in by_uut.items()
        for place, number in of_uut.most_common(1)
        if place != first and number > 0
    ]
    lead = sentence(
        "findings.places",
        share=rough_percent(most / total),
        lost=frames(total),
        place=first.name,
        more="".join(f", {rough_percent(number / total)} at {place.name}" for place, number in more),
        trials=trials,
    )
    shares = [*elsewhere, *(f"{rough_percent(number / total)} at {place.name}" for place, number in rest)]
    details = sentence("findings.places_elsewhere", shares="; ".join(shares[:MOST_NAMED])) if shares else ""
    yield Finding("Place of loss", lead, "places", details)


def _highest_loads(results: CampaignResults) -> Iterator[Finding]:
    """The highest load of each UUT that meets the first goal, relative to the baseline's."""
    known = [
        search for search in results.searches if search.lower is not None and search.state is not SearchState.FAILED
    ]
    if not known:
        failed = results.searches[:MOST_NAMED]
        whys = [f"{label(search.uut, results.emulated)}, {search.goal}: {remark(search)}" for search in failed]
        yield Finding("Highest load", sentence("findings.no_search"), "searches", f"{'; '.join(whys)}.")
        return
    goal, scenario = known[0].goal, known[0].scenario
    alike = [search for search in known if (search.goal, search.scenario) == (goal, scenario)]
    first = known[0] if known[0].of_flows else min(alike, key=lambda search: (len(search.streams), search.frame_size))
    traffic, of_first = first.kind_of_traffic, (len(first.streams), first.kind_of_traffic)
    shown = (search for search in alike if (len(search.streams), search.kind_of_traffic) == of_first)
    searched = grouped(shown, lambda search: search.uut)
    merged = {uut: _merged(same) for uut, same in searched.items()}
    times = max(map(len, searched.values()))
    per_stream = f"each stream, {count(times, 'search', 'searches')} each" if times > 1 else "each stream"
    parts = []
    for uuts in uuts_by_setting(results, merged):
        base = merged.get(uuts[0])
        of_setting = [merged[uut] for uut in uuts if uut in merged]
        for search in sorted(of_setting, key=lambda search: search.lower or 0.0, reverse=True):
            text = f"{label(search.uut, results.emulated)} {bounds_text(search)}"
            parts.append(text if base is None or base is search else f"{text}, {_bounds_ratio(search, base)}")
    traffic_name = traffic.name if isinstance(traffic, Workload) else traffic.frames_text
    at = f"{traffic_name} in {scenario}" if scenario else traffic_name
    others = f"{'; '.join(parts[1:])}. " if parts[1:] else ""
    lead = sentence("findings.highest_load", goal=goal, first=parts[0])
    details = sentence("findings.search_conditions", others=others, conditions=f"{at}, {per_stream}")
    yield Finding("Highest load", lead, "searches", details)


def _merged(same: Sequence[SearchResult]) -> SearchResult:
    """The repeated search with the lowest bound, with the highest upper bound of all of them."""
    lowest = min(same, key=lambda search: search.lower or 0.0)
    tops = [search.upper for search in same]
    upper = None if None in tops else max(top for top in tops if top is not None)
    return lowest if len(same) == 1 else replace(lowest, upper=upper)


def _bounds_ratio(new: SearchResult, base: SearchResult) -> str:
    """The ratio of the loads of two searches, from their bounds."""
    if not base.lower or not new.lower:
        return f"not comparable with {base.uut}"
    ratio = f"{new.lower / base.lower:.2f} ×"
    if new.upper is None or base.upper is None or SearchState.AT_LEAST in (new.state, base.state):
        return f"{ratio} the lower bound of {base.uut}"
    return f"{ratio} {base.uut} ({new.lower / base.upper:.2f} … {new.upper / base.lower:.2f})"


def _napi_policies(results: CampaignResults) -> Iterator[Finding]:
    """The UUTs whose receiving threads do not run in Linux's default scheduling policy."""
    policies = {uut: facts[NAPI_POLICY] for uut, facts in results.facts.items() if NAPI_POLICY in facts}
    for policy, uuts in grouped(policies, lambda uut: policies[uut]).items():
        text = sentence("findings.napi_policy", uuts=_names(results, uuts), policy=policy)
        yield Finding("Scheduling", text, "tester")


def _unstable_maxima(results: CampaignResults) -> Iterator[Finding]:
    """The UUTs whose loads are shares of a maximum from an unstable search."""
    if unstable := dict.fromkeys(search.uut for search in results.maxima_searches if search.unstable):
        yield Finding("Loads", sentence("findings.unstable_maxima", uuts=_names(results, unstable)), "searches")


def _contradictions(results: CampaignResults, groups: Sequence[Group]) -> Iterator[Finding]:
    """Maxima that contradict each other though they were measured again."""
    calibrated = {
        (search.uut, search.frame_size, len(search.streams)): (search.scenario, maximum.fps * len(search.streams))
        for search in results.maxima_searches
        if (maximum := maximum_of(search)) is not None
    }
    if contradictions := contradictory_maxima(groups, calibrated):
        text = "; ".join(contradiction.text for contradiction in contradictions[:MOST_NAMED])
        lead = sentence("findings.contradictions", contradictions=capitalised(text))
        yield Finding("Contradictions", lead, "maximum")


def _names(results: CampaignResults, uuts: Iterable[str]) -> str:
    return enumerated([label(uut, results.emulated) for uut in uuts][:MOST_NAMED])


def _height(group: Group) -> float:
    return group.maximum_fps.mean if group.maximum_fps else 0.0


def _offered(group: Group) -> float:
    return group.offered_mbps.mean if group.offered_mbps else 0.0
