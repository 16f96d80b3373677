"""The counters of stored trials.

They are stored separately from the documents of trials, because they are large and rarely read. Their names and points
are the same in most trials: each such list is stored once. Each trial stores only the growth of its counters.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from pydantic import TypeAdapter

from netbench.model.counts import PointCount
from netbench.model.documents import document_of
from netbench.model.points import PathSection
from netbench.model.trial import TrialResult

# For each guest, and then for each of its streams: the name, and all fields of a PointCount except the growth.
_Places = list[tuple[str, list[tuple[str, PathSection, int, str, str]]]]
_PLACES: TypeAdapter[_Places] = TypeAdapter(_Places)
_GROWTHS: TypeAdapter[list[int | None]] = TypeAdapter(list[int | None])
_MOST_SUMS = 256  # in memory at a time


class Counters(NamedTuple):
    """All counters of a trial as JSON: their places, and their growths in the same order."""

    places: str
    growths: str

    @classmethod
    def of(cls, trial: TrialResult) -> "Counters":
        """Return the counters of a trial."""
        lists = list(_lists(trial))
        places: _Places = [
            (name, [(count.point, count.where, count.order, count.counter, count.role) for count in counts])
            for name, counts in lists
        ]
        growths = [count.grew for _, counts in lists for count in counts]
        return cls(document_of(_PLACES, places), document_of(_GROWTHS, growths))

    def given_to(self, trial: TrialResult) -> TrialResult:
        """Return a trial, stored without counters, with these counters; ValueError if they do not match the trial."""
        places = _PLACES.validate_json(self.places, strict=True)
        growths = _GROWTHS.validate_json(self.growths, strict=True)
        names = [name for name, _ in _lists(trial)]
        if [name for name, _ in places] != names or sum(len(points) for _, points in places) != len(growths):
            raise ValueError("the counters are not those of its guests and streams")
        growth = iter(growths)
        lists = iter([tuple([PointCount(*point, next(growth)) for point in points]) for _, points in places])
        guests = []
        for guest in trial.guests:
            counters = next(lists)  # the counters of the guest come before those of its streams
            streams = tuple([replace(stream, counters=next(lists)) for stream in guest.streams])
            guests.append(replace(guest, streams=streams, counters=counters))
        return replace(trial, guests=tuple(guests))


def added_up(trials: Iterable[tuple[str, Hashable, str]]) -> Iterator[tuple[str, str, int]]:
    """Yield the sums of the growths of similar trials: the key of the first trial, the sums and the number of trials.

    `trials` are tuples of the key, the value that trials must share to be added up, and the growths. A counter that is
    unknown in one trial is never added to one that is known in another.
    """
    sums: dict[Hashable, tuple[str, list[int | None], int]] = {}

    def finished() -> Iterator[tuple[str, str, int]]:
        for first, total, number in sums.values():
            yield first, document_of(_GROWTHS, total), number
        sums.clear()

    for key, shared, document in trials:
        growths = _GROWTHS.validate_json(document, strict=True)
        unknown = tuple(place for place, growth in enumerate(growths) if growth is None) if None in growths else ()
        first, total, number = sums.get((shared, unknown, len(growths)), (key, [0] * len(growths), 0))
        total = [None if new is None else (so_far or 0) + new for so_far, new in zip(total, growths, strict=True)]
        sums[shared, unknown, len(growths)] = first, total, number + 1
        if len(sums) == _MOST_SUMS:
            yield from finished()
    yield from finished()


def _lists(trial: TrialResult) -> Iterator[tuple[str, tuple[PointCount, ...]]]:
    for guest in trial.guests:
        yield guest.name, guest.counters
        for stream in guest.streams:
            yield stream.stream, stream.counters
