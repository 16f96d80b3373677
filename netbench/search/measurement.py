"""Converts the result of a trial into the measurement of a search."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from statistics import fmean

from netbench.model.counts import StreamCounts
from netbench.model.search import SearchedStream
from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind
from netbench.model.verdict import Reason, ReasonKind, Verdict
from netbench.search.methods import Goal, Measured

# Causes that may have passed when the trial is repeated. Counts of such a trial are not attributed to the UUT.
_PASSING = frozenset(
    {
        ReasonKind.UNEVEN_PACING,
        ReasonKind.TESTER_DISTURBED,
        ReasonKind.SOURCES_APART,
        ReasonKind.NEIGHBOUR_STOPPED_EARLY,
        ReasonKind.CLOCK_SET,
    }
)
# A trial with one of these is no evidence of the rate of the sources. Failures of a sink or a UUT do not matter here.
_OF_THE_SOURCE = frozenset(
    {
        ReasonKind.UNEVEN_PACING,
        ReasonKind.TESTER_DISTURBED,
        ReasonKind.SOURCES_APART,
        ReasonKind.CLOCK_SET,
        ReasonKind.GENERATOR_ERRORS,
        ReasonKind.GENERATOR_FAILED,
        ReasonKind.NOTHING_SENT,
        ReasonKind.LINK_DOWN,
        ReasonKind.LINK_CHANGED,
        ReasonKind.HOST_LOST,
    }
)
# A source sends so many frames, or those due in so many seconds, back to back even if it is not late.
_USUAL_BURST, _USUAL_BURST_S = 4, 60e-6
# A source that was later than this at the end of sending sent its last frames after it, however few they are.
_USUAL_LATENESS_S = 1e-3


def unmeasured(result: TrialResult) -> str:
    """Return why a trial measured nothing at all, such as that the UUT did not come up; else empty."""
    if failed(result) or (result.streams and any(counts.sent_frames for counts in result.streams)):
        return ""
    return _told(result.reasons[0]) if result.reasons else "nothing was sent"


def failed(result: TrialResult) -> str:
    """Return how the UUT failed in a trial that began; empty if it did not fail or was never up."""
    why = [_told(reason) for reason in result.reasons if reason.kind is ReasonKind.UUT_FAILED]
    return why[0] if why and (result.boot or result.streams) else ""


def what_it_tells(result: TrialResult, width: float, goals: Sequence[Goal] = ()) -> Measured:
    """Return the measurement of a trial that measured something.

    It is inconclusive in three cases. The tester was disturbed; the sources fell short by more than the width without
    backpressure from their links; or the tester's lateness explains all frames by which one of `goals` is missed.

    If the UUT's link caused backpressure for more than half the width, frames that were not sent in time count as lost:
    sources continue for a while to send late frames. If a source fell short by itself within the profile's tolerance,
    the offered load counts. An invalid trial shows that the tester cannot offer this load, unless the UUT failed.
    """
    streams, spec = result.streams, result.spec
    offered = sum(counts.sent_frames for counts in streams)
    lost = [counts.lost_frames for counts in streams]
    fails = failed(result)
    limits = [_told(reason) for reason in result.reasons if reason.kind.verdict is Verdict.INVALID]
    known = [frames for frames in lost if frames is not None]
    if len(known) < len(lost):
        limits.append("nobody knows how many frames were lost")
    if any(frames > 0 for frames in known):  # it may be the tester's loss
        limits += [_told(reason) for reason in result.reasons if reason.kind is ReasonKind.TESTER_LIMITED]
    inconclusive = ""
    if not fails:
        inconclusive = _disturbed(result) or ("" if limits or spec.benchmark else _short(result, width))
        limits += [inconclusive] if inconclusive else []
    delays = [counts.delay for counts in streams if counts.delay is not None]
    refused = next((counts.delay_refused for counts in streams if counts.delay_refused), "")
    planned = round(spec.load.value * spec.duration_s) * len(spec.streams) if spec.load.kind is not LoadKind.MAX else 0
    measured = Measured(
        duration_s=spec.duration_s,
        load_fps=spec.load.value,
        offered_fps=fmean(counts.offered_fps or 0.0 for counts in streams) if streams else 0.0,
        intended=max(1, planned) if fails else sum(_intended(counts, result.is_saturated, width) for counts in streams),
        offered=offered,
        forwarded=0 if fails else offered - sum(max(0, frames) for frames in known),
        buffered=sum(counts.window.buffered_frames for counts in streams if counts.window),
        limited_by=limits[0] if limits and not fails else "",
        inconclusive=inconclusive,
        source_fault=next((_told(reason) for reason in result.reasons if reason.kind in _OF_THE_SOURCE), ""),
        failed=fails,
        attempts=result.attempt,
        delay=max(delays, key=lambda delay: delay.median_ns or 0) if delays else None,
        delay_refused=refused,
        last_missing=max(
            (counts.last_missing_frame for counts in streams if counts.last_missing_frame is not None), default=None
        ),
        longest_missing=max(
            (run for counts in streams if (run := counts.longest_loss_run_frames) is not None), default=None
        ),
        silent_s=max((seconds for counts in streams if (seconds := _silent_s(counts)) is not None), default=None),
        throughput_fps=_throughput(streams),
        each=tuple(map(_one_of_several, streams)) if len(streams) > 1 else (),
    )
    if measured.limited_by or measured.failed or spec.benchmark:
        return measured
    cause = _explained(result, measured, goals)
    return replace(measured, limited_by=cause, inconclusive=cause) if cause else measured


def _disturbed(result: TrialResult) -> str:
    """Return why the trial must be repeated: the disturbance of the tester; empty if there was none."""
    return next((_told(reason) for reason in result.reasons if reason.kind in _PASSING), "")


def _short(result: TrialResult, width: float) -> str:
    """Return by how much the sources fell short by themselves, as text; empty if that is within the width."""
    for counts in result.streams:
        intended = counts.intended_frames
        if intended and result.spec.catch_up is not None and not _is_held_up(counts, result.is_saturated, width):
            short = 1 - counts.sent_frames / intended
            if short > width:
                late = f"the source was up to {counts.max_lateness_s * 1e3:,.1f} ms late"
                return f"unsent: {short:.2%} of the frames of stream {counts.stream}; {late}"
    return ""


def _explained(result: TrialResult, measured: Measured, goals: Sequence[Goal]) -> str:
    """Return how the tester may have caused the loss, or the queue, that misses a goal; empty if it explains less."""
    by_source = sum(_late_frames(counts, result) for counts in result.streams)
    by_ingress = sum(_held_frames(counts, result) for counts in result.streams)
    overdue = sum(_overdue_frames(counts, result) for counts in result.streams)
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
    lost = measured.offered - measured.forwarded
    late_s, cause = max(counts.max_lateness_s for counts in result.streams), "late-source"
    if by_ingress > by_source and result.disturbance:
        late_s = max(result.disturbance.longest_s("ingress", counts.stream) for counts in result.streams)
        cause = "late-ingress"
    if not lost:
        return (
            f"{cause}: {measured.buffered:,} frames arrived after the end of sending, and a delay of "
            f"{1e3 * late_s:,.1f} ms of the tester explains up to {overdue + by_ingress:,} of them"
        )
    return (
        f"{cause}: {lost:,} frames were lost, and a delay of {1e3 * late_s:,.1f} ms of the tester explains up to "
        f"{frames:,} lost frames"
    )


def _late_frames(counts: StreamCounts, result: TrialResult) -> int:
    """Return how many frames of a stream its source sent back to back after a delay; a queue may drop all of them."""
    fps, late_s = counts.intended_fps, _lateness_s(counts)
    if fps is None or result.is_saturated:
        return 0
    if counts.max_burst_frames <= max(_USUAL_BURST, ceil(fps * _USUAL_BURST_S)):
        return 0
    return max(counts.max_burst_frames, ceil(late_s * fps))  # it may have caught up several times


def _overdue_frames(counts: StreamCounts, result: TrialResult) -> int:
    """Return how many frames of a stream its source may have sent after the end of sending, because it was late."""
    fps, late_s = counts.intended_fps, _lateness_s(counts)
    return 0 if fps is None or result.is_saturated or late_s <= _USUAL_LATENESS_S else ceil(late_s * fps)


def _lateness_s(counts: StreamCounts) -> float:
    """Return by how much a source was late without backpressure by its link."""
    # A source that reports the time of backpressure also reports the time in which it did not run.
    return counts.max_lateness_s if counts.link_s is None else counts.away_s


def _held_frames(counts: StreamCounts, result: TrialResult) -> int:
    """Return how many frames of a stream came in at once after a wait of the ingress thread; all may be dropped.

    The value is 0 in searches for maxima, which are coarse and are not results.
    """
    fps = counts.intended_fps
    if fps is None or result.is_saturated or result.disturbance is None or result.spec.finds_maximum:
        return 0
    frames = ceil(fps * result.disturbance.longest_s("ingress", counts.stream))
    return 0 if frames <= max(_USUAL_BURST, ceil(fps * _USUAL_BURST_S)) else frames


def _one_of_several(counts: StreamCounts) -> SearchedStream:
    lost = max(0, counts.lost_frames or 0)
    return SearchedStream(counts.stream, counts.reverse_of, counts.sent_frames, lost, counts.duration_s)


def _intended(counts: StreamCounts, saturated: bool, width: float) -> int:
    """Return the intended frames in the time that sending took, or the sent frames if the link was not the limit."""
    if counts.intended_fps is None:
        return counts.sent_frames
    wanted = max(counts.intended_frames or 0, round(counts.intended_fps * counts.duration_s))
    short = wanted - counts.sent_frames > width / 2 * wanted
    return wanted if saturated or (short and _is_held_up(counts, saturated, width)) else counts.sent_frames


def _is_held_up(counts: StreamCounts, saturated: bool, width: float) -> bool:
    """Return True if backpressure by the link is the reason why frames were not sent in time."""
    return saturated or (counts.link_s or 0.0) > width / 2 * counts.duration_s


def _silent_s(counts: StreamCounts) -> float | None:
    if counts.last_sent_ns is None:
        return None
    if counts.last_received_ns is None:
        return counts.duration_s
    return max(0, counts.last_sent_ns - counts.last_received_ns) / 1e9


def _throughput(streams: Sequence[StreamCounts]) -> float | None:
    known = [counts.throughput_fps for counts in streams if counts.throughput_fps is not None]
    return fmean(known) if known and len(known) == len(streams) else None


def _told(reason: Reason) -> str:
    return f"{reason.kind.value}: {reason.detail}" if reason.detail else reason.kind.value
