"""In which order a campaign measures: fair to every UUT and scenario, and the same for the same seed. Pure."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from netbench.model.profile import Profile
from netbench.model.scenario import Off
from netbench.model.topology import Topology
from netbench.model.units import Load


@dataclass(frozen=True, slots=True)
class Cell:
    """What a trial measures, whatever the UUT and the repetition."""

    scenario: str
    sources: int
    frame_size: int
    load: Load


@dataclass(frozen=True, slots=True)
class Order:
    """In which order the cells of a profile are measured."""

    topology: Topology
    profile: Profile

    def boots(
        self, uuts: Sequence[str], phases: Sequence[Sequence[Cell]]
    ) -> Iterator[tuple[str, int, list[tuple[Cell, int]]]]:
        """For each boot its UUT, phase, and cells with their repetition."""
        generator = random.Random(self.profile.seed)
        for uut, phase, measured in self._uncut(uuts, phases, generator):
            for part in self._cut(measured):
                yield uut, phase, part

    def _uncut(
        self, uuts: Sequence[str], phases: Sequence[Sequence[Cell]], generator: random.Random
    ) -> Iterator[tuple[str, int, list[tuple[Cell, int]]]]:
        repetitions = range(1, self.profile.repetitions + 1)
        if self.profile.order == "sequential":
            for uut in uuts:
                for phase, cells in enumerate(phases, start=1):
                    yield uut, phase, [(cell, repetition) for cell in cells for repetition in repetitions]
            return
        for phase, cells in enumerate(phases, start=1):
            if self.profile.order == "random":
                every = [(uut, cell, repetition) for uut in uuts for cell in cells for repetition in repetitions]
                generator.shuffle(every)
                for uut, same in groupby(every, key=lambda one: one[0]):
                    yield uut, phase, [(cell, repetition) for _, cell, repetition in same]
                continue
            for repetition in repetitions:
                for uut in generator.sample(uuts, len(uuts)):
                    yield uut, phase, [(cell, repetition) for cell in self._shuffled(cells, generator)]

    def _shuffled(self, cells: Sequence[Cell], generator: random.Random) -> Iterator[Cell]:
        """The cells at random; those that share a set of neighbours, or a boot, stay together."""
        together: dict[tuple[str, ...], list[Cell]] = {}
        for cell in cells:
            together.setdefault(self._lot(cell), []).append(cell)
        lots = list(together.values())
        for lot in generator.sample(lots, len(lots)):
            yield from generator.sample(lot, len(lot))

    def _lot(self, cell: Cell) -> tuple[str, ...]:
        if self.profile.reboot == "scenario":
            return (cell.scenario,)
        case = self.profile.scenario(cell.scenario)
        return tuple(one.name for one in self.topology.neighbours if not isinstance(case.of(one.name), Off))

    def _cut(self, measured: list[tuple[Cell, int]]) -> Iterator[list[tuple[Cell, int]]]:
        """The parts between which guests are restarted."""
        match self.profile.reboot:
            case "trial":
                yield from ([one] for one in measured)
            case "scenario":
                for _, same in groupby(measured, key=lambda one: one[0].scenario):
                    yield list(same)
            case "visit":
                yield measured
