"""All counters around the traffic of a trial, and how they grew."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from netbench.errors import MachineGoneError, TestbedError
from netbench.linux.nics import NicCounters
from netbench.model.counts import PointCount
from netbench.model.paths import Place, StreamPath
from netbench.model.points import UUT, CounterReading, Points, whole_path
from netbench.model.scenario import VICTIM
from netbench.model.verdict import Reason, ReasonKind
from netbench.trial.evidence import REMOVED, RESET, UNCOUNTED, Growth, NicDelta, growth
from netbench.trial.setup import Endpoints, TrialGuest, TrialSetup
from netbench.uut.base import Reading


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All counters at one moment; what a guest says of itself by its name."""

    at_ns: int
    nics: dict[Place, NicCounters]
    counters: tuple[CounterReading, ...]
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
            elif guest != VICTIM:
                kind, detail = ReasonKind.NEIGHBOUR_FAILED, f"neighbour {guest}: {error}"
            self.reasons[Reason(kind, "", detail)] = None


def take_snapshot(setup: TrialSetup, guests: Sequence[TrialGuest], trouble: Trouble) -> Snapshot:
    """Read everything now; a guest that cannot be read is left out and noted."""
    endpoints = [ends for guest in guests for ends in guest.endpoints]
    machine_s = setup.machine_cpu_s() if setup.machine_cpu_s else None
    at_ns = setup.clock.monotonic_ns()
    nics = setup.read_nics(places_of(endpoints))
    counters = setup.read_counters({stream: points for guest in guests for stream, points in points_of(guest).items()})
    readings, loads_s = {}, {}
    for guest in guests:
        with trouble.noted(guest.name):
            # Who forwards nothing has no counters to read, and may be too busy to be asked at length.
            uut = guest.active.uut
            readings[guest.name] = uut.read() if guest.endpoints else Reading(cpu_s=uut.cpu_s())
        if guest.load is not None:
            with trouble.noted(guest.name, of_load=True):
                used_s = guest.load.cpu_s()
                if used_s is not None:
                    loads_s[guest.name] = used_s
    return Snapshot(at_ns, nics, counters, readings, loads_s, machine_s)


def cpu_growth(guest: TrialGuest, before: Snapshot, after: Snapshot) -> dict[str, float]:
    """CPU time used in between, in seconds, by whose it is."""
    earlier, later = (one.guests.get(guest.name, Reading()).cpu_s for one in (before, after))
    used = {whose: round(later[whose] - spent, 6) for whose, spent in earlier.items() if whose in later}
    if guest.name in before.loads_s and guest.name in after.loads_s:
        used["load"] = round(after.loads_s[guest.name] - before.loads_s[guest.name], 6)
    return used


def machine_cpu_growth(before: Snapshot, after: Snapshot) -> float | None:
    """CPU time that the UUT's machine used in between, in seconds; None where it is not read."""
    if before.machine_s is None or after.machine_s is None:
        return None
    return round(after.machine_s - before.machine_s, 6)


def points_of(guest: TrialGuest) -> Points:
    """The whole paths of the streams of a guest that it forwards now, and what it declares of those that it could."""
    declared = guest.active.ready.points
    paths = {ends.path.name: whole_path(ends.path, declared.get(ends.path.name, ())) for ends in guest.endpoints}
    return {**declared, **paths}


def shared_counters(guest: TrialGuest, before: Snapshot, after: Snapshot) -> tuple[PointCount, ...]:
    """What is counted on the way of all streams of a guest together."""
    return tuple(one.count for one in growths_of(guest, "", 0, before, after))


def places_of(endpoints: Sequence[Endpoints]) -> list[Place]:
    """Where all NICs of some endpoints are."""
    return [nic.place for ends in endpoints for nic in ends.path.nics.values()]


def nic_deltas(path: StreamPath, before: Snapshot, after: Snapshot) -> dict[str, NicDelta | None]:
    """How the counters of each NIC of a path grew, by role; None for a NIC that could not be read."""

    def delta(place: Place) -> NicDelta | None:
        if place not in before.nics or place not in after.nics:
            return None
        return NicDelta.between(before.nics[place], after.nics[place])

    return {role: delta(nic.place) for role, nic in path.nics.items()}


def growths_of(guest: TrialGuest, stream: str, others: int, before: Snapshot, after: Snapshot) -> tuple[Growth, ...]:
    """How all counters but those of the NICs grew on the way of one stream, from source to sink.

    `others` are how many more streams the trial has. What does not tell streams apart is this stream's own when no
    other one can have taken the same way: through the guest, or through its machine.
    """
    earlier, later = (_readings(guest, one) for one in (before, after))
    alone = {"guest": len(guest.endpoints) == 1, "machine": not others}
    along = points_of(guest)[stream or guest.endpoints[0].path.name] if guest.endpoints else ()
    points = {point.name: point for point in along}
    found = []
    for key, reading in (earlier | later).items():
        if reading.stream not in ("", stream) or (key[0] == "guest" and key not in later):
            continue
        grown = growth(_at_first(key[0], earlier.get(key)), reading.frames) if key in later else None
        found.append(
            Growth(
                point=points.get(reading.point) or replace(points[UUT], name=reading.point),
                counter=reading.counter,
                role=reading.role,
                frames=grown,
                shared=not (reading.stream or alone[key[0]]),
                silent=_silent(key[0], reading, grown, removed=key not in later),
                indiscriminate=key[0] == "machine",
            )
        )
    return tuple(sorted(found, key=lambda one: one.point.order))


def _silent(who: str, reading: CounterReading, grown: int | None, *, removed: bool) -> str:
    """Why a counter does not tell how many frames it dropped, empty when it does or none of these is known of it."""
    if removed:
        return REMOVED
    if reading.frames is None:
        return UNCOUNTED
    return RESET if who == "machine" and grown is None else ""


def _at_first(who: str, reading: CounterReading | None) -> int | None:
    """What a counter was before: of a machine, which is read whole or not at all, a new one began at 0."""
    if reading is not None:
        return reading.frames
    return 0 if who == "machine" else None


def _readings(guest: TrialGuest, snapshot: Snapshot) -> dict[tuple[str, str, str, str], CounterReading]:
    """What a guest and its machine have counted, by who says it, stream, point and counter."""
    own = {ends.path.name for ends in guest.endpoints}
    inside = snapshot.guests.get(guest.name, Reading()).counters
    machine = [one for one in snapshot.counters if one.stream in own or (not one.stream and own)]
    said = [*(("guest", one) for one in inside), *(("machine", one) for one in machine)]
    return {(who, one.stream, one.point, one.counter): one for who, one in said}
