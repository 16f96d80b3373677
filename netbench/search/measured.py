"""What a trial tells a search."""

from collections.abc import Sequence
from statistics import fmean

from netbench.model.counts import StreamCounts
from netbench.model.search import OneOfSeveral
from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind
from netbench.model.verdict import Reason, ReasonKind, Verdict
from netbench.search.method import Measured


def unmeasured(result: TrialResult) -> str:
    """Why a trial tells nothing at all, such as that the UUT did not come up; empty where it tells something."""
    if failed(result) or (result.streams and any(counts.sent_frames for counts in result.streams)):
        return ""
    return _told(result.reasons[0]) if result.reasons else "nothing was sent"


def failed(result: TrialResult) -> str:
    """How the UUT came to an end in a trial that began; empty where it did not, or never was there."""
    why = [_told(reason) for reason in result.reasons if reason.kind is ReasonKind.UUT_FAILED]
    return why[0] if why and (result.boot or result.streams) else ""


def what_it_tells(result: TrialResult, width: float) -> Measured:
    """One that is not unmeasured.

    Where the UUT's link pushed back, by more than half the width, frames that were not sent in time are lost: sources
    go on for a while to send those that are late. Where a source fell short by itself within the profile's tolerance,
    what was offered counts. An invalid trial tells that the tester cannot do this, unless it is the UUT that failed.
    """
    streams, spec = result.streams, result.spec
    offered = sum(counts.sent_frames for counts in streams)
    lost = [counts.lost_frames for counts in streams]
    fails = failed(result)
    limits = [_told(reason) for reason in result.reasons if reason.kind.verdict is Verdict.INVALID]
    known = [frames for frames in lost if frames is not None]
    if len(known) < len(lost):
        limits.append("nobody knows how many frames were lost")
    if any(frames > 0 for frames in known):  # it may be the tester's
        limits += [_told(reason) for reason in result.reasons if reason.kind is ReasonKind.TESTER_LIMITED]
    told = [counts.delay for counts in streams if counts.delay is not None]
    refused = next((counts.delay_refused for counts in streams if counts.delay_refused), "")
    planned = round(spec.load.value * spec.duration_s) * len(spec.streams) if spec.load.kind is not LoadKind.MAX else 0
    return Measured(
        duration_s=spec.duration_s,
        load_fps=spec.load.value,
        offered_fps=fmean(counts.offered_fps or 0.0 for counts in streams) if streams else 0.0,
        intended=max(1, planned) if fails else sum(_intended(counts, result.is_saturated, width) for counts in streams),
        offered=offered,
        forwarded=0 if fails else offered - sum(max(0, frames) for frames in known),
        buffered=sum(counts.window.buffered_frames for counts in streams if counts.window),
        limited_by=limits[0] if limits and not fails else "",
        failed=fails,
        delay=max(told, key=lambda delay: delay.median_ns or 0) if told else None,
        delay_refused=refused,
        last_missing=max(
            (one.last_missing_frame for one in streams if one.last_missing_frame is not None), default=None
        ),
        longest_missing=max((run for one in streams if (run := one.longest_loss_run_frames) is not None), default=None),
        silent_s=max((seconds for one in streams if (seconds := _silent_s(one)) is not None), default=None),
        throughput_fps=_throughput(streams),
        each=tuple(map(_one_of_several, streams)) if len(streams) > 1 else (),
    )


def _one_of_several(counts: StreamCounts) -> OneOfSeveral:
    lost = max(0, counts.lost_frames or 0)
    return OneOfSeveral(counts.stream, counts.reverse_of, counts.sent_frames, lost, counts.duration_s)


def _intended(counts: StreamCounts, saturated: bool, width: float) -> int:
    """How many frames the load is in the time that sending took, where the link is why that was long, or few sent."""
    if counts.intended_fps is None:
        return counts.sent_frames
    wanted = max(counts.intended_frames or 0, round(counts.intended_fps * counts.duration_s))
    held_up = (counts.link_s or 0.0) > width / 2 * counts.duration_s
    short = wanted - counts.sent_frames > width / 2 * wanted
    return wanted if saturated or (held_up and short) else counts.sent_frames


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
