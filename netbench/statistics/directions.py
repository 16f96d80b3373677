"""The offered load and throughput of each direction of bidirectional streams, over repetitions.

Elsewhere the streams of a trial are added up, so that loss in one direction only cannot be seen.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from netbench.statistics.groups import Group, Repetitions
from netbench.statistics.totals import Totals


@dataclass(frozen=True)  # no slots: the instance caches computed values
class Direction(Repetitions):
    """One stream of a bidirectional measurement; `reverse_of` names its forward stream if this is a reverse stream."""

    group: Group
    stream: str
    reverse_of: str


def directions(groups: Iterable[Group]) -> list[Direction]:
    """Return each stream of the groups in which frames went both ways, from their valid trials."""
    return [direction for group in groups for direction in _of_group(group)]


def _of_group(group: Group) -> Iterator[Direction]:
    reverse_of = {
        counts.stream: counts.reverse_of for totals in group.valid for counts in totals.streams if counts is not None
    }
    if any(reverse_of.values()):
        for stream, forward in reverse_of.items():
            valid = tuple(
                Totals((counts,), group.frame_size, {}, None, totals.trial.boot)
                for totals in group.valid
                for counts in totals.streams
                if counts is not None and counts.stream == stream
            )
            yield Direction(group.frame_size, valid, group, stream, forward)
