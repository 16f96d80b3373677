"""The order of the trials of a campaign: fair to every UUT and scenario, and the same for the same seed. Pure."""

import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from math import inf
from typing import Any, TypeVar

from netbench.model.frame_mix import FrameSize
from netbench.model.profile import Profile
from netbench.model.scenario import Off
from netbench.model.topology import Topology, measured_pairs
from netbench.model.units import Load, LoadKind
from netbench.statistics.groups import grouped

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class CellKey:
    """The key of a trial without its UUT and repetition."""

    scenario: str
    sources: int
    frame_size: FrameSize
    load: Load

    @property
    def sweep(self) -> tuple[str, int, FrameSize]:
        """The key that cells share if they differ in load only."""
        return self.scenario, self.sources, self.frame_size


@dataclass(frozen=True, slots=True)
class CellOrder:
    """The order in which the cells of a profile are measured.

    `interleaved` measures every UUT in each repetition, in shuffled order. On each boot, the scenarios that need the
    same neighbours are shuffled together, so that drift of the machine spreads over all of them. `sequential` finishes
    one UUT before the next, as written. `random` shuffles everything.
    """

    topology: Topology
    profile: Profile

    def boots(
        self, uuts: Sequence[str], phases: Sequence[Sequence[CellKey]]
    ) -> Iterator[tuple[str, int, list[tuple[CellKey, int]]]]:
        """Yield the UUT, the phase, and the cells with their repetition of each boot."""
        generator = random.Random(self.profile.seed)
        for uut, phase, measured in self._uncut(uuts, phases, generator):
            for part in self._cut(measured):
                yield uut, phase, part

    def _uncut(
        self, uuts: Sequence[str], phases: Sequence[Sequence[CellKey]], generator: random.Random
    ) -> Iterator[tuple[str, int, list[tuple[CellKey, int]]]]:
        repetitions = range(1, self.profile.repetitions + 1)
        if self.profile.order == "sequential":
            for uut in self._by_place(uuts):
                for phase, cells in enumerate(phases, start=1):
                    rising = self._rising(cells)
                    yield uut, phase, [(cell, repetition) for cell in rising for repetition in repetitions]
            return
        for phase, cells in enumerate(phases, start=1):
            if self.profile.order == "random":
                entries = [(uut, cell, repetition) for uut in uuts for cell in cells for repetition in repetitions]
                generator.shuffle(entries)
                entries = self._upwards(
                    entries, lambda entry: (entry[0], entry[1].sweep), lambda entry: (entry[2], self._rank(entry[1]))
                )
                apart = grouped(entries, lambda entry: self.topology.uut(entry[0]).on).values()
                for uut, same in groupby(chain.from_iterable(apart), key=lambda entry: entry[0]):
                    yield uut, phase, [(cell, repetition) for _, cell, repetition in same]
                continue
            for repetition in repetitions:
                for uut in self._by_place(_shuffled_uuts(uuts, generator)):
                    yield uut, phase, [(cell, repetition) for cell in self._shuffled(cells, generator)]

    def _by_place(self, uuts: Iterable[str]) -> Iterator[str]:
        """Yield the UUTs in this order, but those on the same VM together, because a VM starts slowly."""
        for same in grouped(uuts, lambda name: self.topology.uut(name).on).values():
            yield from same

    def _shuffled(self, cells: Sequence[CellKey], generator: random.Random) -> Iterator[CellKey]:
        """Yield the cells in random order; those that share a set of neighbours, or a boot, stay together."""
        together: dict[tuple[str, ...], list[CellKey]] = {}
        for cell in cells:
            together.setdefault(self._lot(cell), []).append(cell)
        lots = list(together.values())
        for lot in generator.sample(lots, len(lots)):
            yield from self._rising(generator.sample(lot, len(lot)))

    def _rising(self, cells: Sequence[CellKey]) -> list[CellKey]:
        return self._upwards(cells, lambda cell: cell.sweep, self._rank)

    def _upwards(
        self, items: Sequence[Item], sweep: Callable[[Item], Hashable], rank: Callable[[Item], Any]
    ) -> list[Item]:
        """Return the items; if sweeps may end early, those of each sweep are sorted upwards within their places."""
        if self.profile.stop_when_saturated is None:
            return list(items)
        rising = {key: iter(sorted(sweep_items, key=rank)) for key, sweep_items in grouped(items, sweep).items()}
        return [next(rising[sweep(item)]) for item in items]

    def _rank(self, cell: CellKey) -> float:
        """Return the load in frames/s on the first link, or as a share of the maximum; `max` is the highest."""
        if cell.load.kind is LoadKind.OF_MAXIMUM:
            return cell.load.value
        link_bps = self.topology.stream_link(self.topology.own_streams[0]).rate
        fps = cell.load.fps(cell.frame_size, link_bps)
        return inf if fps is None else fps

    def _lot(self, cell: CellKey) -> tuple[str, ...]:
        if self.profile.reboot == "scenario":
            return (cell.scenario,)
        case = self.profile.scenario(cell.scenario)
        return tuple(guest.name for guest in self.topology.neighbours if not isinstance(case.of(guest.name), Off))

    def _cut(self, measured: list[tuple[CellKey, int]]) -> Iterator[list[tuple[CellKey, int]]]:
        """Yield the parts between which guests are restarted."""
        match self.profile.reboot:
            case "trial":
                yield from ([entry] for entry in measured)
            case "scenario":
                for _, same in groupby(measured, key=lambda entry: entry[0].scenario):
                    yield list(same)
            case "visit":
                yield measured


def _shuffled_uuts(uuts: Sequence[str], generator: random.Random) -> Iterator[str]:
    """Yield the UUTs in random order; two versions of one follow each other, so that drift affects both equally."""
    pairs = measured_pairs(uuts)
    versions = [[uut, pairs[uut]] if uut in pairs else [uut] for uut in uuts if uut not in pairs.values()]
    for version in generator.sample(versions, len(versions)):
        yield from generator.sample(version, len(version)) if len(version) > 1 else version
