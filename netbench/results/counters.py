"""The counters of trials, which are stored beside the rest of them: most of what a trial is, and few ask for them.

What is counted, and where, is the same in trial after trial: each list of that is stored once. Of each trial there is
only by how much they grew.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from operator import add
from typing import NamedTuple

from pydantic import TypeAdapter

from netbench.model.counts import PointCount
from netbench.model.documents import document_of
from netbench.model.points import Where
from netbench.model.trial import TrialResult

# Of each guest, and then of each of its streams, the name and all of a PointCount but how much it grew.
_Places = list[tuple[str, list[tuple[str, Where, int, str, str]]]]
_PLACES: TypeAdapter[_Places] = TypeAdapter(_Places)
_GROWTHS: TypeAdapter[list[int | None]] = TypeAdapter(list[int | None])
_MOST_SUMS = 256  # in memory at a time


class Counters(NamedTuple):
    """All counters of a trial as JSON: what they count, and how much they grew in the same order."""

    places: str
    growths: str

    @classmethod
    def of(cls, trial: TrialResult) -> "Counters":
        """Those of a trial."""
        lists = list(_lists(trial))
        places: _Places = [
            (name, [(one.point, one.where, one.order, one.counter, one.role) for one in counted])
            for name, counted in lists
        ]
        growths = [one.grew for _, counted in lists for one in counted]
        return cls(document_of(_PLACES, places), document_of(_GROWTHS, growths))

    def given_to(self, trial: TrialResult) -> TrialResult:
        """A trial that was stored without its counters, with them; ValueError where they are not its own."""
        places = _PLACES.validate_json(self.places, strict=True)
        growths = _GROWTHS.validate_json(self.growths, strict=True)
        guests_and_streams = [name for name, _ in _lists(trial)]
        if [name for name, _ in places] != guests_and_streams or sum(len(own) for _, own in places) != len(growths):
            raise ValueError("the counters are not those of its guests and streams")
        growth = iter(growths)
        lists = iter([tuple([PointCount(*one, next(growth)) for one in own]) for _, own in places])
        guests = []
        for guest in trial.guests:
            counters = next(lists)  # those of the guest come before those of its streams
            streams = tuple([replace(one, counters=next(lists)) for one in guest.streams])
            guests.append(replace(guest, streams=streams, counters=counters))
        return replace(trial, guests=tuple(guests))


def without_counters(trial: TrialResult) -> TrialResult:
    """A trial without its counters, and with all else."""
    return replace(trial, guests=tuple(guest.without_counters for guest in trial.guests))


def added_up(trials: Iterable[tuple[str, Hashable, str]]) -> Iterator[tuple[str, str, int]]:
    """Growths of trials that counted the same, added up: the key of the first of them, the sums, how many they are.

    `trials` come as their key, what they must have in common to be added up, and their growths. A counter that is
    unknown in one trial is never added to one that is known in another.
    """
    sums: dict[Hashable, tuple[str, list[int | None], int]] = {}
    for key, alike, document in trials:
        growths = _GROWTHS.validate_json(document, strict=True)
        unknown = tuple([place for place, one in enumerate(growths) if one is None]) if None in growths else ()
        of_alike = alike, unknown, len(growths)
        first, grown, number = sums.get(of_alike, (key, [0] * len(growths), 0))
        if unknown:
            added = [None if one is None else (so_far or 0) + one for so_far, one in zip(grown, growths, strict=True)]
        else:
            added = list(map(add, grown, growths))
        sums[of_alike] = first, added, number + 1
        if len(sums) == _MOST_SUMS:
            yield from map(_written, sums.values())
            sums.clear()
    yield from map(_written, sums.values())


def _written(added: tuple[str, list[int | None], int]) -> tuple[str, str, int]:
    first, grown, number = added
    return first, document_of(_GROWTHS, grown), number


def _lists(trial: TrialResult) -> Iterator[tuple[str, tuple[PointCount, ...]]]:
    for guest in trial.guests:
        yield guest.name, guest.counters
        for one in guest.streams:
            yield one.stream, one.counters
