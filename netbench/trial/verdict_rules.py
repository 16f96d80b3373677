"""Judges a trial: derives from its evidence the typed reasons against it. Their texts are in verdict_messages."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, inf

from netbench.model.counts import StreamCounts
from netbench.model.frame_mix import FrameSize, in_bytes
from netbench.model.points import BPF_PROGRAMS, OTHERHOST, PathSection
from netbench.model.scenario import VICTIM
from netbench.model.selftest_record import Ceilings
from netbench.model.tester import Disturbance
from netbench.model.trial import GuestResult, TrialSpec
from netbench.model.verdict import Reason, ReasonKind
from netbench.trial.loss_attribution import RING_FULL
from netbench.trial.observation import RESET, UNCOUNTED, StreamObservation
from netbench.trial.verdict_messages import FAULTS, HINTS, reason

# The part of the duration that a neighbour's sources may miss at either end.
_MAY_MISS_PART = 0.05
# The part of the duration that a source may fall behind, and the part of its frames that it may send back to back to
# catch up. At most this part of the frames can be lost or late because of it. One batch of frames overruns no queue.
_MAY_BE_LATE_PART = 0.1
_ONE_BATCH = 64
# A stream that lost more than this many times the frames that its source sent late was overloaded in any case.
_OVERLOADED = 2
# The part of the sent frames that may be in queues at the end. Loss is too low by at most this part.
_MAY_BE_BUFFERED_PART = 0.05
_USUAL_QUEUE = 1000  # frames: the default queue of a NIC or a tap in Linux (txqueuelen)
# The part of its sending time that a source may not have run, if its link alone is to be blamed for unsent frames.
_MAY_BE_AWAY_PART = 0.05
# The part of its frames by which a saturated source may be ahead of an even rate, or behind it.
_MAY_BE_UNEVEN_PART = 0.1
# The link is to blame if backpressure took at least this part of the missing time, or of the total time.
_MOST_OF_MISSING = 0.5
_MUCH_OF_ALL = 0.25
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


def judge_trial(
    spec: TrialSpec,
    guests: Sequence[GuestResult],
    evidence: Sequence[Sequence[StreamObservation]],
    *,
    clocks_set_ns: Mapping[str | None, int],
    drained: bool,
    disturbance: Disturbance | None = None,
) -> Iterator[Reason]:
    """Yield the reasons against a trial, by the counts and the evidence of its guests: the victim, then the neighbours.

    If the victim was restarted, only reasons that concern the tester are yielded. A stream whose tester was disturbed
    is never reported as saturated: its offered load does not show the limit of the path.

    `clocks_set_ns` is by how much clocks were set, by machine. `drained`: the counters stood still after the trial.
    """
    stalls = disturbed(spec, disturbance) if disturbance else []
    stalled_streams = {stall.stream for stall in stalls}
    judged = [
        *_of_streams(spec, guests, evidence),
        *_of_guests(spec, guests, evidence),
        *(_clock_set(machine, set_ns) for machine, set_ns in clocks_set_ns.items()),
        *([] if drained else [reason("still_moving", limit_s=spec.drain_limit_s)]),
        *stalls,
    ]
    for finding in judged:
        is_saturated = finding.kind is ReasonKind.SATURATED and not stalled_streams.isdisjoint(("", finding.stream))
        if not is_saturated and (spec.restart_at_s is None or finding.kind in _OF_THE_TESTER):
            yield finding


def disturbed(spec: TrialSpec, disturbance: Disturbance) -> list[Reason]:
    """Return a reason for each stream of the victim during which the tester or the victim was stalled, with the time.

    The limit is 3 % of the duration, or the tolerance of the trial if that is more, and at least 5 ms.
    """
    limit_s = max(_MAY_BE_STALLED_S, max(_MAY_BE_STALLED_PART, spec.tolerance) * spec.duration_s)
    limits = {"duration_s": spec.duration_s, "limit_ms": limit_s * 1e3}
    reasons = []
    for stream in spec.streams:
        stalled_s = disturbance.stalled_of(stream)
        if stalled_s is not None and stalled_s > limit_s:
            stalled = [thread for thread in disturbance.decisive_of(stream) if thread.stalled_s]
            threads = (f"{thread.role} {thread.name} {(thread.stalled_s or 0) * 1e3:,.0f} ms" for thread in stalled)
            who = "the UUT" if all(thread.role == "uut" for thread in stalled) else "the tester"
            numbers = {"who": who, "stalled_ms": stalled_s * 1e3, "threads": ", ".join(threads), **limits}
            reasons.append(reason("stalled", stream, **numbers))
    if disturbance.throttled_s is not None and disturbance.throttled_s > limit_s:
        reasons.append(reason("throttled", throttled_ms=disturbance.throttled_s * 1e3, **limits))
    return reasons


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
    full = any(loss.cause == RING_FULL for loss in counts.lost_at)
    reached = (counts.offered_fps or 0.0) >= _REACHED * (counts.intended_fps or 0.0)  # if not, the source is the limit
    if full and reached and counts.received_frames and counts.duration_s:
        load = min(load, counts.received_frames / counts.duration_s)
    if ceiling is None or load <= ceiling * (_NEAR_CEILING if saturated else 1):
        return []
    return [
        reason(
            "beyond_ceiling",
            counts.stream,
            fps=load,
            where="above" if load > ceiling else "near",
            ceiling_fps=ceiling,
            sources="one source" if sources == 1 else f"each of {sources} sources at once",
            size=in_bytes(frame_size),
        )
    ]


def _of_streams(
    spec: TrialSpec, guests: Sequence[GuestResult], evidence: Sequence[Sequence[StreamObservation]]
) -> Iterator[Reason]:
    """Yield the reasons of each stream, and of the victim's streams that were still in queues."""
    for guest, streams in zip(guests, evidence, strict=True):
        for stream, counts in zip(streams, guest.streams, strict=True):
            if guest.name == VICTIM:
                yield from judge(stream, counts, spec.tolerance, spec.max_lateness_s)
                continue
            # The offered load of a neighbour has no tolerance: it is measured, and all results refer to it.
            yield from judge(stream, counts, inf, inf)
            if _falls_short(stream, spec.tolerance) and not _fault(stream):
                yield reason("neighbour_saturated", counts.stream, **_backpressure(stream))
    for counts in guests[0].streams:
        yield from buffered(counts)


def _of_guests(
    spec: TrialSpec, guests: Sequence[GuestResult], evidence: Sequence[Sequence[StreamObservation]]
) -> Iterator[Reason]:
    """Yield the reasons about the loads of guests, and about sources that did not send together."""
    for task in spec.guests:
        if task.share_of_less:
            who = "the UUT" if task.name == VICTIM else f"neighbour {task.name}"
            yield reason("share_of_less", who=who, limit=task.share_of_less)
        if task.is_less_than_share:
            assert task.traffic is not None, "its load is known"
            yield reason("less_than_share", load=task.traffic.load)
    for guest in guests:
        if guest.cpu_s.get("load", inf) <= 0:
            yield reason("load_idle", neighbour=guest.name)
    victim, *neighbours = evidence
    yield from _apart(victim, max(_MAY_BE_APART_PART, spec.tolerance) * spec.duration_s)
    for guest, streams in zip(guests[1:], neighbours, strict=True):
        yield from _absences(guest.name, streams, victim, spec)


def _clock_set(machine: str | None, set_ns: int) -> Reason:
    whose = f"the clock of host {machine}" if machine else "the clock"
    return reason("clock_set", whose=whose, set_s=set_ns / 1e9)


def judge(evidence: StreamObservation, counts: StreamCounts, tolerance: float, max_lateness_s: float) -> list[Reason]:
    """Return the reasons against one stream of a trial.

    `tolerance` is a ratio of the intended load. `max_lateness_s` is how far a source may fall behind its schedule. It
    is limited to a tenth of the duration, or to the tolerance if that is more.
    """
    of_source = list(_generator(evidence, counts, tolerance))
    # A source with backpressure from its link is late all the time, although it was not stopped.
    is_saturated = any(finding.kind is ReasonKind.SATURATED for finding in of_source)
    if not (is_saturated or _is_overloaded(evidence, counts)):
        of_source += _pacing(evidence, max_lateness_s, max(_MAY_BE_LATE_PART, tolerance))
    return [
        *of_source,
        *_sink(evidence, counts),
        *_tester(evidence, counts),
        *_links(evidence),
        *_foreign_causes(evidence, counts),
        *_frames(evidence, counts),
    ]


def _absences(
    neighbour: str, evidence: Sequence[StreamObservation], victim: Sequence[StreamObservation], spec: TrialSpec
) -> Iterator[Reason]:
    """Yield a reason for each source of a neighbour that did not send during all the time of the victim's sources."""
    first_ns = min((stream.sent.first_ns for stream in victim if stream.sent.first_ns is not None), default=None)
    last_ns = max((stream.sent.last_ns for stream in victim if stream.sent.last_ns is not None), default=None)
    for stream in evidence:
        sent = stream.sent
        if first_ns is None or last_ns is None or sent.first_ns is None or sent.last_ns is None:
            continue
        missed_s = max(0, sent.first_ns - first_ns, last_ns - sent.last_ns) / 1e9
        if _falls_short(stream, spec.tolerance):
            missed_s += sent.away_s
        if missed_s > _MAY_MISS_PART * spec.duration_s:
            yield reason("neighbour_absent", stream.path.name, neighbour=neighbour, missed_s=missed_s)


def buffered(counts: StreamCounts) -> Iterator[Reason]:
    """Yield a reason if an overloaded path still had so many frames in queues that the measured loss is too low."""
    window, offered_fps = counts.window, counts.offered_fps
    if window is None or offered_fps is None:
        return
    keeps_up = window.frames / window.seconds >= offered_fps * (1 - _MAY_BE_BUFFERED_PART)
    if window.buffered_frames > counts.sent_frames * _MAY_BE_BUFFERED_PART and not keeps_up:
        enough_s = ceil(max(window.buffered_frames, _USUAL_QUEUE) / _MAY_BE_BUFFERED_PART / offered_fps * 10) / 10
        numbers = {"buffered": window.buffered_frames, "sent": counts.sent_frames, "enough_s": enough_s}
        yield reason("buffered", counts.stream, **numbers)


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
            yield reason("threads_apart", stream.path.name, apart_ms=stream.sent.apart_s * 1e3)
    for together in spans.values():
        first_ns, last_ns = zip(*together, strict=True)
        began_s, ended_s = ((max(times) - min(times)) / 1e9 for times in (first_ns, last_ns))
        if max(began_s, ended_s) > limit_s:
            yield reason(
                "sources_apart",
                sources=len(together),
                began_ms=began_s * 1e3,
                ended_ms=ended_s * 1e3,
                overlap_s=max(0, min(last_ns) - max(first_ns)) / 1e9,
                any_s=(max(last_ns) - min(first_ns)) / 1e9,
            )


def _generator(evidence: StreamObservation, counts: StreamCounts, tolerance: float) -> Iterator[Reason]:
    sent, stream = evidence.sent, evidence.path.name
    if sent.error:
        yield reason("generator_failed", stream, error=sent.error)
    elif sent.frames == 0 and not evidence.received.error:
        yield reason("nothing_sent", stream)
    # A source without an intended rate regularly meets a full queue of the NIC and tries again. So does a source that
    # reports how long its link held it up.
    if sent.errors and evidence.traffic.fps is not None and sent.link_s is None:
        yield reason("generator_errors", stream, errors=sent.errors)
    offered, intended = counts.offered_fps, evidence.traffic.fps
    if sent.error or not sent.frames or offered is None or intended is None:
        return
    off = offered / intended - 1
    if abs(off) <= tolerance:
        return
    fault = _fault(evidence) if _falls_short(evidence, tolerance) else ""
    numbers = {
        "offered": offered,
        "intended": intended,
        "off": off,
        "tolerance": tolerance,
        "frames": sent.frames,
        "why": f"; {fault}" if fault else "",
        **_backpressure(evidence),
    }
    is_saturated = _falls_short(evidence, tolerance) and not fault
    yield reason("saturated" if is_saturated else "out_of_tolerance", stream, **numbers)


def _falls_short(evidence: StreamObservation, tolerance: float) -> bool:
    """Return True if a source that reports its backpressure offered less than the intended load."""
    sent, intended = evidence.sent, evidence.traffic.fps
    if intended is None or sent.error or not sent.frames or sent.link_s is None:
        return False
    return sent.frames < sent.duration_s * intended * (1 - tolerance)


def _fault(evidence: StreamObservation) -> str:
    """Return why the source, and not its link, is to blame for the unsent frames; empty if only its link is."""
    sent, link_s, took_s = evidence.sent, evidence.sent.link_s or 0.0, evidence.sent.duration_s
    missing_s = took_s - sent.frames / (evidence.traffic.fps or inf)
    if sent.away_s > min(_MAY_BE_AWAY_PART * took_s, _MOST_OF_MISSING * missing_s):
        return FAULTS["away"].format(away_s=sent.away_s)
    if sent.unevenness > _MAY_BE_UNEVEN_PART:
        return FAULTS["uneven"].format(unevenness=sent.unevenness)
    if link_s < min(_MOST_OF_MISSING * missing_s, _MUCH_OF_ALL * took_s):
        return FAULTS["slow"].format(link_s=link_s)
    return ""


def _backpressure(evidence: StreamObservation) -> dict[str, object]:
    return {"link_s": evidence.sent.link_s or 0.0, "took_s": evidence.sent.duration_s}


def _is_overloaded(evidence: StreamObservation, counts: StreamCounts) -> bool:
    """Return True if a paced stream lost far more frames than its source sent late: it was overloaded in any case."""
    sent, fps = evidence.sent, evidence.traffic.fps
    if fps is None or counts.lost_frames is None:
        return False
    late_frames = max(sent.max_burst_frames, sent.max_lateness_s * fps)
    return counts.lost_frames > max(_OVERLOADED * late_frames, _MAY_BE_LATE_PART * sent.frames)


def _pacing(evidence: StreamObservation, max_lateness_s: float, part: float) -> Iterator[Reason]:
    sent, traffic = evidence.sent, evidence.traffic
    late_ms = sent.max_lateness_s * 1e3
    if traffic.fps is None:
        if sent.max_lateness_s > part * traffic.duration_s:
            yield reason("stopped", evidence.path.name, late_ms=late_ms)
        return
    # Limited catching up causes no burst: the frames beyond the limit remain unsent.
    limit_s = max_lateness_s if traffic.catch_up is None else inf
    is_late = sent.max_lateness_s > min(limit_s, part * traffic.duration_s)
    if is_late or sent.max_burst_frames > max(_ONE_BATCH, part * sent.frames):
        yield reason("burst", evidence.path.name, late_ms=late_ms, burst=sent.max_burst_frames)


def _sink(evidence: StreamObservation, counts: StreamCounts) -> Iterator[Reason]:
    received, stream = evidence.received, evidence.path.name
    if received.no_room:
        yield reason("no_room", stream, no_room=received.no_room)
    elif received.error:
        yield reason("capture_failed", stream, error=received.error)
    if received.dropped:
        yield reason("capture_dropped", stream, sink=received.counted_by, frames=received.dropped)
    if received.unsettled:
        yield reason("unsettled", stream, unsettled=received.unsettled)
    if received.frames is not None and counts.lost_frames is None:
        missing = counts.sent_frames - received.frames
        yield reason("drops_unknown", stream, sink=received.counted_by, frames=missing)


def _tester(evidence: StreamObservation, counts: StreamCounts) -> Iterator[Reason]:
    """Yield a reason for each loss and each foreign drop counter at the tester's own NICs, outside the UUT."""
    stream = evidence.path.name
    for loss in counts.lost_at:
        if loss.where is PathSection.SINK:
            yield reason("lost_at_sink", stream, frames=loss.frames, place=loss.place)
    for drops in evidence.growths:
        at_tester = drops.point.where in (PathSection.SOURCE, PathSection.SINK)
        if at_tester and drops.role in ("dropped", "repeated") and drops.frames:
            numbers = {"counter": drops.counter, "frames": drops.frames, "point": drops.point.name}
            yield reason("dropped_at_tester", stream, **numbers)


def _links(evidence: StreamObservation) -> Iterator[Reason]:
    stream = evidence.path.name
    for role, nic in evidence.nics.items():
        names = {"role": role, "interface": evidence.path.nics[role].interface}
        before, now = nic.changed_mac if nic and nic.changed_mac else ("", "")
        if nic is None:
            yield reason("nic_gone", stream, **names)
        elif not nic.trustworthy:
            mac = f"; its MAC address was {before} and is {now}" if now else ""
            yield reason("nic_replaced", stream, mac=mac, **names)
        elif nic.changed_mac:
            yield reason("mac_changed", stream, before=before, now=now, **names)
        elif not nic.up or nic.carrier_changes:
            yield reason("link_down", stream, **names)
        elif nic.carrier_changes is None:
            yield reason("link_unknown", stream, **names)


def _foreign_causes(evidence: StreamObservation, counts: StreamCounts) -> Iterator[Reason]:
    """Yield the reasons why frames were lost to another MAC address, or to a foreign BPF program."""
    stream, mac = evidence.path.name, evidence.traffic.dst_mac
    for loss in counts.lost_at:
        if loss.cause == OTHERHOST:
            yield reason("addressed_elsewhere", stream, frames=loss.frames, mac=mac, point=loss.point)
    for drops in evidence.growths:
        frames = sum(loss.frames for loss in counts.lost_at if drops.counter in loss.cause)
        if drops.counter.startswith(BPF_PROGRAMS) and frames:
            yield reason("foreign_program", stream, program=drops.counter, frames=frames)


def _frames(evidence: StreamObservation, counts: StreamCounts) -> Iterator[Reason]:
    """Yield the reasons about foreign, late, duplicate and unexplained frames."""
    stream = evidence.path.name
    seen = evidence.extra_at_sink + evidence.outward - (counts.late_frames or 0) - (counts.control_frames or 0)
    at_sink = seen > 0 or evidence.received.foreign
    # Foreign frames that only left the source NIC do not matter, unless frames of the stream may be mistaken for them.
    if counts.foreign_frames and (at_sink or counts.lost_frames):
        where = "at the sink" if at_sink else "that left the source NIC"
        source = evidence.trusted("source")
        elsewhere = ""
        if source is not None and source.tx == 0 and counts.received_frames:
            name = evidence.path.source.interface
            elsewhere = f"; what it received did not leave by {name}: was another port meant by that?"
        yield reason("foreign_frames", stream, frames=counts.foreign_frames, where=where, elsewhere=elsewhere)
    if counts.late_frames:
        yield reason("late_frames", stream, frames=counts.late_frames)
    if counts.duplicate_frames:
        yield reason("duplicate_frames", stream, frames=counts.duplicate_frames)
    if counts.unexplained_frames:
        hints = "".join(_hints(evidence, counts)) if counts.unexplained_frames > 0 else ""
        yield reason("unexplained", stream, frames=counts.unexplained_frames, hints=hints)
    if counts.overcounted_frames:
        yield reason("overcounted", stream, frames=counts.overcounted_frames)
    if counts.lost_frames:
        # Drop counters that were reset, removed or replaced meanwhile.
        changed = {
            drops.identity or (drops.point.name, drops.counter): drops
            for drops in evidence.growths
            if drops.role == "dropped" and (drops.went_back or drops.silent not in ("", UNCOUNTED))
        }
        for drops in changed.values():
            names = {"counter": drops.counter, "point": drops.point.name, "why": drops.silent or RESET}
            yield reason("counter_changed", stream, **names)


def _hints(evidence: StreamObservation, counts: StreamCounts) -> Iterator[str]:
    """Yield what may explain the unexplained frames."""
    if evidence.extra_at_sink:
        yield HINTS["uncaptured"].format(frames=evidence.extra_at_sink)
    if counts.duplicate_frames:
        yield HINTS["rewritten"]
    for drop in evidence.growths:
        if drop.resettable:
            yield HINTS["reset"].format(counter=drop.counter, point=drop.point.name)
