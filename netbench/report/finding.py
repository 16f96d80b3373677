"""A finding: a few sentences with their numbers, and the words that all findings share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netbench.model.frame_size import FrameSize
from netbench.model.scenario import DEDICATED, SHARED_IDLE
from netbench.report.formats import sentence
from netbench.statistics.groups import Group

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


def shortened(texts: Sequence[str], key: str, kept: int = MOST_NAMED) -> Sequence[str]:
    """The texts; of too many the first ones, and the number of the others."""
    if len(texts) <= MOST_NAMED:
        return texts
    return [*texts[:kept], sentence(f"findings.{key}", number=f"{len(texts) - kept:,}")]


def repetitions_text(groups: Iterable[Group]) -> str:
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


def comparable_conditions(best: Sequence[Group]) -> Conditions | None:
    """The least disturbed scenario, the fewest sources, the smallest frames."""
    scenarios = list(dict.fromkeys(group.scenario for group in best))
    scenario = next((name for name in (DEDICATED, SHARED_IDLE, *scenarios) if name in scenarios), None)
    if scenario is None:
        return None
    alike = ((group.sources, group.frame_size) for group in best if group.scenario == scenario)
    return Conditions(scenario, *min(alike))
