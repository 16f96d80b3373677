"""The findings of a campaign in a few sentences, at the top of the page and of the terminal output.

They cover throughput relative to the baseline, the onset of loss, the places of loss, the costliest neighbour, and
caveats. Only UUTs in the same setting are compared, because an emulated CPU does not predict a real one. The baseline
is the first UUT of the topology in each setting.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import FrameSize, frames_text, rising
from netbench.model.scenario import DEDICATED, SHARED_IDLE
from netbench.model.search import SearchResult, SearchState
from netbench.model.traffic import NAPI_POLICY
from netbench.model.verdict import Verdict
from netbench.model.virtualisation import Setting
from netbench.report.formats import at_least, count, enumerated, frames, mbps, mbps_spread, mean, rough_percent
from netbench.report.open_questions import open_questions
from netbench.report.ratio_words import cost, excluded, limit_excluded, not_measurable, part_of
from netbench.report.searches import bounds_text, remark
from netbench.report.styles import label
from netbench.statistics.groups import LOST, Group, best_groups, group_trials, grouped
from netbench.statistics.interference import (
    CountedLoads,
    RelativeMaximum,
    compared,
    counted_loads,
    relative_maxima,
)
from netbench.statistics.intervals import Interval
from netbench.statistics.limits import contradictory_maxima, with_limits, would_not_take_more
from netbench.statistics.lost_frames import LossPlace, lost_frames_by_place
from netbench.statistics.reference_throughput import maximum_of

_MOST_NAMED = 4  # UUTs in a sentence
_WORTH_NAMING = 0.1  # share of all lost frames from which a second place is named


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence with its numbers, and its topic in a word or two.

    `chart` is the id of the section of the report that shows the numbers.
    """

    topic: str
    text: str
    chart: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}"


@dataclass(frozen=True, slots=True)
class _Cell:
    """The scenario, sources and frame size for which a sentence compares UUTs."""

    scenario: str
    sources: int
    frame_size: FrameSize

    def __str__(self) -> str:
        several = f" from {self.sources} sources" if self.sources > 1 else ""
        alone = " alone" if self.scenario == DEDICATED else f" in {self.scenario}"
        return f"{frames_text(self.frame_size)}{several},{alone}"

    def holds(self, group: Group) -> bool:
        return (group.scenario, group.sources, group.frame_size) == (self.scenario, self.sources, self.frame_size)


def findings(results: CampaignResults, groups: Sequence[Group] | None = None) -> tuple[Finding, ...]:
    """The sentences, the most important first; a single one where there are no findings.

    `groups` are the groups of the results with their limits; they are computed if None.
    """
    groups = with_limits(group_trials(results)) if groups is None else groups
    said = [
        *(_highest_loads(results) if results.searches else _most(results, groups)),
        *(() if results.searches else _first_loss(results, groups)),
        *_lost(results),
        *_neighbours(results, groups),
        *_napi_policies(results),
        *_unstable_maxima(results),
        *_contradictions(results, groups),
    ]
    if not any(trial.verdict is Verdict.VALID for trial in results.wanted_trials) and not results.searches:
        said = []
    topic = "Caveats" if said else "Result"
    if said and results.noise_floor is not None:
        said.append(Finding("Noise", str(results.noise_floor), "results"))
    unsaid = [Finding(topic, text, chart) for text, chart in open_questions(results, groups, nothing_said=not said)]
    return (*said, *unsaid)


def _most(results: CampaignResults, groups: Sequence[Group]) -> Iterator[Finding]:
    """The highest throughput of each UUT at the smallest frames, undisturbed, in one sentence."""
    best = best_groups(groups)
    cell = _cell(best)
    if cell is None:
        if any(group.valid for group in groups):
            why = "at no load two thirds of the repetitions were valid at the first attempt"
            yield Finding("Throughput", f"No UUT has a maximum, as {why}.", "maximum")
        return
    group_of = {group.uut: group for group in best if cell.holds(group)}
    settings, counted = _by_setting(results, group_of), counted_loads(groups)
    parts = [_of_setting(uuts, group_of, counted, results, is_alone=len(settings) == 1) for uuts in settings]
    yield Finding("Throughput", f"Of {cell}, {'; '.join(parts)} ({_repetitions(group_of.values())}).", "maximum")


def _of_setting(
    uuts: Sequence[str],
    own: Mapping[str, Group],
    counted: CountedLoads,
    results: CampaignResults,
    *,
    is_alone: bool,
) -> str:
    """`xdp forwards the most, 749 ± 139 Mbit/s, 162 % (129 … 200 %) of bridge (461 ± 64 Mbit/s); container …`.

    With other settings, the highest throughput is that within this one: `of the 3 like it`.
    """
    first, *_ = uuts  # the baseline, even without data
    measured = sorted((own[uut] for uut in uuts if uut in own), key=_height, reverse=True)

    def name(uut: str) -> str:
        return label(uut, results.emulated)

    top, *others = measured
    if first not in own:
        rest = "".join(f", {name(group.uut)} {_amount(group)}" for group in others[:_MOST_NAMED])
        return (
            f"{name(top.uut)} forwards {_amount(top)}{rest}; nothing is relative to {name(first)}, the baseline, as it"
            " has too few valid trials for a maximum"
        )
    if not others:
        return f"{name(top.uut)} forwards {_amount(top)}"
    base = own[first]
    tied = [group for group in measured if top.limited_by and group.limited_by and group.load == top.load]
    if len(tied) == 1 or base.uut not in {group.uut for group in tied}:
        tied = []
    relative = [
        f"{name(group.uut)} {_amount(group)}, {part_of(compared(group, base, counted), name(first))}"
        for group in others
        if group is not base and group.uut not in {tied_group.uut for tied_group in tied}
    ]
    of_these = "" if is_alone else f" of the {len(measured)} like {'them' if tied else 'it'}"
    if tied:
        lead = f"{enumerated([name(group.uut) for group in tied])} forward the most{of_these}, {_amounts(tied)}"
    else:
        lead = f"{name(top.uut)} forwards the most{of_these}, {_amount(top)}"
        if top is not base:
            lead += f", {part_of(compared(top, base, counted), name(first))} ({_amount(base)})"
    left = len(relative) - _MOST_NAMED + 1
    more = [f"and {left:,} more UUTs less"] if left > 1 else relative[_MOST_NAMED - 1 :]
    return "; ".join((lead, *relative[: _MOST_NAMED - 1], *more))


def _amount(group: Group) -> str:
    """The highest throughput, with its limit where that was not the UUT."""
    most = f"{_most_of(group)} Mbit/s"
    return f"{most}, not saturated: limited by {group.limited_by}" if group.limited_by else most


def _amounts(tied: Sequence[Group]) -> str:
    """The highest throughputs of UUTs that forwarded all they were offered, at the same load."""
    limits = enumerated(list(dict.fromkeys(str(group.limited_by) for group in tied)))
    most = enumerated([_most_of(group) for group in tied])
    return f"{most} Mbit/s, not saturated: limited by {limits}, so which of them could more is not known"


def _most_of(group: Group) -> str:
    return at_least(f"{mbps(mean(group.maximum_mbps))}{_spread(group.maximum_mbps)}", group.limited_by)


def _spread(interval: Interval | None) -> str:
    """` ± 139.0`, to the digits of the mean."""
    if interval is None or not interval.half_width:
        return ""
    if interval.mean >= 1 and interval.half_width < 0.1:
        return " ± 0.1"  # rounded up
    spread = mbps_spread(interval)
    return f" ({spread})" if "…" in spread else f" {spread}"


def _repetitions(groups: Iterable[Group]) -> str:
    """`n = 3`, or `n = 2 … 3`; with the number of boots: `n = 9 on 3 boots`."""
    intervals = [interval for group in groups if (interval := group.maximum_fps)]
    text = f"n = {_range(interval.n for interval in intervals)}"
    boots = [interval.boots for interval in intervals if interval.boots]
    if 1 in boots:
        return f"{text}, one boot: variation between boots unknown"
    return f"{text} on {_range(boots)} boots" if boots else text


def _range(numbers: Iterable[int]) -> str:
    known = sorted(set(numbers)) or [0]
    return f"{known[0]}" + (f" … {known[-1]}" if len(known) > 1 else "")


def _first_loss(results: CampaignResults, groups: Sequence[Group]) -> Iterator[Finding]:
    """The loads between which loss begins for each UUT, or the most that its link accepts."""
    cell = _cell(best_groups(groups))
    if cell is None:
        return
    begins: list[tuple[float, str]] = []
    never: list[tuple[float, str]] = []
    held: list[str] = []
    judged: list[Group] = []
    for uut, of_uut in grouped((group for group in groups if cell.holds(group)), lambda group: group.uut).items():
        loads = sorted((group for group in of_uut if group.valid and group.offered_mbps), key=_offered)
        name = label(uut, results.emulated)
        first = next((place for place, group in enumerate(loads) if would_not_take_more(group)), None)
        if first is None and not loads:
            continue
        judged.append(loads[-1 if first is None else first])
        if first is None:
            never.append((_offered(loads[-1]), name))
        elif _loses(loads[first]):
            begins.append(
                (_offered(loads[first]), f"{_from(loads[: first + 1])} for {name} ({_loss_of(loads[first])})")
            )
        else:
            held.append(f"the link of {name} takes no more than {mbps(_offered(loads[first]))} Mbit/s")
    onsets = [text for _, text in sorted(begins, key=lambda known: -known[0])]  # highest load first
    left = len(onsets) - _MOST_NAMED
    parts = [*onsets[:_MOST_NAMED], *([f"at lower loads for {left:,} more UUTs"] if left > 0 else [])]
    limit = f"{100 * LOST:g} %"
    if parts:
        parts[0] = f"loss begins to exceed {limit} {parts[0]}"
    if never:
        highest = f"up to {mbps(max(load for load, _ in never))} Mbit/s offered"
        parts.append(f"no more than {limit} is lost by {enumerated([name for _, name in never])}, {highest}")
    said = "; ".join((*parts, *held))
    if said:
        about = f"({frames_text(cell.frame_size)}, {_repetitions(judged)})"
        yield Finding("Loss", f"{said[0].upper()}{said[1:]} {about}.", "loss")


def _loses(group: Group) -> bool:
    return group.loss_ratio is not None and group.loss_ratio.mean > LOST


def _from(loads: Sequence[Group]) -> str:
    """`between 100.8 and 302.4 Mbit/s offered`, from rising loads of which only the last is too high."""
    *below, group = loads
    at = f"{mbps(_offered(group))} Mbit/s offered"
    return f"between {mbps(_offered(below[-1]))} and {at}" if below else f"at {at} or less"


def _loss_of(group: Group) -> str:
    return "" if group.loss_ratio is None else f"{_loss(group.loss_ratio)} at {mbps(_offered(group))}"


def _loss(ratio: Interval) -> str:
    """`30.1 % ± 2.0`, or the interval cut at 0 and 100 % where it exceeds them."""
    if not ratio.half_width:
        return rough_percent(ratio.mean)
    low, high = ratio.mean - ratio.half_width, ratio.mean + ratio.half_width
    if low < 0 or high > 1:
        return f"{rough_percent(ratio.mean)}, {100 * max(0.0, low):.0f} … {100 * min(1.0, high):.0f} %"
    return f"{rough_percent(ratio.mean)} ± {100 * ratio.half_width:.1f}"


def _lost(results: CampaignResults) -> Iterator[Finding]:
    """Where frames were lost: for all UUTs together, and for UUTs that lost most of theirs elsewhere."""
    valid = [trial for trial in results.wanted_trials if trial.verdict is Verdict.VALID]
    if not valid:
        return
    by_uut = {uut: lost_frames_by_place(trials) for uut, trials in grouped(valid, lambda trial: trial.spec.uut).items()}
    places: Counter[LossPlace] = Counter()
    for of_uut in by_uut.values():
        places.update(of_uut)
    total = places.total()
    if total <= 0:
        yield Finding("Where frames are lost", f"No frame was lost in {count(len(valid), 'valid trial')}.", "places")
        return
    (first, most), *others = places.most_common(2)
    shares = [f"{rough_percent(most / total)} were lost at {first.name}"]
    shares += [
        f"{rough_percent(number / total)} at {place.name}"
        for place, number in others
        if number >= _WORTH_NAMING * total
    ]
    apart = []
    for uut, of_uut in by_uut.items():
        for place, number in of_uut.most_common(1):
            if place != first and number > 0:
                share = rough_percent(number / of_uut.total())
                apart.append(f"those of {label(uut, results.emulated)} mostly ({share}) at {place.name}")
    text = f"Of {frames(total)} frames lost in {count(len(valid), 'valid trial')}, {' and '.join(shares)}"
    yield Finding("Where frames are lost", "; ".join((text, *apart[:_MOST_NAMED])) + ".", "places")


def _neighbours(results: CampaignResults, groups: Sequence[Group]) -> Iterator[Finding]:
    """The cost of the costliest neighbour for the highest throughput of each UUT, in topology order."""
    maxima = relative_maxima(groups)
    if not maxima:
        return
    costly = [
        maximum
        for maximum in maxima
        if maximum.ratio.significant and maximum.ratio.ratio is not None and maximum.ratio.ratio < 1
    ]
    if costly:
        worst = min(costly, key=lambda maximum: maximum.ratio.ratio or 0.0)
        alike = [maximum for maximum in maxima if maximum is worst or _elsewhere(maximum, worst)]
        text = f"{_costs(results, worst, alike, several=len({maximum.scenario for maximum in maxima}) > 1)}"
        repetitions = _repetitions(group for maximum in alike for group in (maximum.best, maximum.base))
        yield Finding("Neighbours", f"{text} ({frames_text(worst.victim.frame_size)}, {repetitions}).", "isolation")
        return
    cells = grouped(maxima, lambda maximum: label(maximum.victim.uut, results.emulated))
    said = [f"{uut}: {excluded(of_uut)}" for uut, of_uut in list(cells.items())[:_MOST_NAMED]]
    yield Finding("Neighbours", f"No significant cost of a neighbour was found; {'; '.join(said)}.", "isolation")


def _costs(results: CampaignResults, worst: RelativeMaximum, alike: Sequence[RelativeMaximum], *, several: bool) -> str:
    """`cpu-heavy cuts the peak throughput of bridge by 51 % (43 … 58 %); no significant change for xdp (…)`.

    Each UUT is classified by its interval, because no run can rank two similar costs.
    """
    order = list(dict.fromkeys((*results.uuts, *(maximum.victim.uut for maximum in alike))))
    alike = sorted(alike, key=lambda maximum: order.index(maximum.victim.uut))
    cuts, gains, same, unclear = list[str](), list[str](), list[str](), list[str]()
    for maximum in alike:
        uut, ratio = label(maximum.victim.uut, results.emulated), maximum.ratio
        if why := not_measurable(ratio):
            unclear.append(f"{uut} {why}")
        elif ratio.significant and (ratio.ratio or 0.0) < 1:
            cuts.append(f"of {uut} by {cost(ratio)}")
        elif ratio.significant:
            gains.append(f"{uut} forwards {part_of(ratio, 'that')}")
        else:
            same.append(f"{uut} (changes above {limit_excluded([ratio])} % are excluded)")
    left = len(cuts) - _MOST_NAMED
    if left > 0:
        cuts = [*cuts[:_MOST_NAMED], f"of {left:,} more UUTs"]
    alone = "" if worst.baseline == DEDICATED else f" compared with {worst.baseline}"
    verb = "costs most: it cuts" if several else "cuts"
    said = [f"{worst.scenario} {verb} the peak throughput {enumerated(cuts)}{alone}"]
    said += [f"no significant change for {enumerated(same[:_MOST_NAMED])}"] if same else []
    return "; ".join((*said, *gains[:_MOST_NAMED], *unclear[:_MOST_NAMED]))


def _elsewhere(one: RelativeMaximum, worst: RelativeMaximum) -> bool:
    """Whether both have the same neighbour and frames, and different UUTs."""
    this, other = one.victim, worst.victim
    return (
        one.scenario == worst.scenario
        and (this.sources, this.frame_size) == (other.sources, other.frame_size)
        and this.uut != other.uut
    )


def _highest_loads(results: CampaignResults) -> Iterator[Finding]:
    """The highest load of each UUT that meets the first goal, relative to the baseline's."""
    known = [
        search for search in results.searches if search.lower_fps is not None and search.state is not SearchState.FAILED
    ]
    if not known:
        why = [
            f"{label(search.uut, results.emulated)}, {search.goal}: {remark(search)}"
            for search in results.searches[:_MOST_NAMED]
        ]
        yield Finding("Highest load", f"No search has found a highest load ({'; '.join(why)}).", "searches")
        return
    goal, scenario = known[0].goal, known[0].scenario
    alike = [search for search in known if (search.goal, search.scenario) == (goal, scenario)]
    fewest = min(len(search.streams) for search in alike)
    alike = [search for search in alike if len(search.streams) == fewest]
    size = min((search.frame_size for search in alike), key=rising)
    searched = grouped((search for search in alike if search.frame_size == size), lambda search: search.uut)
    merged = {uut: _of_all(same) for uut, same in searched.items()}
    times = max(map(len, searched.values()))
    per_stream = f"each stream, {count(times, 'search', 'searches')} each" if times > 1 else "each stream"
    parts = []
    for uuts in _by_setting(results, merged):
        base = merged.get(uuts[0])
        for search in sorted(
            (merged[uut] for uut in uuts if uut in merged), key=lambda search: search.lower_fps or 0.0, reverse=True
        ):
            text = f"{label(search.uut, results.emulated)} {bounds_text(search)}"
            parts.append(text if base is None or base is search else f"{text}, {_bounds_ratio(search, base)}")
    at = f"{frames_text(size)} in {scenario}" if scenario else frames_text(size)
    yield Finding(
        "Highest load", f"The highest load of {at} that meets {goal}: {'; '.join(parts)} ({per_stream}).", "searches"
    )


def _of_all(same: Sequence[SearchResult]) -> SearchResult:
    """The repeated search with the lowest bound, with the highest upper bound of all of them."""
    lowest = min(same, key=lambda search: search.lower_fps or 0.0)
    tops = [search.upper_fps for search in same]
    upper_fps = None if None in tops else max(top for top in tops if top is not None)
    return lowest if len(same) == 1 else replace(lowest, upper_fps=upper_fps)


def _bounds_ratio(new: SearchResult, base: SearchResult) -> str:
    """The ratio of the loads of two searches, from their bounds."""
    if not base.lower_fps or not new.lower_fps:
        return f"nothing relative to {base.uut}"
    ratio = f"{new.lower_fps / base.lower_fps:.2f} times"
    if new.upper_fps is None or base.upper_fps is None or SearchState.AT_LEAST in (new.state, base.state):
        return f"{ratio} the lower bound of {base.uut}"
    return f"{ratio} ({new.lower_fps / base.upper_fps:.2f} … {new.upper_fps / base.lower_fps:.2f}) that of {base.uut}"


def _napi_policies(results: CampaignResults) -> Iterator[Finding]:
    """The UUTs whose receiving threads do not run in Linux's default scheduling policy."""
    policies = {uut: facts[NAPI_POLICY] for uut, facts in results.facts.items() if NAPI_POLICY in facts}
    for policy, uuts in grouped(policies, lambda uut: policies[uut]).items():
        names = enumerated([label(uut, results.emulated) for uut in uuts[:_MOST_NAMED]])
        text = f"The threads that receive for {names} run as {policy}: processes of a neighbour cannot delay them."
        yield Finding("Scheduling", text, "tester")


def _unstable_maxima(results: CampaignResults) -> Iterator[Finding]:
    """The UUTs whose loads are shares of a maximum from an unstable search."""
    unstable = {search.uut: search.unstable for search in results.maxima_searches if search.unstable}
    if unstable:
        uuts = enumerated([label(uut, results.emulated) for uut in list(unstable)[:_MOST_NAMED]])
        text = f"Loads of {uuts} are shares of a maximum whose search was unstable: read them as rates, not as shares."
        yield Finding("Loads", text, "searches")


def _contradictions(results: CampaignResults, groups: Sequence[Group]) -> Iterator[Finding]:
    """Maxima that contradict each other though they were measured again."""
    calibrated = {
        (search.uut, search.frame_size, len(search.streams)): (search.scenario, maximum.fps * len(search.streams))
        for search in results.maxima_searches
        if (maximum := maximum_of(search)) is not None
    }
    contradictions = contradictory_maxima(groups, calibrated)
    if contradictions:
        text = "; ".join(contradiction.text for contradiction in contradictions[:_MOST_NAMED])
        yield Finding("Contradictions", f"{text[0].upper()}{text[1:]}: repeat the run on an idle machine.", "maximum")


def _cell(best: Sequence[Group]) -> _Cell | None:
    """The least disturbed scenario, the fewest sources, the smallest frames."""
    scenarios = list(dict.fromkeys(group.scenario for group in best))
    scenario = next((name for name in (DEDICATED, SHARED_IDLE, *scenarios) if name in scenarios), None)
    if scenario is None:
        return None
    alike = [group for group in best if group.scenario == scenario]
    fewest = min(group.sources for group in alike)
    return _Cell(scenario, fewest, min((group.frame_size for group in alike if group.sources == fewest), key=rising))


def _by_setting(results: CampaignResults, known: Iterable[str]) -> list[list[str]]:
    """The UUTs of each setting that has a UUT in `known`, in topology order."""
    known_uuts = set(known)
    uuts = list(dict.fromkeys((*results.uuts, *known)))
    by_setting = grouped(uuts, lambda uut: results.settings.get(uut, Setting()))
    return [of_setting for of_setting in by_setting.values() if known_uuts.intersection(of_setting)]


def _height(group: Group) -> float:
    return group.maximum_fps.mean if group.maximum_fps else 0.0


def _offered(group: Group) -> float:
    return group.offered_mbps.mean if group.offered_mbps else 0.0
