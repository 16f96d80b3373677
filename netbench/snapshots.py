"""All counters around the traffic of a trial, and how they grew."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from netbench.analysis.accounting import NicDelta
from netbench.bench import Bench, Lane, Side
from netbench.errors import MachineGoneError, TestbedError
from netbench.links.counters import NicCounters
from netbench.model.counts import HopCount
from netbench.model.paths import Place, StreamPath
from netbench.model.verdict import Reason, ReasonKind
from netbench.uut.base import HopReading, Reading


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All counters at one moment; what a guest says of itself by its name."""

    at_ns: int
    nics: dict[Place, NicCounters]
    guests: dict[str, Reading]
    loads_s: dict[str, float]
    machine_s: float | None


@dataclass(slots=True)
class Trouble:
    """What went wrong with a guest or its load: the reasons, each once."""

    reasons: dict[Reason, None] = field(default_factory=dict)

    @contextmanager
    def noted(self, guest: str, of_load: bool = False) -> Iterator[None]:
        """Turn the block's TestbedError into a reason, unless a whole machine is gone."""
        try:
            yield
        except MachineGoneError:
            raise
        except TestbedError as error:
            kind, detail = ReasonKind.UUT_FAILED, str(error)
            if of_load:
                kind = ReasonKind.NEIGHBOUR_LOAD_FAILED  # which says whose load it is
            elif guest:
                kind, detail = ReasonKind.NEIGHBOUR_FAILED, f"neighbour {guest}: {error}"
            self.reasons[Reason(kind, "", detail)] = None


def take_snapshot(bench: Bench, sides: Sequence[Side], trouble: Trouble) -> Snapshot:
    """Read everything now; a guest that cannot be read is left out and noted."""
    lanes = [lane for side in sides for lane in side.lanes]
    machine_s = bench.machine_cpu_s() if bench.machine_cpu_s else None
    at_ns = bench.clock.monotonic_ns()
    nics = bench.read_nics(places_of(lanes))
    guests, loads_s = {}, {}
    for side in sides:
        with trouble.noted(side.guest):
            # Who forwards nothing has no hops to read, and may be too busy to be asked at length.
            guests[side.guest] = side.uut.read() if side.lanes else Reading(cpu_s=side.uut.cpu_s())
        if side.load is not None:
            with trouble.noted(side.guest, of_load=True):
                used_s = side.load.cpu_s()
                if used_s is not None:
                    loads_s[side.guest] = used_s
    return Snapshot(at_ns, nics, guests, loads_s, machine_s)


def cpu_growth(side: Side, before: Snapshot, after: Snapshot) -> dict[str, float]:
    """CPU time used in between, in seconds, by whose it is."""
    earlier, later = (one.guests.get(side.guest, Reading()).cpu_s for one in (before, after))
    used = {whose: round(later[whose] - spent, 6) for whose, spent in earlier.items() if whose in later}
    if side.guest in before.loads_s and side.guest in after.loads_s:
        used["load"] = round(after.loads_s[side.guest] - before.loads_s[side.guest], 6)
    return used


def shared_hops(side: Side, before: Snapshot, after: Snapshot) -> tuple[HopCount, ...]:
    """What the guest counts for all its streams together."""
    growth = grown(before.guests.get(side.guest, Reading()), after.guests.get(side.guest, Reading()))
    return tuple(HopCount(one.hop, one.counter, one.role, one.frames) for one in growth if not one.stream)


def places_of(lanes: Sequence[Lane]) -> list[Place]:
    """Where all NICs of some lanes are."""
    return [nic.place for lane in lanes for nic in lane.path.nics.values()]


def nic_deltas(path: StreamPath, before: Snapshot, after: Snapshot) -> dict[str, NicDelta | None]:
    """How the counters of each NIC of a path grew, by role; None for a NIC that could not be read."""

    def delta(place: Place) -> NicDelta | None:
        if place not in before.nics or place not in after.nics:
            return None
        return NicDelta.between(before.nics[place], after.nics[place])

    return {role: delta(nic.place) for role, nic in path.nics.items()}


def grown(before: Reading, after: Reading) -> Iterator[HopReading]:
    """How each counter of a guest grew; one that went backwards was reset, and says nothing."""
    earlier = {(reading.stream, reading.hop, reading.counter): reading.frames for reading in before.hops}
    for reading in after.hops:
        base = earlier.get((reading.stream, reading.hop, reading.counter))
        if base is not None and reading.frames >= base:
            yield replace(reading, frames=reading.frames - base)
