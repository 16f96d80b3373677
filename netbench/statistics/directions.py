"""A stream and its way back apart: what each direction was offered and forwarded, over repetitions.

Elsewhere the streams of a trial are added up, which does not tell a direction that loses from one that does not.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from netbench.statistics.groups import Group, Repetitions
from netbench.statistics.totals import Totals


@dataclass(frozen=True)  # no slots: what is computed once is kept in the instance
class Direction(Repetitions):
    """One stream of a measurement in both directions; `reverse_of` is the one whose way back it is, if it is any."""

    group: Group
    stream: str
    reverse_of: str


def directions(groups: Iterable[Group]) -> list[Direction]:
    """Each stream of those groups in which frames went both ways, stream by stream; of valid trials."""
    return [direction for group in groups for direction in _of_group(group)]


def _of_group(group: Group) -> Iterator[Direction]:
    reverse_of = {
        counts.stream: counts.reverse_of for one in group.valid for counts in one.streams if counts is not None
    }
    if any(reverse_of.values()):
        for stream, reversed_one in reverse_of.items():
            valid = tuple(
                Totals((counts,), group.frame_size, {}, None, one.trial.boot)
                for one in group.valid
                for counts in one.streams
                if counts is not None and counts.stream == stream
            )
            yield Direction(group.frame_size, valid, group, stream, reversed_one)
