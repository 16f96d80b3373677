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


def company_of(topology: Topology, profile: Profile, scenario: str) -> tuple[str, ...]:
    """The neighbours that are there in a scenario."""
    case = profile.scenario(scenario)
    return tuple(one.name for one in topology.neighbours if not isinstance(case.of(one.name), Off))


@dataclass(frozen=True, slots=True)
class Order:
    """In which order the cells of a profile are measured."""

    topology: Topology
    profile: Profile

    def visits(
        self, uuts: Sequence[str], stages: Sequence[Sequence[Cell]]
    ) -> Iterator[tuple[str, int, list[tuple[Cell, int]]]]:
        """Each visit's UUT, stage, and cells with their repetition."""
        generator = random.Random(self.profile.seed)
        for uut, stage, measured in self._uncut(uuts, stages, generator):
            for part in self._cut(measured):
                yield uut, stage, part

    def _uncut(
        self, uuts: Sequence[str], stages: Sequence[Sequence[Cell]], generator: random.Random
    ) -> Iterator[tuple[str, int, list[tuple[Cell, int]]]]:
        repetitions = range(1, self.profile.repetitions + 1)
        if self.profile.order == "sequential":
            for uut in uuts:
                for stage, cells in enumerate(stages, start=1):
                    yield uut, stage, [(cell, repetition) for cell in cells for repetition in repetitions]
            return
        for stage, cells in enumerate(stages, start=1):
            if self.profile.order == "random":
                every = [(uut, cell, repetition) for uut in uuts for cell in cells for repetition in repetitions]
                generator.shuffle(every)
                for uut, same in groupby(every, key=lambda one: one[0]):
                    yield uut, stage, [(cell, repetition) for _, cell, repetition in same]
                continue
            for repetition in repetitions:
                for uut in generator.sample(uuts, len(uuts)):
                    yield uut, stage, [(cell, repetition) for cell in self._shuffled(cells, generator)]

    def _shuffled(self, cells: Sequence[Cell], generator: random.Random) -> Iterator[Cell]:
        """The cells at random; those that share a set of neighbours, or a boot, stay together."""
        together: dict[tuple[str, ...], list[Cell]] = {}
        for cell in cells:
            together.setdefault(self._lot(cell), []).append(cell)
        lots = list(together.values())
        for lot in generator.sample(lots, len(lots)):
            yield from generator.sample(lot, len(lot))

    def _lot(self, cell: Cell) -> tuple[str, ...]:
        company = company_of(self.topology, self.profile, cell.scenario)
        return (cell.scenario,) if self.profile.reboot == "scenario" else company

    def _cut(self, measured: list[tuple[Cell, int]]) -> Iterator[list[tuple[Cell, int]]]:
        """The parts of a visit between which guests are brought up anew."""
        match self.profile.reboot:
            case "trial":
                yield from ([one] for one in measured)
            case "scenario":
                for _, same in groupby(measured, key=lambda one: one[0].scenario):
                    yield list(same)
            case "visit":
                yield measured
