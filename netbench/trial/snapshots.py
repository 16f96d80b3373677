"""Readings of all counters before and after the traffic of a trial, and their growth."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from netbench.errors import MachineGoneError, TestbedError
from netbench.linux.counters.counting_points import NicCounters
from netbench.model.counts import PointCount
from netbench.model.distributions import ClockDifference
from netbench.model.paths import InterfaceRef, StreamPath
from netbench.model.points import (
    ALL_RULES,
    OTHERHOST,
    UUT,
    CounterReading,
    CountingPoint,
    PathSection,
    PointKind,
    Points,
    whole_path,
)
from netbench.model.received import Received
from netbench.model.scenario import VICTIM
from netbench.model.traffic import Sent
from netbench.model.verdict import Reason, ReasonKind
from netbench.trial.observation import (
    CHANGED,
    REMOVED,
    REPLACED,
    RESET,
    UNCOUNTED,
    CounterDelta,
    NicDelta,
    StreamObservation,
    growth,
)
from netbench.trial.setup import ClockReader, Endpoints, TrialGuest, TrialSetup, of_this_machine
from netbench.uut.base import Reading

_GUEST, _MACHINE = "guest", "machine"  # the source of a reading


@dataclass(frozen=True, slots=True)
class CounterSnapshot:
    """All counters at one moment; `guests` are the guests' own readings, by name."""

    at_ns: int
    nics: dict[InterfaceRef, NicCounters]
    counters: tuple[CounterReading, ...]
    guests: dict[str, Reading]
    loads_s: dict[str, float]
    machine_s: tuple[float, float] | None


@dataclass(slots=True)
class FailureCollector:
    """The failures of guests and their loads, as reasons, each once."""

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
                kind = ReasonKind.NEIGHBOUR_LOAD_FAILED  # its message names the guest
            elif guest != VICTIM:
                kind, detail = ReasonKind.NEIGHBOUR_FAILED, f"neighbour {guest}: {error}"
            self.reasons[Reason(kind, "", detail)] = None


def take_snapshot(setup: TrialSetup, guests: Sequence[TrialGuest], trouble: FailureCollector) -> CounterSnapshot:
    """Return a reading of all counters; a guest that cannot be read is left out and recorded in `trouble`."""
    endpoints = [ends for guest in guests for ends in guest.endpoints]
    machine_s = setup.machine_cpu_s() if setup.machine_cpu_s else None
    at_ns = setup.clock.monotonic_ns()
    nics = setup.read_nics(places_of(endpoints))
    counters = setup.read_counters({stream: points for guest in guests for stream, points in points_of(guest).items()})
    readings, loads_s = {}, {}
    for guest in guests:
        with trouble.noted(guest.name):
            # A guest that forwards nothing has no counters to read, and may be too busy for a long query.
            uut = guest.active.uut
            readings[guest.name] = uut.read() if guest.endpoints else Reading(cpu_s=uut.cpu_s())
        if guest.load is not None:
            with trouble.noted(guest.name, of_load=True):
                used_s = guest.load.cpu_s()
                if used_s is not None:
                    loads_s[guest.name] = used_s
    return CounterSnapshot(at_ns, nics, counters, readings, loads_s, machine_s)


def cpu_growth(guest: TrialGuest, before: CounterSnapshot, after: CounterSnapshot) -> dict[str, float]:
    """Return the CPU time used between two snapshots, in seconds, by consumer; without those that went back.

    The sum over the processes of a container goes back when a process ends that no process in it waits for.
    """
    earlier, later = (snapshot.guests.get(guest.name, Reading()).cpu_s for snapshot in (before, after))
    pairs = {whose: (spent, later[whose]) for whose, spent in earlier.items() if whose in later}
    used = {whose: round(now - spent, 6) for whose, (spent, now) in pairs.items() if now >= spent}
    if guest.name in before.loads_s and guest.name in after.loads_s:
        used["load"] = round(after.loads_s[guest.name] - before.loads_s[guest.name], 6)
    return used


def machine_cpu_growth(before: CounterSnapshot, after: CounterSnapshot) -> tuple[float | None, float | None]:
    """Return the CPU time of the UUT's machine between two snapshots, and its softirq part, in s; None: not read."""
    if before.machine_s is None or after.machine_s is None:
        return None, None
    (busy_s, softirq_s), (later_s, later_softirq_s) = before.machine_s, after.machine_s
    return round(later_s - busy_s, 6), round(later_softirq_s - softirq_s, 6)


def points_of(guest: TrialGuest) -> Points:
    """Return the points of the whole paths of a guest's present streams, and its declared points of other streams."""
    declared = guest.active.ready.points
    paths = {ends.path.name: whole_path(ends.path, declared.get(ends.path.name, ())) for ends in guest.endpoints}
    return {**declared, **paths}


def shared_counters(guest: TrialGuest, before: CounterSnapshot, after: CounterSnapshot) -> tuple[PointCount, ...]:
    """Return the counts of the counters that all streams of a guest share."""
    return tuple(delta.count for delta in growths_of(guest, "", 0, before, after))


def places_of(endpoints: Sequence[Endpoints]) -> list[InterfaceRef]:
    """Return the places of all NICs of these endpoints, each once."""
    return list(dict.fromkeys(nic.place for ends in endpoints for nic in ends.path.nics.values()))


def nic_deltas(
    path: StreamPath, before: CounterSnapshot, after: CounterSnapshot, macs: Mapping[InterfaceRef, str] = {}
) -> dict[str, NicDelta | None]:
    """Return the growth of the counters of each NIC of a path, by role; None for a NIC that could not be read.

    `macs` are the MAC addresses when the UUT became ready.
    """

    def delta(place: InterfaceRef) -> NicDelta | None:
        if place not in before.nics or place not in after.nics:
            return None
        return NicDelta.between(before.nics[place], after.nics[place], macs.get(place, ""))

    return {role: delta(nic.place) for role, nic in path.nics.items()}


def evidence_of(
    guest: TrialGuest,
    sent: Mapping[str, Sent],
    received: Mapping[str, Received],
    before: CounterSnapshot,
    after: CounterSnapshot,
    streams: int = 1,
    clocks_set_ns: Mapping[str | None, int] = {},
    realtime: ClockReader = of_this_machine,
) -> list[StreamObservation]:
    """Return the evidence of each stream of a guest; the trial has so many `streams` of all guests."""
    points, sources = points_of(guest), {ends.path.source.place for ends in guest.endpoints}

    def throughout(machine: str | None) -> ClockDifference | None:
        difference = realtime(machine)
        return difference.over(after.at_ns - before.at_ns) if machine and difference else difference

    nics = {ends.path.name: nic_deltas(ends.path, before, after, guest.active.macs) for ends in guest.endpoints}
    return [
        StreamObservation(
            path=path,
            traffic=guest.traffic[path.name],
            sent=sent[path.name],
            received=received[path.name],
            nics=nics[path.name],
            points=tuple(points[path.name]),
            growths=(
                *_for_another_mac(points[path.name], nics[path.name].get("ingress")),
                *growths_of(guest, path.name, streams - 1, before, after),
            ),
            clock_set_ns=next(
                (clocks_set_ns[nic.machine] for nic in (path.source, path.sink) if nic.machine in clocks_set_ns), 0
            ),
            sink_sends=path.sink.place in sources,
            source_clock=throughout(path.source.machine),
            sink_clock=throughout(path.sink.machine),
        )
        for path in (ends.path for ends in guest.endpoints)
    ]


def _for_another_mac(points: Sequence[CountingPoint], ingress: NicDelta | None) -> Iterator[CounterDelta]:
    """Yield the count of frames for another MAC address, if an IP layer takes the frames of the ingress NIC.

    Otherwise the IP layer may drop copies of frames that something else forwards.
    """
    if (
        ingress
        and ingress.rx_otherhost_dropped is not None
        and any(layer.kind is PointKind.IP_LAYER for layer in points)
    ):
        point = next(candidate for candidate in points if candidate.where is PathSection.INGRESS)
        identity = (OTHERHOST, str(point.place))
        frames = ingress.rx_otherhost_dropped
        yield CounterDelta(point, OTHERHOST, "dropped", frames, indiscriminate=True, identity=identity)


def growths_of(
    guest: TrialGuest, stream: str, others: int, before: CounterSnapshot, after: CounterSnapshot
) -> tuple[CounterDelta, ...]:
    """Return the growths of all counters on the path of one stream, from source to sink, except those of the NICs.

    `others` is the number of other streams in the trial. A counter that does not distinguish streams belongs to this
    stream if no other stream can have passed it, in the guest or on its machine.
    """
    earlier, later = (_readings(guest, snapshot) for snapshot in (before, after))
    changed = (old for key, old in earlier.items() if key not in later or later[key].handle != old.handle)
    gone = {old.owner for old in changed if old.owner}
    alone = {_GUEST: len(guest.endpoints) == 1, _MACHINE: not others}
    along = points_of(guest)[stream or guest.endpoints[0].path.name] if guest.endpoints else ()
    points = {point.name: point for point in along}
    growths = []
    for key, reading in (earlier | later).items():
        who, was, now = key[0], earlier.get(key), later.get(key)
        is_as_before = reading.counter == ALL_RULES and was is not None and was == now
        if reading.stream not in ("", stream) or (who == _GUEST and now is None) or is_as_before:
            continue
        grown, silent = _grown(was, now, new_from_0=who == _MACHINE, gone=gone)
        if silent and reading.counter == ALL_RULES:
            silent = CHANGED
        growths.append(
            CounterDelta(
                point=points.get(reading.point) or replace(points[UUT], name=reading.point),
                counter=reading.counter,
                role=reading.role,
                frames=grown,
                shared=not (reading.stream or alone[who]),
                silent=silent,
                indiscriminate=who == _MACHINE,
                identity=(who, "" if who == _MACHINE else guest.name, *(reading.handle or key[1:])),
                went_back=_went_back(was, now),
                resettable=reading.resettable,
                is_foreign_program=reading.is_foreign_program,
            )
        )
    return tuple(sorted(growths, key=lambda delta: delta.point.order))


def _went_back(was: CounterReading | None, now: CounterReading | None) -> bool:
    known = was and now and None not in (was.frames, now.frames)
    return bool(known and was and now and growth(was.frames, now.frames) is None)


def _grown(
    was: CounterReading | None, now: CounterReading | None, *, new_from_0: bool, gone: Collection[str]
) -> tuple[int | None, str]:
    """Return by how much a counter grew, and why its drops are unknown (`silent` of Growth; empty if they are known).

    With `new_from_0` all existing counters are read: a new counter began at 0, unless it replaced one that is gone,
    together with its owner or within the same owner.
    """
    if now is None:
        return None, REMOVED
    if now.frames is None:
        return None, UNCOUNTED
    if was.handle != now.handle if was else now.owner in gone:
        return None, REPLACED
    began = was.frames if was else 0
    grown = growth(began, now.frames) if was or new_from_0 else None
    return grown, RESET if grown is None and new_from_0 else ""


def _readings(guest: TrialGuest, snapshot: CounterSnapshot) -> dict[tuple[str, str, str, str], CounterReading]:
    """Return the readings of a guest and its machine, by source of the reading, stream, point and counter."""
    own = {ends.path.name for ends in guest.endpoints}
    inside = snapshot.guests.get(guest.name, Reading()).counters
    machine = [reading for reading in snapshot.counters if reading.stream in own or (not reading.stream and own)]
    readings = [*((_GUEST, reading) for reading in inside), *((_MACHINE, reading) for reading in machine)]
    return {(who, reading.stream, reading.point, reading.counter): reading for who, reading in readings}
