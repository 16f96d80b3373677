"""Judges a trial: derives from its evidence the typed reasons against it."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, inf
from typing import NamedTuple

from netbench.model.counts import USUAL_QUEUE, DropKind, StreamCounts
from netbench.model.frame_size import FrameSize
from netbench.model.received import Received
from netbench.model.scenario import VICTIM
from netbench.model.selftest_record import Ceilings
from netbench.model.tester import Disturbance
from netbench.model.traffic import Sent
from netbench.model.trial import GuestResult, TrialSpec
from netbench.model.verdict import Finding, Reason, ReasonKind
from netbench.trial.conservation import imbalances
from netbench.trial.observation import StreamObservation
from netbench.trial.path_rules import counter_findings, path_findings
from netbench.trial.source_rules import falls_short, saturation, source_findings

# The part of the duration that a neighbour's sources may miss at either end.
_MAY_MISS_PART = 0.05
# The part of the sent frames that may be in queues at the end. Loss is too low by at most this part.
_MAY_BE_BUFFERED_PART = 0.05
# A saturated source that offers at least this part of the tester's own ceiling may be the bottleneck itself.
_NEAR_CEILING = 0.9
# The part of the intended load that must be offered before a full ring proves that the tester was not the limit.
_REACHED = 0.99
# How long the source and the ingress thread of a stream together may be stalled, as a part of the duration, and in a
# short trial in seconds. Up to 2 % and 3 ms were seen on a host that had other work to do.
_MAY_BE_STALLED_PART = 0.03
_MAY_BE_STALLED_S = 0.005
# How far apart in time the victim's sources may begin or end, as a part of the duration.
_MAY_BE_APART_PART = 0.1


# Reasons that apply to a trial in which the UUT was restarted. Its own counters and links started anew in between.
_OF_THE_TESTER = frozenset(
    {
        ReasonKind.SATURATED,
        ReasonKind.OFFERED_OUT_OF_TOLERANCE,
        ReasonKind.GENERATOR_ERRORS,
        ReasonKind.GENERATOR_FAILED,
        ReasonKind.NOTHING_SENT,
        ReasonKind.CAPTURE_DROPPED,
        ReasonKind.CAPTURE_FAILED,
        ReasonKind.CAPTURE_DISK_FULL,
        ReasonKind.CLOCK_SET,
        ReasonKind.TESTER_DISTURBED,
    }
)


class FlowsSpan(NamedTuple):
    """The time from the first to the last operation of flows, in ns since 1970 by the clock of the clients' machine."""

    first_ns: int
    last_ns: int
    machine: str | None


def judge_trial(
    spec: TrialSpec,
    guests: Sequence[GuestResult],
    evidence: Sequence[Sequence[StreamObservation]],
    *,
    clocks_set_ns: Mapping[str | None, int],
    drained: bool,
    disturbance: Disturbance | None = None,
    flows: FlowsSpan | None = None,
) -> Iterator[Reason]:
    """Yield the reasons against a trial, by the counts and the evidence of its guests: the victim, then the neighbours.

    `flows` is the time of the victim's flows, if it serves.

    If the victim was restarted, only reasons that concern the tester are yielded. A stream whose tester was disturbed
    is never reported as saturated: its offered load does not show the limit of the path.

    `clocks_set_ns` is by how much clocks were set, by machine. `drained`: the counters stood still after the trial.
    """
    stalls = disturbed(spec, disturbance) if disturbance else []
    stalled_streams = {reason.stream for reason in stalls}
    judged = _judged(spec, guests, evidence, clocks_set_ns=clocks_set_ns, drained=drained, flows=flows)
    for reason in (*judged, *stalls):
        is_saturated = reason.kind is ReasonKind.SATURATED and not stalled_streams.isdisjoint(("", reason.stream))
        if not is_saturated and (spec.restart_at_s is None or reason.kind in _OF_THE_TESTER):
            yield reason


def disturbed(spec: TrialSpec, disturbance: Disturbance) -> list[Reason]:
    """Return a reason for each stream of the victim during which the tester or the victim was stalled, with the time.

    The limit is 3 % of the duration, or the tolerance of the trial if that is more, and at least 5 ms.
    """
    limit_s = max(_MAY_BE_STALLED_S, max(_MAY_BE_STALLED_PART, spec.tolerance) * spec.duration_s)
    reasons = []
    for stream in spec.streams:
        stalled_s = disturbance.stalled_of(stream)
        if stalled_s is not None and stalled_s > limit_s:
            stalled = [thread for thread in disturbance.decisive_of(stream) if thread.stalled_s]
            threads = ", ".join(
                f"{thread.role} {thread.name} {(thread.stalled_s or 0) * 1e3:,.0f} ms" for thread in stalled
            )
            who = "the UUT" if all(thread.role == "uut" for thread in stalled) else "the tester"
            detail = (
                f"{who} was kept from running for {stalled_s * 1e3:,.0f} ms of {spec.duration_s:g} s ({threads}; "
                f"limit {limit_s * 1e3:,.0f} ms); stop other programs on this machine, or dedicate CPUs to netbench"
            )
            reasons.append(Reason(ReasonKind.TESTER_DISTURBED, stream, detail))
    if spec.serves and disturbance.contended_s > limit_s:
        detail = (
            f"other programs used {(disturbance.foreign_s or 0) * 1e3:,.0f} ms of CPU time, and the host took "
            f"{(disturbance.steal_s or 0) * 1e3:,.0f} ms, while tools ran for {spec.duration_s:g} s (limit "
            f"{limit_s * 1e3:,.0f} ms); stop other programs on this machine, or dedicate CPUs to netbench"
        )
        reasons.append(Reason(ReasonKind.TESTER_DISTURBED, "", detail))
    if disturbance.throttled_s is not None and disturbance.throttled_s > limit_s:
        detail = (
            f"a CPU limit stopped netbench's control group for {disturbance.throttled_s * 1e3:,.0f} ms (all CPUs added "
            f"up) of {spec.duration_s:g} s, more than {limit_s * 1e3:,.0f} ms; run netbench without the limit"
        )
        reasons.append(Reason(ReasonKind.TESTER_DISTURBED, "", detail))
    return reasons


def _judged(
    spec: TrialSpec,
    guests: Sequence[GuestResult],
    evidence: Sequence[Sequence[StreamObservation]],
    *,
    clocks_set_ns: Mapping[str | None, int],
    drained: bool,
    flows: FlowsSpan | None,
) -> Iterator[Reason]:
    for guest, guest_evidence in zip(guests, evidence, strict=True):
        for stream_evidence, counts in zip(guest_evidence, guest.streams, strict=True):
            if guest.name == VICTIM:
                yield from judge(stream_evidence, counts, spec.tolerance, spec.max_lateness_s)
                continue
            # The offered load of a neighbour has no tolerance: it is measured, and all results refer to it.
            yield from judge(stream_evidence, counts, inf, inf)
            if detail := saturation(stream_evidence, spec.tolerance):
                yield Reason(ReasonKind.SATURATED, counts.stream, detail)
    for counts in guests[0].streams:
        yield from buffered(counts)
    for task in spec.guests:
        if task.share_of_less:
            who = "the UUT" if task.name == VICTIM else f"neighbour {task.name}"
            detail = (
                f"the load of {who} is a share of a lower bound, not of the maximum; the limit was {task.share_of_less}"
            )
            yield Reason(ReasonKind.SHARE_OF_LOWER_BOUND, "", detail)
        if task.is_less_than_share:
            load = spec.load if task.name == VICTIM else task.traffic and task.traffic.load
            detail = f"{load} is more than the sources can sustain; they offered their highest sustained rate"
            yield Reason(ReasonKind.LESS_THAN_SHARE, "", detail)
    for guest in guests:
        if guest.cpu_s.get("load", inf) <= 0:
            detail = f"neighbour {guest.name}: its load used no CPU time during the trial"
            yield Reason(ReasonKind.NEIGHBOUR_LOAD_FAILED, "", detail)
    victim, *neighbours = evidence
    yield from _apart(victim, max(_MAY_BE_APART_PART, spec.tolerance) * spec.duration_s)
    for guest, guest_evidence in zip(guests[1:], neighbours, strict=True):
        yield from _absences(guest.name, guest_evidence, victim, flows, spec)
    for machine, set_ns in clocks_set_ns.items():
        whose = f"the clock of host {machine}" if machine else "the clock"
        detail = f"{whose} was set by {set_ns / 1e9:+,.6f} s: time stamps in frames are unusable"
        yield Reason(ReasonKind.CLOCK_SET, "", detail)
    if not drained:
        detail = f"counters still moved {spec.drain_limit_s:g} s after the last frame"
        yield Reason(ReasonKind.NOT_DRAINED, "", detail)


def judge(evidence: StreamObservation, counts: StreamCounts, tolerance: float, max_lateness_s: float) -> list[Reason]:
    """Return the reasons against one stream of a trial.

    `tolerance` is a ratio of the intended load. `max_lateness_s` is how far a source may fall behind its schedule. It
    is limited to a tenth of the duration, or to the tolerance if that is more.
    """
    findings = [
        *source_findings(evidence, counts, tolerance, max_lateness_s),
        *_sink(evidence.received, evidence.sent),
        *_dropped_unknown(evidence.received, counts),
        *path_findings(evidence, counts),
        *_frames(evidence, counts),
    ]
    return [Reason(kind, evidence.path.name, detail) for kind, detail in findings]


def _absences(
    neighbour: str,
    evidence: Sequence[StreamObservation],
    victim: Sequence[StreamObservation],
    flows: FlowsSpan | None,
    spec: TrialSpec,
) -> Iterator[Reason]:
    """Yield a reason for each source of a neighbour that did not send during all the time of the victim's traffic."""
    first_ns = min((stream.sent.first_ns for stream in victim if stream.sent.first_ns is not None), default=None)
    last_ns = max((stream.sent.last_ns for stream in victim if stream.sent.last_ns is not None), default=None)
    whose = "sources sent"
    if flows is not None:
        first_ns, last_ns, whose = flows.first_ns, flows.last_ns, "clients ran"
        evidence = [stream for stream in evidence if stream.path.source.machine == flows.machine]
    for stream in evidence:
        sent = stream.sent
        if first_ns is None or last_ns is None or sent.first_ns is None or sent.last_ns is None:
            continue
        missed_s = max(0, sent.first_ns - first_ns, last_ns - sent.last_ns) / 1e9
        if falls_short(stream, spec.tolerance):
            missed_s += sent.descheduled_s
        if missed_s > _MAY_MISS_PART * spec.duration_s:
            detail = f"neighbour {neighbour} sent nothing for {missed_s:.3f} s while the victim's {whose}"
            yield Reason(ReasonKind.NEIGHBOUR_STOPPED_EARLY, stream.path.name, detail)


def buffered(counts: StreamCounts) -> Iterator[Reason]:
    """Yield a reason if an overloaded path still had so many frames in queues that the measured loss is too low."""
    window, offered_fps = counts.received.window, counts.offered_fps
    if window is None or offered_fps is None:
        return
    keeps_up = window.frames / window.seconds >= offered_fps * (1 - _MAY_BE_BUFFERED_PART)
    if window.buffered_frames > counts.sent.frames * _MAY_BE_BUFFERED_PART and not keeps_up:
        enough_s = max(window.buffered_frames, USUAL_QUEUE) / _MAY_BE_BUFFERED_PART / offered_fps
        detail = (
            f"{window.buffered_frames:,} of {counts.sent.frames:,} frames were still in queues when sending ended, so "
            f"the loss is too low; send for {ceil(enough_s * 10) / 10:,} s or longer (duration)"
        )
        yield Reason(ReasonKind.BUFFERED, counts.stream, detail)


def _apart(evidence: Sequence[StreamObservation], limit_s: float) -> Iterator[Reason]:
    """Yield a reason if sources, or the threads of one source, did not send at the same time.

    The sum of their rates then never occurred. Only sources whose clocks were compared, or that share a machine and so
    a clock, are checked against each other.
    """
    spans: dict[str | None, list[tuple[int, int]]] = {}
    for stream in evidence:
        if stream.sent.first_ns is not None and stream.sent.last_ns is not None:
            clock, machine = stream.source_clock, stream.path.source.machine
            by_ns = clock.middle_ns if clock else 0
            span = stream.sent.first_ns - by_ns, stream.sent.last_ns - by_ns
            spans.setdefault(None if clock else machine, []).append(span)
        if stream.sent.apart_s > limit_s:
            detail = (
                f"the threads of the source began or ended {stream.sent.apart_s * 1e3:,.0f} ms apart, so its rate is "
                "not the rate of all threads at once; use a longer duration"
            )
            yield Reason(ReasonKind.SOURCES_APART, stream.path.name, detail)
    for together in spans.values():
        first_ns, last_ns = zip(*together, strict=True)
        began_s, ended_s = ((max(times) - min(times)) / 1e9 for times in (first_ns, last_ns))
        if max(began_s, ended_s) > limit_s:
            overlap_s, any_s = (max(0, min(last_ns) - max(first_ns)) / 1e9, (max(last_ns) - min(first_ns)) / 1e9)
            detail = (
                f"{len(together)} sources began {began_s * 1e3:,.0f} ms and ended {ended_s * 1e3:,.0f} ms apart: all "
                f"sent at once for {overlap_s:.3f} s of {any_s:.3f} s, so the sum of their rates never occurred; "
                "use a longer duration"
            )
            yield Reason(ReasonKind.SOURCES_APART, "", detail)


def beyond_ceiling(
    counts: StreamCounts, sources: int, frame_size: FrameSize, ceilings: Ceilings, *, saturated: bool = False
) -> list[Reason]:
    """Return a reason if the load of a stream exceeds the tester's own ceiling without a UUT for so many sources.

    The load is the intended or the offered load, whichever is higher. For a saturated stream it is the offered load,
    which must stay 10 % below the ceiling. If a receive ring was full, the sink did not have to take the frames that
    the ring dropped: the load is then the received rate. Without a known ceiling no reason is returned.
    """
    ceiling = ceilings.fps(sources, frame_size)
    load = max(0.0 if saturated else counts.intended_fps or 0.0, counts.offered_fps or 0.0)
    full = any(loss.dropper is DropKind.RING for loss in counts.lost_at)
    reached = (counts.offered_fps or 0.0) >= _REACHED * (counts.intended_fps or 0.0)  # if not, the source is the limit
    if full and reached and counts.received.frames and counts.sent.duration_s:
        load = min(load, counts.received.frames / counts.sent.duration_s)
    if ceiling is None or load <= ceiling * (_NEAR_CEILING if saturated else 1):
        return []
    many = "one source" if sources == 1 else f"each of {sources} sources at once"
    where = "above" if load > ceiling else "near"
    detail = (
        f"a load of {load:,.0f} frames/s is {where} the tester's ceiling of {ceiling:,.0f} frames/s (self-test without "
        f"a UUT, {many}, {frame_size.in_bytes}): the tester may be the limit; request a lower load, or add CPUs and "
        "run the self-test again"
    )
    return [Reason(ReasonKind.TESTER_LIMITED, counts.stream, detail)]


def _sink(received: Received, sent: Sent) -> Iterator[Finding]:
    if received.no_room:
        yield ReasonKind.CAPTURE_DISK_FULL, received.no_room
    elif received.error:
        yield ReasonKind.CAPTURE_FAILED, received.error
    elif sent.frames and not sent.error and (received.frames is None or received.frames < 0):
        yield ReasonKind.CAPTURE_FAILED, f"the sink returned {received.frames} as its number of frames, and no reason"
    if received.dropped:
        yield (
            ReasonKind.CAPTURE_DROPPED,
            f"{received.counted_by} dropped {received.dropped:,} frames: the tester's loss",
        )
    if received.unsettled:
        yield ReasonKind.NOT_DRAINED, received.unsettled


def _dropped_unknown(received: Received, counts: StreamCounts) -> Iterator[Finding]:
    if received.frames is not None and counts.lost_frames is None:
        yield (
            ReasonKind.CAPTURE_DROPS_UNKNOWN,
            f"{received.counted_by} does not report its own drops: how many of the "
            f"{counts.sent.frames - received.frames:,} missing frames the UUT lost is unknown",
        )


def _frames(evidence: StreamObservation, counts: StreamCounts) -> Iterator[Finding]:
    seen = evidence.extra_at_sink + evidence.outward - (counts.received.late or 0) - (counts.received.control or 0)
    at_sink = seen > 0 or evidence.received.foreign
    # Foreign frames that only left the source NIC do not matter, unless frames of the stream may be mistaken for them.
    if counts.foreign_frames and (at_sink or counts.lost_frames):
        where = "at the sink" if at_sink else "that left the source NIC"
        source = evidence.trusted("source")
        elsewhere = ""
        if source is not None and source.tx == 0 and counts.received.frames:
            name = evidence.path.source.interface
            elsewhere = f"; frames arrived, but none left by {name}: is this the right source port?"
        yield ReasonKind.FOREIGN_FRAMES, f"{counts.foreign_frames:,} frames {where} are not this stream's{elsewhere}"
    if counts.received.late:
        yield (
            ReasonKind.LATE_FRAMES,
            f"{counts.received.late:,} frames of an earlier trial arrived in this one; the earlier trial "
            "counted them as lost; raise drain_limit above the longest delay of the UUT",
        )
    if counts.received.duplicates:
        yield ReasonKind.DUPLICATE_FRAMES, f"{counts.received.duplicates:,} frames arrived more than once"
    if counts.unexplained_frames:
        detail = f"{counts.unexplained_frames:,} frames are explained by no counter"
        if counts.unexplained_frames > 0 and evidence.extra_at_sink:
            detail += (
                f"; the sink's NIC received {evidence.extra_at_sink:,} frames that the sink did not count: other "
                "traffic, or frames of the stream that were corrupted or lost before the capture"
            )
        if counts.unexplained_frames > 0 and counts.received.duplicates:
            detail += "; the duplicates may be these frames, with a sequence number rewritten on the way"
        for drop in evidence.growths:
            if counts.unexplained_frames > 0 and drop.resettable:
                detail += f"; {drop.counter} at the {drop.point.name} explains them if its counter was reset meanwhile"
        yield ReasonKind.UNEXPLAINED_FRAMES, detail
    if counts.overcounted_frames:
        yield (
            ReasonKind.UNEXPLAINED_FRAMES,
            f"drop counters on the path exceed the loss by {counts.overcounted_frames:,} frames: they also counted "
            "other traffic",
        )
    for imbalance in imbalances(counts):
        yield ReasonKind.UNEXPLAINED_FRAMES, f"{imbalance}: its sink counted wrongly; use another sink, or report this"
    if counts.lost_frames:
        yield from counter_findings(evidence)
