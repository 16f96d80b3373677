"""All counters around the traffic of a trial, and how they grew."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from netbench.errors import MachineGoneError, TestbedError
from netbench.linux.nics import NicCounters
from netbench.model.counts import PointCount
from netbench.model.distributions import ClockDifference
from netbench.model.interfaces import Place
from netbench.model.paths import StreamPath
from netbench.model.points import (
    ALL_RULES,
    OTHERHOST,
    UUT,
    CounterReading,
    CountingPoint,
    Kind,
    Points,
    Where,
    whole_path,
)
from netbench.model.received import Received
from netbench.model.scenario import VICTIM
from netbench.model.traffic import Sent
from netbench.model.verdict import Reason, ReasonKind
from netbench.trial.evidence import CHANGED, REMOVED, REPLACED, RESET, UNCOUNTED, Evidence, Growth, NicDelta, growth
from netbench.trial.setup import ClockReader, Endpoints, TrialGuest, TrialSetup, of_this_machine
from netbench.uut.base import Reading

_GUEST, _MACHINE = "guest", "machine"  # who says what was counted


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All counters at one moment; what a guest says of itself by its name."""

    at_ns: int
    nics: dict[Place, NicCounters]
    counters: tuple[CounterReading, ...]
    guests: dict[str, Reading]
    loads_s: dict[str, float]
    machine_s: tuple[float, float] | None


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


def machine_cpu_growth(before: Snapshot, after: Snapshot) -> tuple[float | None, float | None]:
    """CPU time that the UUT's machine used in between, and what of it softirqs did, in seconds; None: not read."""
    if before.machine_s is None or after.machine_s is None:
        return None, None
    (busy_s, softirq_s), (later_s, later_softirq_s) = before.machine_s, after.machine_s
    return round(later_s - busy_s, 6), round(later_softirq_s - softirq_s, 6)


def points_of(guest: TrialGuest) -> Points:
    """The whole paths of the streams of a guest that it forwards now, and what it declares of those that it could."""
    declared = guest.active.ready.points
    paths = {ends.path.name: whole_path(ends.path, declared.get(ends.path.name, ())) for ends in guest.endpoints}
    return {**declared, **paths}


def shared_counters(guest: TrialGuest, before: Snapshot, after: Snapshot) -> tuple[PointCount, ...]:
    """What is counted on the way of all streams of a guest together."""
    return tuple(one.count for one in growths_of(guest, "", 0, before, after))


def places_of(endpoints: Sequence[Endpoints]) -> list[Place]:
    """Where all NICs of some endpoints are, each once."""
    return list(dict.fromkeys(nic.place for ends in endpoints for nic in ends.path.nics.values()))


def nic_deltas(
    path: StreamPath, before: Snapshot, after: Snapshot, macs: Mapping[Place, str] = {}
) -> dict[str, NicDelta | None]:
    """How the counters of each NIC of a path grew, by role; None for a NIC that could not be read.

    `macs` are the MAC addresses when the UUT became ready.
    """

    def delta(place: Place) -> NicDelta | None:
        if place not in before.nics or place not in after.nics:
            return None
        return NicDelta.between(before.nics[place], after.nics[place], macs.get(place, ""))

    return {role: delta(nic.place) for role, nic in path.nics.items()}


def evidence_of(
    guest: TrialGuest,
    sent: Mapping[str, Sent],
    received: Mapping[str, Received],
    before: Snapshot,
    after: Snapshot,
    streams: int = 1,
    clocks_set_ns: Mapping[str | None, int] = {},
    realtime: ClockReader = of_this_machine,
) -> list[Evidence]:
    """What is known of each stream of a guest, in a trial of so many streams of all guests."""
    points, sources = points_of(guest), {ends.path.source.place for ends in guest.endpoints}

    def throughout(machine: str | None) -> ClockDifference | None:
        told = realtime(machine)
        return told.over(after.at_ns - before.at_ns) if machine and told else told

    nics = {ends.path.name: nic_deltas(ends.path, before, after, guest.active.macs) for ends in guest.endpoints}
    return [
        Evidence(
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


def _for_another_mac(points: Sequence[CountingPoint], ingress: NicDelta | None) -> Iterator[Growth]:
    """Yield the count of frames for another MAC address, where an IP layer takes what comes in at the ingress NIC.

    Elsewhere the IP layer may drop copies of frames that something else forwards.
    """
    if ingress and ingress.rx_otherhost_dropped is not None and any(one.kind is Kind.IP_LAYER for one in points):
        point = next(one for one in points if one.where is Where.INGRESS)
        identity = (OTHERHOST, str(point.place))
        frames = ingress.rx_otherhost_dropped
        yield Growth(point, OTHERHOST, "dropped", frames, indiscriminate=True, identity=identity)


def growths_of(guest: TrialGuest, stream: str, others: int, before: Snapshot, after: Snapshot) -> tuple[Growth, ...]:
    """How all counters but those of the NICs grew on the way of one stream, from source to sink.

    `others` are how many more streams the trial has. What does not tell streams apart is this stream's own when no
    other one can have taken the same way: through the guest, or through its machine.
    """
    earlier, later = (_readings(guest, one) for one in (before, after))
    changed = (one for key, one in earlier.items() if key not in later or later[key].handle != one.handle)
    gone = {one.owner for one in changed if one.owner}
    alone = {_GUEST: len(guest.endpoints) == 1, _MACHINE: not others}
    along = points_of(guest)[stream or guest.endpoints[0].path.name] if guest.endpoints else ()
    points = {point.name: point for point in along}
    found = []
    for key, reading in (earlier | later).items():
        who, was, now = key[0], earlier.get(key), later.get(key)
        is_as_before = reading.counter == ALL_RULES and was is not None and was == now
        if reading.stream not in ("", stream) or (who == _GUEST and now is None) or is_as_before:
            continue
        grown, silent = _grown(was, now, new_from_0=who == _MACHINE, gone=gone)
        if silent and reading.counter == ALL_RULES:
            silent = CHANGED
        found.append(
            Growth(
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
            )
        )
    return tuple(sorted(found, key=lambda one: one.point.order))


def _went_back(was: CounterReading | None, now: CounterReading | None) -> bool:
    known = was and now and None not in (was.frames, now.frames)
    return bool(known and was and now and growth(was.frames, now.frames) is None)


def _grown(
    was: CounterReading | None, now: CounterReading | None, *, new_from_0: bool, gone: Collection[str]
) -> tuple[int | None, str]:
    """By how much a counter grew, and as of Growth why nobody knows what it dropped, empty when that is not so.

    A new one began at 0 where so many are read as there are (`new_from_0`), unless it took the place of one that is
    gone, with its owner or from it.
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


def _readings(guest: TrialGuest, snapshot: Snapshot) -> dict[tuple[str, str, str, str], CounterReading]:
    """What a guest and its machine have counted, by who says it, stream, point and counter."""
    own = {ends.path.name for ends in guest.endpoints}
    inside = snapshot.guests.get(guest.name, Reading()).counters
    machine = [one for one in snapshot.counters if one.stream in own or (not one.stream and own)]
    said = [*((_GUEST, one) for one in inside), *((_MACHINE, one) for one in machine)]
    return {(who, one.stream, one.point, one.counter): one for who, one in said}
