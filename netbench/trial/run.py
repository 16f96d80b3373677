"""One trial on a ready testbed: arm, send, drain, collect, judge."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.clock import Clock, clock_set_ns, read_clocks
from netbench.loads.base import Neighbour
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM
from netbench.model.traffic import Sent, Traffic
from netbench.model.trial import GuestResult, TrialResult, TrialSpec
from netbench.model.verdict import Reason, ReasonKind
from netbench.sinks.base import Received
from netbench.trial.accounting import account
from netbench.trial.evidence import Evidence
from netbench.trial.judging import judge
from netbench.trial.receiving import Receiving
from netbench.trial.setup import Endpoints, Side, TrialSetup, sides_of
from netbench.trial.snapshots import (
    Snapshot,
    Trouble,
    cpu_growth,
    growths_of,
    nic_deltas,
    places_of,
    points_of,
    shared_counters,
    take_snapshot,
)

# Sources are told to start this far in the future, so that all of them are waiting when the time comes.
_START_AHEAD_NS = 5_000_000
# How much of the duration a neighbour's sources may miss at either end.
_MAY_MISS_PART = 0.05

_NOTHING_SENT = Sent(0, 0, 0.0, None, None, 0, 0.0)


@dataclass(slots=True)
class _Steps:
    """How long each step took, for the record."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        begin = self.clock.monotonic_ns()
        try:
            yield
        finally:
            self.seconds[name] = (self.clock.monotonic_ns() - begin) / 1e9


def run_trial(setup: TrialSetup, spec: TrialSpec, profile: Profile, attempt: int, captures: Path) -> TrialResult:
    """Measure once. Captures are written to `captures` and stay there for the caller to keep or remove.

    Whatever goes wrong with a generator, sink, link, UUT or neighbour during the trial is a reason in the result;
    TestbedError is raised only when the testbed cannot go on.
    """
    steps, trouble = _Steps(setup.clock), Trouble()
    started_ns, clocks = setup.clock.realtime_ns(), read_clocks(setup.clock)
    sides = list(sides_of(setup, spec))
    endpoints = [ends for side in sides for ends in side.endpoints]
    traffic = {stream: one for side in sides for stream, one in side.traffic.items()}
    with ExitStack() as loads:
        with steps.step("load"):
            under_load = _start_loads(sides, loads, trouble)
        with steps.step("arm"):
            receiving = Receiving(endpoints, traffic, profile, _records(endpoints, spec, captures), started_ns)
            receiving.arm()
            unready = _prepare(endpoints, traffic)
            for side in sides:
                side.active.uut.reset()
            all_armed = receiving.armed()
        before = take_snapshot(setup, sides, trouble)
        with steps.step("send"):
            sent = {ends.path.name: unready.get(ends.path.name, _NOTHING_SENT) for ends in endpoints}
            if all_armed and under_load and not unready:
                sent = _send(setup, sides, spec.settle_before_s)
        with steps.step("drain"):
            quiet_time_s = max(side.active.ready.quiet_time_s for side in sides)
            drained = _drain(setup, endpoints, quiet_time_s, spec.drain_limit_s)
            setup.clock.sleep(spec.settle_after_s)
            after = take_snapshot(setup, sides, trouble)
            receiving.stop(spec.drain_limit_s)
            set_ns = clock_set_ns(clocks, read_clocks(setup.clock))
        with steps.step("unload"):
            _stop_loads(sides, trouble)
    steps.seconds["observe"] = (after.at_ns - before.at_ns) / 1e9
    with steps.step("analyse"):
        received = {name: receiving.received(name, what) for name, what in sent.items()}
        found = {
            side.guest: list(_evidence(side, len(endpoints), sent, received, before, after, set_ns)) for side in sides
        }
        counts = {guest: tuple(account(one) for one in evidence) for guest, evidence in found.items()}
    reasons = list(trouble.reasons)
    for guest, evidence in found.items():
        # A neighbour's offered load is what it is: it is measured, and whatever is said of it refers to that.
        limits = (spec.tolerance, spec.max_lateness_s) if guest == VICTIM else (inf, inf)
        for one, count in zip(evidence, counts[guest], strict=True):
            reasons += judge(one, count, *limits)
    reasons += _lazy_loads(sides, before, after)
    reasons += _absences(sides, sent, spec.duration_s)
    if set_ns:
        detail = f"the clock was set by {set_ns / 1e9:+,.6f} s: times stamped into frames mean nothing"
        reasons.append(Reason(ReasonKind.CLOCK_SET, "", detail))
    if not drained:
        reasons.append(
            Reason(ReasonKind.NOT_DRAINED, "", f"counters still moved {spec.drain_limit_s:g} s after the last frame")
        )
    machine_s = None
    if before.machine_s is not None and after.machine_s is not None:
        machine_s = round(after.machine_s - before.machine_s, 6)
    return TrialResult(
        spec,
        attempt,
        started_ns,
        guests=tuple(
            GuestResult(
                side.guest, counts[side.guest], shared_counters(side, before, after), cpu_growth(side, before, after)
            )
            for side in sides
        ),
        reasons=tuple(reasons),
        steps_s=steps.seconds,
        machine_cpu_s=machine_s,
    )


def _start_loads(sides: Sequence[Side], loads: ExitStack, trouble: Trouble) -> bool:
    """Start the neighbours' loads, to be ended at the latest when `loads` is left; whether all are at work."""
    for side in sides:
        if side.load is not None:
            loads.callback(_end_quietly, side.load)
            with trouble.noted(side.guest, of_load=True):
                side.load.start()
    return not trouble.reasons


def _end_quietly(load: Neighbour) -> None:
    with suppress(TestbedError):  # what went wrong with it is on record already
        load.stop()


def _stop_loads(sides: Sequence[Side], trouble: Trouble) -> None:
    for side in sides:
        if side.load is not None:
            with trouble.noted(side.guest, of_load=True):
                side.load.stop()


def _records(endpoints: Sequence[Endpoints], spec: TrialSpec, captures: Path) -> dict[str, Path]:
    """Where sinks write frames down that do so, by stream."""
    return {ends.path.name: captures / f"trial-{spec.index:06d}-{ends.path.name}" for ends in endpoints}


def _prepare(endpoints: Sequence[Endpoints], traffic: Mapping[str, Traffic]) -> dict[str, Sent]:
    """Have all sources ready; what those that cannot be have sent: nothing, and why."""
    unready = {}
    for ends in endpoints:
        try:
            ends.source.prepare(traffic[ends.path.name])
        except TestbedError as error:
            unready[ends.path.name] = replace(_NOTHING_SENT, error=str(error))
    return unready


def _send(setup: TrialSetup, sides: Sequence[Side], settle_s: float) -> dict[str, Sent]:
    """What every source has sent; the neighbours' start first, and the settling time passes while they send."""
    victim, *neighbours = sides
    _start([ends for side in neighbours for ends in side.endpoints], setup.clock)
    setup.clock.sleep(settle_s)
    _start(victim.endpoints, setup.clock)
    # A source bounds itself; this only catches one that hangs.
    longest_s = max(one.duration_s for side in sides for one in side.traffic.values())
    limit_s = 5 * longest_s + 10
    return {ends.path.name: ends.source.wait(limit_s) for side in sides for ends in side.endpoints}


def _start(endpoints: Sequence[Endpoints], clock: Clock) -> None:
    at_ns = clock.monotonic_ns() + _START_AHEAD_NS
    for ends in endpoints:
        ends.source.start(at_ns)


def _lazy_loads(sides: Sequence[Side], before: Snapshot, after: Snapshot) -> Iterator[Reason]:
    """Neighbours whose load was there and did nothing."""
    for side in sides:
        earlier, later = before.loads_s.get(side.guest), after.loads_s.get(side.guest)
        if earlier is not None and later is not None and later <= earlier:
            detail = f"neighbour {side.guest}: its load used no CPU time during the trial"
            yield Reason(ReasonKind.NEIGHBOUR_LOAD_FAILED, "", detail)


def _absences(sides: Sequence[Side], sent: Mapping[str, Sent], duration_s: float) -> Iterator[Reason]:
    """Neighbours whose sources did not send all the time while the victim's did."""
    victim, *neighbours = sides
    of_victim = [sent[ends.path.name] for ends in victim.endpoints]
    first = min((one.first_ns for one in of_victim if one.first_ns is not None), default=None)
    last = max((one.last_ns for one in of_victim if one.last_ns is not None), default=None)
    if first is None or last is None:
        return
    for side in neighbours:
        for stream in (ends.path.name for ends in side.endpoints):
            own = sent[stream]
            if own.first_ns is None or own.last_ns is None:
                continue
            missed_s = max(0, own.first_ns - first, last - own.last_ns) / 1e9
            if missed_s > _MAY_MISS_PART * duration_s:
                yield Reason(
                    ReasonKind.NEIGHBOUR_STOPPED_EARLY,
                    stream,
                    f"neighbour {side.guest} sent nothing during {missed_s:.3f} s of what the victim's sources took",
                )


def _drain(setup: TrialSetup, endpoints: Sequence[Endpoints], quiet_time_s: float, limit_s: float) -> bool:
    """Return True when no counter of the path has moved for a moment, False after `limit_s`."""
    places = places_of(endpoints)
    deadline = setup.clock.monotonic_ns() + int(limit_s * 1e9)
    last = setup.read_nics(places)
    while setup.clock.monotonic_ns() < deadline:
        setup.clock.sleep(quiet_time_s)
        now = setup.read_nics(places)
        if now == last:
            return True
        last = now
    return False


def _evidence(
    side: Side,
    streams: int,
    sent: Mapping[str, Sent],
    received: Mapping[str, Received],
    before: Snapshot,
    after: Snapshot,
    clock_set_ns: int,
) -> Iterator[Evidence]:
    points = points_of(side)
    for ends in side.endpoints:
        name, traffic = ends.path.name, side.traffic[ends.path.name]
        yield Evidence(
            path=ends.path,
            traffic=traffic,
            sent=sent[name],
            received=received[name],
            nics=nic_deltas(ends.path, before, after),
            points=tuple(points[name]),
            growths=growths_of(side, name, streams - 1, before, after),
            clock_set_ns=clock_set_ns,
        )
