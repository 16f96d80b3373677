"""Judges the source of a stream: did it offer the load, and if not, was its link or the source itself to blame?"""

from collections.abc import Iterator
from math import inf

from netbench.model.counts import StreamCounts
from netbench.model.verdict import Finding, ReasonKind
from netbench.trial.observation import StreamObservation

# The part of the duration that a source may fall behind, and the part of its frames that it may send back to back to
# catch up. At most this part of the frames can be lost or late because of it. One batch of frames overruns no queue.
_MAY_BE_LATE_PART = 0.1
_ONE_BATCH = 64
# A stream that lost more than this many times the frames that its source sent late was overloaded in any case.
_OVERLOADED = 2
# The part of its sending time that a source may not have run, if its link alone is to be blamed for unsent frames.
_MAY_BE_AWAY_PART = 0.05
# The part of its frames by which a saturated source may be ahead of an even rate, or behind it.
_MAY_BE_UNEVEN_PART = 0.1
# The link is to blame if backpressure took at least this part of the missing time, or of the total time.
_MOST_OF_MISSING = 0.5
_MUCH_OF_ALL = 0.25


def source_findings(
    evidence: StreamObservation, counts: StreamCounts, tolerance: float, max_lateness_s: float
) -> list[Finding]:
    """Return the findings about the source of a stream; `tolerance` and `max_lateness_s` are those of `judge`."""
    found = list(_load_findings(evidence, counts, tolerance))
    # A source with backpressure from its link is late all the time, although it was not stopped.
    is_saturated = ReasonKind.SATURATED in (kind for kind, _ in found)
    if not (is_saturated or _is_overloaded(evidence, counts)):
        found += _pacing_findings(evidence, max_lateness_s, max(_MAY_BE_LATE_PART, tolerance))
    return found


def saturation(evidence: StreamObservation, tolerance: float) -> str:
    """Return how much backpressure made a source offer less than intended; empty if it did not, or is to blame."""
    if falls_short(evidence, tolerance) and not _at_fault(evidence):
        return _backpressure(evidence)
    return ""


def _load_findings(evidence: StreamObservation, counts: StreamCounts, tolerance: float) -> Iterator[Finding]:
    sent = evidence.sent
    if sent.error:
        yield ReasonKind.GENERATOR_FAILED, sent.error
    elif sent.frames == 0 and not evidence.received.error:
        yield ReasonKind.NOTHING_SENT, "the generator sent no frame"
    # A source without an intended rate regularly meets a full queue of the NIC and tries again. So does a source that
    # reports how long its link held it up.
    if sent.errors and evidence.traffic.fps is not None and sent.backpressure_s is None:
        yield ReasonKind.GENERATOR_ERRORS, f"{sent.errors} sends failed"
    offered, intended = counts.offered_fps, evidence.traffic.fps
    if sent.error or not sent.frames or offered is None or intended is None:
        return
    off = offered / intended - 1
    if abs(off) <= tolerance:
        return
    detail = (
        f"offered {offered:,.0f} of {intended:,.0f} frames/s ({off:+.2%}, tolerance {tolerance:.2%}); "
        f"{sent.frames:,} frames took {sent.duration_s:.3f} s"
    )
    if not falls_short(evidence, tolerance):
        yield ReasonKind.OFFERED_OUT_OF_TOLERANCE, detail
    elif fault := _at_fault(evidence):
        yield ReasonKind.OFFERED_OUT_OF_TOLERANCE, f"{detail}; {fault}"
    else:
        yield ReasonKind.SATURATED, f"{detail}; {_backpressure(evidence)}"


def falls_short(evidence: StreamObservation, tolerance: float) -> bool:
    """Return True if a source that reports its backpressure offered less than the intended load."""
    sent, intended = evidence.sent, evidence.traffic.fps
    if intended is None or sent.error or not sent.frames or sent.backpressure_s is None:
        return False
    return sent.frames < sent.duration_s * intended * (1 - tolerance)


def _at_fault(evidence: StreamObservation) -> str:
    """Return why the source, and not its link, is to blame for the unsent frames; empty if only its link is."""
    sent, backpressure_s, took_s = evidence.sent, evidence.sent.backpressure_s or 0.0, evidence.sent.duration_s
    missing_s = took_s - sent.frames / (evidence.traffic.fps or inf)
    if sent.descheduled_s > min(_MAY_BE_AWAY_PART * took_s, _MOST_OF_MISSING * missing_s):
        return f"the source did not run for {sent.descheduled_s:.3f} s of that, although it had frames to send"
    if sent.unevenness > _MAY_BE_UNEVEN_PART:
        return f"the source was unsteady: up to {sent.unevenness:.0%} of its frames ahead of or behind an even rate"
    if backpressure_s < min(_MOST_OF_MISSING * missing_s, _MUCH_OF_ALL * took_s):
        return f"the source itself is too slow: its link exerted backpressure for {backpressure_s:.3f} s only"
    return ""


def _backpressure(evidence: StreamObservation) -> str:
    return f"backpressure by its link for {evidence.sent.backpressure_s:.3f} s of {evidence.sent.duration_s:.3f} s"


def _is_overloaded(evidence: StreamObservation, counts: StreamCounts) -> bool:
    """Return True if a paced stream lost far more frames than its source sent late: it was overloaded in any case."""
    sent, fps = evidence.sent, evidence.traffic.fps
    if fps is None or counts.lost_frames is None:
        return False
    late_frames = max(sent.max_burst_frames, sent.max_lateness_s * fps)
    return counts.lost_frames > max(_OVERLOADED * late_frames, _MAY_BE_LATE_PART * sent.frames)


def _pacing_findings(evidence: StreamObservation, max_lateness_s: float, part: float) -> Iterator[Finding]:
    sent, traffic = evidence.sent, evidence.traffic
    if traffic.fps is None:
        if sent.max_lateness_s > part * traffic.duration_s:
            yield ReasonKind.UNEVEN_PACING, f"the source was stopped for {sent.max_lateness_s * 1e3:,.0f} ms"
        return
    # Limited catching up causes no burst: the frames beyond the limit remain unsent.
    limit_s = max_lateness_s if traffic.catch_up is None else inf
    is_late = sent.max_lateness_s > min(limit_s, part * traffic.duration_s)
    if is_late or sent.max_burst_frames > max(_ONE_BATCH, part * sent.frames):
        yield (
            ReasonKind.UNEVEN_PACING,
            f"the source fell {sent.max_lateness_s * 1e3:,.0f} ms behind and caught up with up to "
            f"{sent.max_burst_frames:,} frames back to back: the burst may have caused loss",
        )
