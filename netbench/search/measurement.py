"""The measurements of a search for a rate of frames, converted from the results of trials."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil
from statistics import fmean
from typing import TypeVar

from netbench.model.counts import StreamCounts
from netbench.model.search import SearchedStream
from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind
from netbench.model.verdict import ReasonKind, Verdict
from netbench.search.methods import Goal, Measured

Number = TypeVar("Number", int, float)

# Causes that may have passed when the trial is repeated. Counts of such a trial are not attributed to the UUT.
PASSING = frozenset(
    {
        ReasonKind.UNEVEN_PACING,
        ReasonKind.TESTER_DISTURBED,
        ReasonKind.SOURCES_APART,
        ReasonKind.NEIGHBOUR_STOPPED_EARLY,
        ReasonKind.CLOCK_SET,
    }
)
# A trial with one of these is no evidence of the rate of the sources. Failures of a sink or a UUT do not matter here.
_OF_THE_SOURCE = (PASSING - {ReasonKind.NEIGHBOUR_STOPPED_EARLY}) | {
    ReasonKind.GENERATOR_ERRORS,
    ReasonKind.GENERATOR_FAILED,
    ReasonKind.NOTHING_SENT,
    ReasonKind.LINK_DOWN,
    ReasonKind.LINK_CHANGED,
    ReasonKind.HOST_LOST,
}
# A source sends so many frames, or those due in so many seconds, back to back even if it is not late.
_USUAL_BURST, _USUAL_BURST_S = 4, 60e-6
# A source that was later than this at the end of sending sent its last frames after it, however few they are.
_USUAL_LATENESS_S = 1e-3


def unmeasured(result: TrialResult) -> str:
    """Return why a trial measured nothing at all, such as that the UUT did not come up; else empty."""
    if failed(result) or any(counts.sent.frames for counts in result.streams):
        return ""
    return str(result.reasons[0]) if result.reasons else "nothing was sent"


def failed(result: TrialResult) -> str:
    """Return how the UUT failed in a trial that began; empty if it did not fail or was never up."""
    return first_reason(result, frozenset({ReasonKind.UUT_FAILED})) if result.boot or result.streams else ""


def measurement_of(result: TrialResult, width: float, goals: Sequence[Goal] = ()) -> Measured:
    """Return the measurement of a trial that measured something.

    It is inconclusive in three cases. The tester was disturbed; the sources fell short by more than the width without
    backpressure from their links; or the tester's lateness explains all frames by which one of `goals` is missed.

    If the UUT's link caused backpressure for more than half the width, frames that were not sent in time count as lost:
    sources continue for a while to send late frames. If a source fell short by itself within the profile's tolerance,
    the offered load counts. An invalid trial shows that the tester cannot offer this load, unless the UUT failed.
    """
    streams, spec, failure = result.streams, result.spec, failed(result)
    offered = sum(counts.sent.frames for counts in streams)
    lost = [counts.lost_frames for counts in streams if counts.lost_frames is not None]
    invalid = [reason for reason in result.reasons if reason.kind.verdict is Verdict.INVALID]
    limits: list[str] = []
    inconclusive = ""
    if not failure:
        limits = list(map(str, invalid))
        if len(lost) < len(streams):
            limits.append("the number of lost frames is unknown")
        if any(frames > 0 for frames in lost):  # it may be the tester's loss
            limits += [str(reason) for reason in result.reasons if reason.kind is ReasonKind.TESTER_LIMITED]
        inconclusive = first_reason(result, PASSING) or ("" if limits or spec.benchmark else _shortfall(result, width))
        limits += [inconclusive] if inconclusive else []
    if failure:
        planned = 0 if spec.load.kind is LoadKind.MAX else round(spec.load.value * spec.duration_s) * len(spec.streams)
        intended, forwarded = max(1, planned), 0
    else:
        intended = sum(_intended(counts, result.is_saturated, width) for counts in streams)
        forwarded = offered - sum(max(0, frames) for frames in lost)
    delays = [counts.received.delay for counts in streams if counts.received.delay is not None]
    throughputs = [counts.throughput_fps for counts in streams if counts.throughput_fps is not None]
    measured = Measured(
        duration_s=spec.duration_s,
        load=spec.load.value,
        offered_load=fmean(counts.offered_fps or 0.0 for counts in streams) if streams else 0.0,
        intended=intended,
        offered=offered,
        forwarded=forwarded,
        buffered=sum(counts.received.window.buffered_frames for counts in streams if counts.received.window),
        limited_by=limits[0] if limits else "",
        is_short=bool(limits and invalid) and invalid[0].kind is ReasonKind.OFFERED_OUT_OF_TOLERANCE,
        inconclusive=inconclusive,
        source_fault=first_reason(result, _OF_THE_SOURCE),
        failed=failure,
        attempts=result.attempt,
        delay=max(delays, key=lambda delay: delay.median_ns or 0) if delays else None,
        delay_refused=next((counts.received.no_delay for counts in streams if counts.received.no_delay), ""),
        last_missing=_largest(counts.received.last_missing for counts in streams),
        longest_missing=_largest(counts.received.longest_loss_run for counts in streams),
        silent_s=_largest(map(_silent_s, streams)),
        throughput_fps=fmean(throughputs) if throughputs and len(throughputs) == len(streams) else None,
        each=tuple(map(_searched_stream, streams)) if len(streams) > 1 else (),
    )
    if measured.limited_by or measured.failed or spec.benchmark:
        return measured
    cause = _explanation(result, measured, goals)
    return replace(measured, limited_by=cause, inconclusive=cause)


def _shortfall(result: TrialResult, width: float) -> str:
    """Return by how much the sources fell short by themselves, as text; empty if that is within the width."""
    for counts in result.streams:
        intended = counts.intended_frames
        if intended and result.spec.catch_up is not None and not _pushed_back(counts, result.is_saturated, width):
            short = 1 - counts.sent.frames / intended
            if short > width:
                late = f"the source was up to {counts.sent.max_lateness_s * 1e3:,.1f} ms late"
                return f"unsent: {short:.2%} of the frames of stream {counts.stream}; {late}"
    return ""


def _explanation(result: TrialResult, measured: Measured, goals: Sequence[Goal]) -> str:
    """Return how the tester may have caused the loss, or the queue, that misses a goal; empty if it explains less."""
    if result.is_saturated:
        return ""
    paced = [(counts, counts.intended_fps) for counts in result.streams if counts.intended_fps is not None]
    by_source = sum(_late_frames(counts, fps) for counts, fps in paced)
    overdue = sum(_overdue_frames(counts, fps) for counts, fps in paced)
    waits_s = [0.0]
    by_ingress = 0
    # Searches for maxima are coarse, and are not results.
    if result.disturbance is not None and not result.spec.finds_maximum:
        waits_s += [result.disturbance.longest_s("ingress", counts.stream) for counts in result.streams]
        # All frames that came in at once after a wait of the ingress thread may be dropped.
        waiting = [(ceil(fps * result.disturbance.longest_s("ingress", counts.stream)), fps) for counts, fps in paced]
        by_ingress = sum(frames for frames, fps in waiting if frames > _usual_burst(fps))
    frames = by_source + by_ingress
    if not frames and not overdue:
        return ""
    explained = replace(
        measured,
        forwarded=min(measured.offered, measured.forwarded + frames),
        buffered=max(0, measured.buffered - overdue - by_ingress),
    )
    if not any(goal.is_met_by(explained) and not goal.is_met_by(measured) for goal in goals):
        return ""
    cause, late_s = "late-source", max(counts.sent.max_lateness_s for counts in result.streams)
    if by_ingress > by_source:
        cause, late_s = "late-ingress", max(waits_s)
    if lost := measured.offered - measured.forwarded:
        return (
            f"{cause}: {lost:,} frames were lost, and a delay of {1e3 * late_s:,.1f} ms of the tester explains up to "
            f"{frames:,} lost frames"
        )
    return (
        f"{cause}: {measured.buffered:,} frames arrived after the end of sending, and a delay of "
        f"{1e3 * late_s:,.1f} ms of the tester explains up to {overdue + by_ingress:,} of them"
    )


def _late_frames(counts: StreamCounts, fps: float) -> int:
    """Return how many frames of a stream its source sent back to back after a delay; a queue may drop all of them."""
    if counts.sent.max_burst_frames <= _usual_burst(fps):
        return 0
    return max(counts.sent.max_burst_frames, ceil(_lateness_s(counts) * fps))  # it may have caught up several times


def _overdue_frames(counts: StreamCounts, fps: float) -> int:
    """Return how many frames of a stream its source may have sent after the end of sending, because it was late."""
    late_s = _lateness_s(counts)
    return ceil(late_s * fps) if late_s > _USUAL_LATENESS_S else 0


def _usual_burst(fps: float) -> int:
    return max(_USUAL_BURST, ceil(fps * _USUAL_BURST_S))


def _lateness_s(counts: StreamCounts) -> float:
    """Return by how much a source was late without backpressure by its link."""
    # A source that reports the time of backpressure also reports the time in which it did not run.
    return counts.sent.max_lateness_s if counts.sent.backpressure_s is None else counts.sent.descheduled_s


def _searched_stream(counts: StreamCounts) -> SearchedStream:
    lost = max(0, counts.lost_frames or 0)
    return SearchedStream(counts.stream, counts.reverse_of, counts.sent.frames, lost, counts.sent.duration_s)


def _intended(counts: StreamCounts, saturated: bool, width: float) -> int:
    """Return the intended frames in the time that sending took, or the sent frames if the link was not the limit."""
    if counts.intended_fps is None:
        return counts.sent.frames
    intended = max(counts.intended_frames or 0, round(counts.intended_fps * counts.sent.duration_s))
    is_short = intended - counts.sent.frames > width / 2 * intended
    return intended if saturated or (is_short and _pushed_back(counts, saturated, width)) else counts.sent.frames


def _pushed_back(counts: StreamCounts, saturated: bool, width: float) -> bool:
    """Return True if backpressure by the link is the reason why frames were not sent in time."""
    return saturated or (counts.sent.backpressure_s or 0.0) > width / 2 * counts.sent.duration_s


def _silent_s(counts: StreamCounts) -> float | None:
    if counts.sent.last_ns is None:
        return None
    if counts.received.last_ns is None:
        return counts.sent.duration_s
    return max(0, counts.sent.last_ns - counts.received.last_ns) / 1e9


def _largest(values: Iterable[Number | None]) -> Number | None:
    return max((value for value in values if value is not None), default=None)


def first_reason(result: TrialResult, kinds: frozenset[ReasonKind]) -> str:
    """Return the first reason of these kinds as text; empty if there is none."""
    return next((str(reason) for reason in result.reasons if reason.kind in kinds), "")
