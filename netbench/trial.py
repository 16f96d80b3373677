"""One trial on a ready testbed: arm, send, drain, collect, judge."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from netbench.analysis.accounting import Evidence, NicDelta, account
from netbench.analysis.capture import CaptureCounts, Expected, analyze_capture
from netbench.analysis.judging import judge
from netbench.errors import MachineGoneError, TestbedError, UsageError
from netbench.generators.base import Sent, Source, Traffic
from netbench.hosts.clock import Clock
from netbench.links.counters import NicCounters
from netbench.model.counts import HopCount, StreamCounts
from netbench.model.paths import Place, StreamPath
from netbench.model.profile import Profile
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.verdict import Reason, ReasonKind
from netbench.sinks.base import Arrived, Catch, Sink
from netbench.uut.base import HopReading, Reading, UnitUnderTest

NicReader = Callable[[Iterable[Place]], dict[Place, NicCounters]]

# Sources are told to start this far in the future, so that all of them are waiting when the time comes.
_START_AHEAD_NS = 5_000_000
_ARM_LIMIT_S = 10.0

_NOTHING_SENT = Sent(0, 0, 0.0, None, None, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Lane:
    """One stream with its source and sink at work."""

    path: StreamPath
    source: Source
    sink: Sink


@dataclass(frozen=True, slots=True)
class Bench:
    """What a trial needs of a ready testbed."""

    lanes: Mapping[str, Lane]
    uut: UnitUnderTest
    read_nics: NicReader
    clock: Clock


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


@dataclass(frozen=True, slots=True)
class _Snapshot:
    nics: dict[Place, NicCounters]
    uut: Reading


def run_trial(bench: Bench, spec: TrialSpec, profile: Profile, attempt: int, captures: Path) -> TrialResult:
    """Measure once. Captures are written to `captures` and stay there for the caller to keep or remove.

    Whatever goes wrong with a generator, sink, link or UUT during the trial is a reason in the result;
    TestbedError is raised only when the testbed cannot go on.
    """
    lanes = [bench.lanes[name] for name in spec.streams]
    steps = _Steps(bench.clock)
    started_ns = bench.clock.realtime_ns()
    traffic = {lane.path.name: _traffic(bench, lane, spec, profile) for lane in lanes}
    uut_reasons: list[Reason] = []
    with steps.step("arm"):
        for lane in lanes:
            lane.sink.arm(_catch(lane, traffic[lane.path.name], spec, profile, captures))
        unready = _prepare(lanes, traffic)
        bench.uut.reset()
        all_armed = all(lane.sink.armed(_ARM_LIMIT_S) for lane in lanes)
    before = _snapshot(bench, lanes, uut_reasons)
    bench.clock.sleep(profile.settle.before)
    with steps.step("send"):
        nothing = {lane.path.name: unready.get(lane.path.name, _NOTHING_SENT) for lane in lanes}
        sent = _send(bench, lanes, profile) if all_armed and not unready else nothing
    with steps.step("drain"):
        drained = _drain(bench, lanes, profile.drain_limit)
        bench.clock.sleep(profile.settle.after)
        after = _snapshot(bench, lanes, uut_reasons)
        arrived = _stop_sinks(lanes, profile.drain_limit, all_armed)
    grown = list(_grown(before, after))
    with steps.step("analyse"):
        evidence = [
            Evidence(
                path=lane.path,
                traffic=traffic[lane.path.name],
                sent=sent[lane.path.name],
                arrived=arrived[lane.path.name],
                capture=_read_capture(lane.path, spec, sent[lane.path.name], arrived[lane.path.name]),
                nics=_deltas(lane.path, before, after),
                uut_hops=tuple(reading for reading in grown if reading.stream == lane.path.name or len(lanes) == 1),
            )
            for lane in lanes
        ]
        counts: list[StreamCounts] = [account(one) for one in evidence]
        reasons = [
            reason
            for one, count in zip(evidence, counts, strict=True)
            for reason in judge(one, count, profile.tolerance, profile.max_lateness)
        ]
    if not drained:
        reasons.append(
            Reason(ReasonKind.NOT_DRAINED, "", f"counters still moved {profile.drain_limit:g} s after the last frame")
        )
    return TrialResult(
        spec,
        attempt,
        started_ns,
        streams=tuple(counts),
        reasons=(*dict.fromkeys(uut_reasons), *reasons),
        steps_s=steps.seconds,
        hops=tuple(HopCount(one.hop, one.counter, one.role, one.frames) for one in grown if not one.stream),
        cpu_s={
            whose: after.uut.cpu_s[whose] - used for whose, used in before.uut.cpu_s.items() if whose in after.uut.cpu_s
        },
    )


def _traffic(bench: Bench, lane: Lane, spec: TrialSpec, profile: Profile) -> Traffic:
    path = lane.path
    wanted = spec.load.fps(spec.frame_size, path.link_bps)
    return Traffic(
        stream=path.name,
        src_mac=path.source.mac,
        dst_mac=bench.uut.next_hop_mac(path),
        src_ip=path.src_ip,
        dst_ip=path.dst_ip,
        frame_size=spec.frame_size,
        fps=None if wanted is None else lane.source.nearest_fps(wanted, spec.frame_size),
        duration_s=profile.duration,
        flows=profile.flows,
        seed=profile.seed,
    )


def _catch(lane: Lane, traffic: Traffic, spec: TrialSpec, profile: Profile, captures: Path) -> Catch:
    capture = captures / f"trial-{spec.index:06d}-{lane.path.name}.pcap"
    return Catch(traffic.src_ip, traffic.dst_ip, traffic.fps, profile.snap_length, capture)


def _prepare(lanes: list[Lane], traffic: dict[str, Traffic]) -> dict[str, Sent]:
    """Have all sources ready; what those that cannot be have sent: nothing, and why."""
    unready = {}
    for lane in lanes:
        try:
            lane.source.prepare(traffic[lane.path.name])
        except TestbedError as error:
            unready[lane.path.name] = replace(_NOTHING_SENT, error=str(error))
    return unready


def _send(bench: Bench, lanes: list[Lane], profile: Profile) -> dict[str, Sent]:
    start = bench.clock.monotonic_ns() + _START_AHEAD_NS
    for lane in lanes:
        lane.source.start(start)
    # A source bounds itself; this only catches one that hangs.
    limit = 5 * profile.duration + 10
    return {lane.path.name: lane.source.wait(limit) for lane in lanes}


def _drain(bench: Bench, lanes: list[Lane], limit_s: float) -> bool:
    """Return True when no counter of the path has moved for a moment, False after `limit_s`."""
    places = _places(lanes)
    deadline = bench.clock.monotonic_ns() + int(limit_s * 1e9)
    last = bench.read_nics(places)
    while bench.clock.monotonic_ns() < deadline:
        bench.clock.sleep(bench.uut.patience_s)
        now = bench.read_nics(places)
        if now == last:
            return True
        last = now
    return False


def _stop_sinks(lanes: list[Lane], limit_s: float, all_armed: bool) -> dict[str, Arrived]:
    if all_armed:
        for lane in lanes:
            lane.sink.flush(limit_s)
    return {lane.path.name: lane.sink.stop() for lane in lanes}


def _read_capture(path: StreamPath, spec: TrialSpec, sent: Sent, arrived: Arrived) -> CaptureCounts | None:
    """The counts of a capture; None for one that is incomplete: part of a count would look like loss."""
    if arrived.error or sent.first_ns is None or sent.last_ns is None:
        return None
    expected = Expected(
        stream=path.name,
        src_ip=path.src_ip,
        dst_ip=path.dst_ip,
        frame_size=spec.frame_size,
        sent_frames=sent.frames,
        first_sequence=sent.first_sequence,
        sent_from_ns=sent.first_ns,
        sent_until_ns=sent.last_ns,
        stamped=sent.stamped,
        stamped_early=sent.stamped_early,
    )
    try:
        counts = analyze_capture(arrived.capture, [expected])
    except UsageError:
        return None
    whole = not (counts.truncated or counts.damage or counts.odd_length_frames or counts.unknown_blocks)
    return counts if whole and counts.frames == arrived.captured_frames else None


def _snapshot(bench: Bench, lanes: list[Lane], reasons: list[Reason]) -> _Snapshot:
    nics = bench.read_nics(_places(lanes))
    try:
        return _Snapshot(nics, bench.uut.read())
    except MachineGoneError:
        raise
    except TestbedError as error:
        reasons.append(Reason(ReasonKind.UUT_FAILED, "", str(error)))
        return _Snapshot(nics, Reading())


def _places(lanes: list[Lane]) -> list[Place]:
    return [nic.place for lane in lanes for nic in lane.path.nics.values()]


def _deltas(path: StreamPath, before: _Snapshot, after: _Snapshot) -> dict[str, NicDelta | None]:
    def delta(place: Place) -> NicDelta | None:
        if place not in before.nics or place not in after.nics:
            return None
        return NicDelta.between(before.nics[place], after.nics[place])

    return {role: delta(nic.place) for role, nic in path.nics.items()}


def _grown(before: _Snapshot, after: _Snapshot) -> Iterator[HopReading]:
    """How each counter of the UUT grew; one that went backwards was reset, and says nothing."""
    earlier = {(reading.stream, reading.hop, reading.counter): reading.frames for reading in before.uut.hops}
    for reading in after.uut.hops:
        base = earlier.get((reading.stream, reading.hop, reading.counter))
        if base is not None and reading.frames >= base:
            yield replace(reading, frames=reading.frames - base)
