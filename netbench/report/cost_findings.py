"""The findings about costs: of neighbours, and of packets."""

from collections.abc import Iterable, Iterator, Sequence

from netbench.model.campaign import CampaignResults
from netbench.model.frame_size import FrameSize
from netbench.model.scenario import DEDICATED
from netbench.report.finding import MOST_NAMED, Finding, comparable_conditions, repetitions_text, shortened
from netbench.report.formats import (
    cost,
    enumerated,
    excluded,
    limit_excluded,
    not_measurable,
    sentence,
    times_base,
)
from netbench.report.styles import label
from netbench.statistics.groups import Group, grouped
from netbench.statistics.interference import RelativeMaximum, relative_maxima
from netbench.statistics.intervals import RatioOfMeans
from netbench.statistics.packet_cost import PacketCost, packet_costs


def neighbour_findings(results: CampaignResults, groups: Sequence[Group]) -> Iterator[Finding]:
    """The cost of the costliest neighbour for the highest throughput of each UUT, in topology order."""
    maxima = relative_maxima(groups)
    costly = [
        (ratio, maximum)
        for maximum in maxima
        if maximum.ratio.significant and (ratio := maximum.ratio.ratio) is not None and ratio < 1
    ]
    if costly:
        _, worst = min(costly, key=lambda pair: pair[0])
        alike = [
            maximum
            for maximum in maxima
            if maximum is worst or (_alike(maximum) == _alike(worst) and maximum.victim.uut != worst.victim.uut)
        ]
        several = len({maximum.scenario for maximum in maxima}) > 1
        lead, details = _costs(results, worst, alike, several=several)
        repetitions = repetitions_text(group for maximum in alike for group in (maximum.best, maximum.base))
        conditions = f"{worst.victim.frame_size.frames_text}, {repetitions}"
        about = sentence("findings.conditions", conditions=conditions)
        yield Finding("Neighbours", lead, "isolation", " ".join((*details, about)))
    elif maxima:
        texts = []
        by_uut = grouped(maxima, lambda maximum: label(maximum.victim.uut, results.emulated))
        for uut, of_uut in list(by_uut.items())[:MOST_NAMED]:
            by_scenario = grouped(of_uut, lambda maximum: maximum.scenario)
            ratios = {scenario: [maximum.ratio for maximum in same] for scenario, same in by_scenario.items()}
            texts.append(f"{uut}: {excluded(ratios)}")
        is_known = not all(not_measurable(maximum.ratio) for maximum in maxima)
        lead = sentence("findings.no_cost" if is_known else "findings.cost_unknown")
        yield Finding("Neighbours", lead, "isolation", f"{'; '.join(texts)}.")


def _costs(
    results: CampaignResults, worst: RelativeMaximum, alike: Sequence[RelativeMaximum], *, several: bool
) -> tuple[str, list[str]]:
    """`cpu-heavy cuts the peak throughput of bridge by 51 % (43 … 58 %).`, and sentences about other UUTs.

    Each UUT is classified by its interval, because no run can rank two similar costs.
    """
    order = list(dict.fromkeys((*results.uuts, *(maximum.victim.uut for maximum in alike))))
    cuts, gains, same, unclear = list[str](), list[str](), list[str](), list[str]()
    for maximum in sorted(alike, key=lambda maximum: order.index(maximum.victim.uut)):
        uut, ratio = label(maximum.victim.uut, results.emulated), maximum.ratio
        if why := not_measurable(ratio):
            unclear.append(f"{uut} {why}")
        elif ratio.significant and (ratio.ratio or 0.0) < 1:
            cuts.append(f"of {uut} by {cost(ratio)}")
        elif ratio.significant:
            gains.append(f"{uut} {times_base(ratio, worst.baseline)}")
        else:
            same.append(f"{uut} (changes above {limit_excluded([ratio])} % are excluded)")
    lead = sentence(
        "findings.costs_most" if several else "findings.costs",
        scenario=worst.scenario,
        cuts=enumerated(shortened(cuts, "more_cuts")),
        alone="" if worst.baseline == DEDICATED else f" compared with {worst.baseline}",
    )
    details = [sentence("findings.no_change", uuts=enumerated(same[:MOST_NAMED]))] if same else []
    details += [f"{'; '.join(texts[:MOST_NAMED])}." for texts in (gains, unclear) if texts]
    return lead, details


def packet_findings(results: CampaignResults, groups: Sequence[Group]) -> Iterator[Finding]:
    """The cost of each packet relative to plain frames, the costliest first, at the smallest frames."""
    costs = packet_costs(groups)
    conditions = comparable_conditions([packet_cost.plain for packet_cost in costs])
    if conditions is None:
        return
    shown = [packet_cost for packet_cost in costs if conditions.include(packet_cost.plain)]
    cuts = sorted(
        (packet_cost for packet_cost in shown if _is_cut(packet_cost.frames)),
        key=lambda packet_cost: packet_cost.frames.ratio or 0.0,
    )
    texts = [
        (packet, enumerated(shortened([_cut_text(results, packet_cost) for packet_cost in same], "more_cuts")))
        for packet, same in grouped(cuts, _packet_of).items()
    ]
    details = [f"{packet}: {text}." for packet, text in texts[1:MOST_NAMED]]
    by_uut = grouped(
        (packet_cost for packet_cost in shown if packet_cost not in cuts),
        lambda packet_cost: label(packet_cost.best.uut, results.emulated),
    )
    details += [f"{uut}: {_other_costs(same)}." for uut, same in list(by_uut.items())[:MOST_NAMED]]
    if texts:
        (packet, text), *_ = texts
        several = len(dict.fromkeys(map(_packet_of, shown))) > 1
        lead = sentence("findings.packet_costs_most" if several else "findings.packet_costs", packet=packet, cuts=text)
    else:
        is_known = not all(not_measurable(packet_cost.frames) for packet_cost in shown)
        lead = sentence("findings.no_packet_cost" if is_known else "findings.packet_cost_unknown")
    repetitions = repetitions_text(group for packet_cost in shown for group in (packet_cost.best, packet_cost.plain))
    details.append(sentence("findings.conditions", conditions=f"{conditions}, {repetitions}"))
    yield Finding("Packets", lead, "packet-cost", " ".join(details))


def _packet_of(packet_cost: PacketCost) -> str:
    return packet_cost.best.frame_size.packet


def _is_cut(ratio: RatioOfMeans) -> bool:
    return bool(not not_measurable(ratio) and ratio.significant and (ratio.ratio or 0.0) < 1)


def _cut_text(results: CampaignResults, packet_cost: PacketCost) -> str:
    return f"of {label(packet_cost.best.uut, results.emulated)} by {cost(packet_cost.frames)}"


def _other_costs(costs: Iterable[PacketCost]) -> str:
    """Return the clauses about packets that cost nothing measurable: `no significant change with ipv6, vlan (…)`."""
    same, texts = list[PacketCost](), list[str]()
    unclear: dict[str, list[str]] = {}
    for packet_cost in costs:
        if why := not_measurable(packet_cost.frames):
            unclear.setdefault(why, []).append(_packet_of(packet_cost))
        elif packet_cost.frames.significant:
            texts.append(f"{_packet_of(packet_cost)} {times_base(packet_cost.frames, 'plain frames')}")
        else:
            same.append(packet_cost)
    if same:
        limit = limit_excluded(packet_cost.frames for packet_cost in same)
        known = "" if limit is None else f" (changes above {limit} % are excluded)"
        texts.insert(0, f"no significant change with {', '.join(map(_packet_of, same))}{known}")
    return "; ".join((*texts, *(f"{', '.join(names)} {why}" for why, names in unclear.items())))


def _alike(maximum: RelativeMaximum) -> tuple[str, int, FrameSize]:
    """Return the key by which maxima are grouped into one sentence."""
    return maximum.scenario, maximum.victim.sources, maximum.victim.frame_size
