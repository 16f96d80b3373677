"""What a trial tells a search."""

from statistics import fmean

from netbench.model.trial import TrialResult
from netbench.model.verdict import Reason, ReasonKind, Verdict
from netbench.search.method import Measured


def unmeasured(result: TrialResult) -> str:
    """Why a trial tells nothing at all, such as that the UUT did not come up; empty where it has counts."""
    if result.streams and any(counts.sent_frames for counts in result.streams):
        return ""
    return _told(result.reasons[0]) if result.reasons else "nothing was sent"


def what_it_tells(result: TrialResult) -> Measured:
    """One that has counts.

    Where the UUT's link pushed back, so that less than the load was offered, what was not sent is lost. Where a source
    fell short of the load within the profile's tolerance, what was offered counts. An invalid trial tells that the
    tester cannot do this.
    """
    streams = result.streams
    offered = sum(counts.sent_frames for counts in streams)
    lost = [counts.lost_frames for counts in streams]
    limits = [_told(reason) for reason in result.reasons if reason.kind.verdict is Verdict.INVALID]
    known = [frames for frames in lost if frames is not None]
    if len(known) < len(lost):
        limits.append("nobody knows how many frames were lost")
    if any(frames > 0 for frames in known):  # it may be the tester's
        limits += [_told(reason) for reason in result.reasons if reason.kind is ReasonKind.TESTER_LIMITED]
    told = [counts.delay for counts in streams if counts.delay is not None]
    intended = sum(counts.intended_frames or counts.sent_frames for counts in streams)
    return Measured(
        duration_s=result.spec.duration_s,
        load_fps=result.spec.load.value,
        offered_fps=fmean(counts.offered_fps or 0.0 for counts in streams),
        intended=intended if result.is_saturated else offered,
        offered=offered,
        forwarded=offered - sum(max(0, frames) for frames in known),
        buffered=sum(counts.window.buffered_frames for counts in streams if counts.window),
        limited_by=limits[0] if limits else "",
        delay=max(told, key=lambda delay: delay.median_ns or 0) if told else None,
        delay_refused=next((counts.delay_refused for counts in streams if counts.delay_refused), ""),
    )


def _told(reason: Reason) -> str:
    return f"{reason.kind.value}: {reason.detail}" if reason.detail else reason.kind.value
