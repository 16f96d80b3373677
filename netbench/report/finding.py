"""A finding: a few sentences with their numbers, and the words that all findings share."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.campaign import CampaignResults
from netbench.model.frame_size import FrameSize
from netbench.model.scenario import DEDICATED, SHARED_IDLE
from netbench.model.virtualisation import Setting
from netbench.report.formats import enumerated, sentence
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import Interval

MOST_NAMED = 4  # UUTs in a sentence


@dataclass(frozen=True, slots=True)
class Finding:
    """Sentences with their numbers: the first is the finding, `details` follow; the topic is a word or two.

    `chart` is the id of the section of the report that shows the numbers.
    """

    topic: str
    lead: str
    chart: str
    details: str = ""

    @property
    def text(self) -> str:
        """All sentences."""
        return f"{self.lead} {self.details}".rstrip()

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}"


@dataclass(frozen=True, slots=True)
class Conditions:
    """The scenario, sources and frame size for which a sentence compares UUTs."""

    scenario: str
    sources: int
    frame_size: FrameSize

    def __str__(self) -> str:
        several = f" from {self.sources} sources" if self.sources > 1 else ""
        scenario = "no neighbour" if self.scenario == DEDICATED else self.scenario
        return f"{self.frame_size.frames_text}{several}, {scenario}"

    def include(self, group: Group) -> bool:
        """Return whether a group was measured in these conditions."""
        return (group.scenario, group.sources, group.frame_size) == (self.scenario, self.sources, self.frame_size)


def uuts_by_setting(results: CampaignResults, known: Collection[str]) -> list[list[str]]:
    """The UUTs of each setting that has a UUT in `known`, in topology order."""
    by_setting = grouped(dict.fromkeys((*results.uuts, *known)), lambda uut: results.settings.get(uut, Setting()))
    return [uuts for uuts in by_setting.values() if any(uut in known for uut in uuts)]


def shortened(texts: Sequence[str], key: str, kept: int = MOST_NAMED) -> Sequence[str]:
    """The texts; of too many the first ones, and the number of the others."""
    if len(texts) <= MOST_NAMED:
        return texts
    return [*texts[:kept], sentence(f"findings.{key}", number=f"{len(texts) - kept:,}")]


def repetitions_text(groups: Iterable[Group]) -> str:
    """`n = 3`, or `n = 2 … 3`; with the number of boots: `n = 9 on 3 boots`."""
    return n_text(interval for group in groups if (interval := group.maximum_fps))


def n_text(known: Iterable[Interval]) -> str:
    """The repetitions and boots of some intervals, as repetitions_text()."""
    intervals = list(known)
    text = f"n = {_range(interval.n for interval in intervals)}"
    boots = [interval.boots for interval in intervals if interval.boots]
    if 1 in boots:
        return f"{text}, one boot: variation between boots unknown"
    return f"{text} on {_range(boots)} boots" if boots else text


def n_by_uut(by_uut: Mapping[str, Sequence[Interval]]) -> str:
    """The repetitions and boots of the intervals of each UUT; UUTs are named where these differ."""
    texts = {uut: n_text(intervals) for uut, intervals in by_uut.items()}
    if len(set(texts.values())) <= 1:
        return next(iter(texts.values()), "")
    by_text = grouped(texts, lambda uut: texts[uut].partition(":")[0])
    return "; ".join(f"{enumerated(shortened(uuts, 'more_uuts_alike'))}: {text}" for text, uuts in by_text.items())


def _range(numbers: Iterable[int]) -> str:
    known = sorted(set(numbers)) or [0]
    return f"{known[0]}" + (f" … {known[-1]}" if len(known) > 1 else "")


def comparable_conditions(best: Sequence[Group], packets: Iterable[str] = ()) -> Conditions | None:
    """The least disturbed scenario, the fewest sources, and of one packet the smallest frames.

    The packet is the plain one. Without it, it is the first of `packets`, the names in the order of the profile, of
    those that most UUTs carry.
    """
    scenarios = list(dict.fromkeys(group.scenario for group in best))
    scenario = next((name for name in (DEDICATED, SHARED_IDLE, *scenarios) if name in scenarios), None)
    if scenario is None:
        return None
    fewest = min(group.sources for group in best if group.scenario == scenario)
    alike = [group for group in best if (group.scenario, group.sources) == (scenario, fewest)]
    order = list(dict.fromkeys((*packets, *(group.frame_size.packet for group in alike))))
    carried = Counter(packet for _, packet in {(group.uut, group.frame_size.packet) for group in alike})
    packet = min(carried, key=lambda name: (name != "", -carried[name], order.index(name)))
    return Conditions(scenario, fewest, min(group.frame_size for group in alike if group.frame_size.packet == packet))


def other_packets(best: Iterable[Group], conditions: Conditions) -> str:
    """A sentence that names the packets beside that of the conditions, unless that is the plain one; else empty."""
    alike = [group for group in best if (group.scenario, group.sources) == (conditions.scenario, conditions.sources)]
    used = conditions.frame_size.packet
    names = [name for name in dict.fromkeys(group.frame_size.packet for group in alike) if name != used]
    if not used or not names:
        return ""
    more = len(names) - MOST_NAMED
    return sentence(
        "findings.other_packets", packets=enumerated([*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])
    )


def uuts_without_packet(best: Iterable[Group], conditions: Conditions) -> list[str]:
    """The UUTs with results for other packets only."""
    alike = [group for group in best if (group.scenario, group.sources) == (conditions.scenario, conditions.sources)]
    carrying = {group.uut for group in alike if group.frame_size.packet == conditions.frame_size.packet}
    return [uut for uut in dict.fromkeys(group.uut for group in alike) if uut not in carrying]
