"""The fixed trial whose repeats show the noise floor of a host: its load, number and duration. Pure."""

from dataclasses import replace

from netbench.model.profile import Profile
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import ReasonKind
from netbench.statistics.intervals import FEWEST_REPEATS

MOST = 17
_TRIAL_S, _SETTLE_S = 0.05, 0.01
_WARM_UP_PART = 0.25


def noise_trial(following: TrialSpec, profile: Profile) -> TrialSpec:
    """Return a trial of at most 0.05 s with the UUT alone and its smallest frames, sent as fast as the sources can.

    The packet is that of the following trial, because the UUT may not forward others. Thus the speed of the host
    decides the throughput, not the clock of the source.
    """
    size = min(profile.frame_sizes).with_packet(following.frame_size.packet)
    seconds = min(_TRIAL_S, profile.duration)
    traffic = replace(following.frames, size=size, load=Load(LoadKind.MAX))
    victim = replace(
        following.victim,
        traffic=traffic,
        duration_s=seconds,
        warm_up_s=_WARM_UP_PART * seconds,
        first_fps=None,
        first_s=0.0,
        share_of_less="",
        is_less_than_share=False,
    )
    return replace(
        following,
        guests=(victim,),
        settle_before_s=min(_SETTLE_S, following.settle_before_s),
        settle_after_s=min(_SETTLE_S, following.settle_after_s),
        benchmark="",
        restart_at_s=None,
    )


def in_words(trial: TrialSpec) -> str:
    """Return a description of the trial for the record."""
    return f"{trial.uut} alone, frames of {trial.frame_size.in_bytes}, load max, {trial.duration_s:g} s"


def is_enough(repeats: int, elapsed_s: float, least_s: float) -> bool:
    """Return whether so many repeats after so many seconds are enough; the first is a warm-up and does not count."""
    return repeats >= MOST or (repeats > FEWEST_REPEATS and elapsed_s >= least_s)


def came_out_fps(result: TrialResult) -> float | None:
    """Return the frames per second that left the UUT, including those that the capture dropped.

    None if unknown, if the tester was disturbed, or if the UUT failed: then it is no repeat of the same trial.
    """
    if any(reason.kind in (ReasonKind.TESTER_DISTURBED, ReasonKind.UUT_FAILED) for reason in result.reasons):
        return None
    rates = [
        (counts.received.frames + (counts.capture_dropped_frames or 0)) / counts.sent.duration_s
        for counts in result.streams
        if counts.received.frames is not None and counts.sent.duration_s > 0
    ]
    return sum(rates) if rates and len(rates) == len(result.spec.streams) else None
