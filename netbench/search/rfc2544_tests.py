"""The tests of RFC 2544 after the throughput test, at the throughput it found: sections 26.2 to 26.6, RFC 9004."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Protocol

from netbench.model.frame_mix import FrameMix
from netbench.model.profile import Profile
from netbench.model.search import BackToBack, Latency, LossAtLoad, Recovery, Reset, Rfc2544Tests, SearchState
from netbench.model.verdict import ReasonKind
from netbench.search.methods import GivenUpError, Goal, LossRate, Measured
from netbench.search.search_options import BACK_TO_BACK, FRAME_LOSS_RATE, LATENCY, RESET, SYSTEM_RECOVERY, SearchOptions

# So many successive trials in which the source failed the test's requirements end the test. Bursts may fail more often:
# they are so short that a small pause of the source matters.
_MOST_USELESS, _MOST_USELESS_BURSTS = 3, 10
# Section 26.5: at 110 % of the throughput first, then at half of that.
_OVERLOAD, _REDUCED = 1.1, 0.5
# The offered load may be slightly below the highest intended rate.
_NEARLY = 0.95
# A UUT did not recover from a reset if sending ended during the longest silence, or after most of it.
_SILENT_PART = 0.5
_NO_THROUGHPUT = "frames are lost even at the lowest load: there is no throughput at which to measure"
_SIZES = (64, 128, 256, 512, 1024, 1280, 1518)
_TRIAL_S, _SETTLE_S = 60.0, 7.0  # section 24; section 23 (e): 2 s for residual frames, 5 s for the UUT to stabilize
_LATENCY_S, _LATENCY_TIMES = 120.0, 20  # section 26.2
_BURST_S, _BURST_TIMES = 2.0, 50  # section 26.4


class Trials(Protocol):
    """The trials that a test can run; they raise GivenUpError once nothing can be measured any more."""

    def steady(self, seconds: float, fps: float) -> Measured:
        """Return the measurement of a trial at one load."""

    def burst(self, frames: int, fps: float) -> Measured:
        """Send exactly so many frames of each stream."""

    def reduced(self, first: tuple[float, float], then: tuple[float, float]) -> Measured:
        """Send at one rate, in frames/s, for so many seconds, and immediately afterwards at another rate."""

    def restarted(self, seconds: float, fps: float, restart_at_s: float) -> Measured:
        """Send at a steady load and restart the UUT after so many seconds."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """The result of the search for the throughput, in frames/s of each stream.

    `fps` is 0 if frames are lost even at the lowest load.
    """

    fps: float
    highest_fps: float  # the highest rate that the sources can be paced at, or the highest allowed rate
    line_rate_fps: float
    state: SearchState
    is_smallest: bool  # the smallest frame size of the profile: resets are measured with this size only (section 26.6)
    is_mix: bool = False  # a mix of frame sizes: bursts are not measured with a mix (RFC 9004, section 3)
    limited_by: str = ""  # why no load is known at which the UUT loses frames; empty if one is known

    @property
    def without_loss(self) -> str:
        """The reason why the loss above the throughput is unknown; empty if frames are lost there."""
        if self.state is not SearchState.AT_LEAST:
            return ""
        if self.fps >= _NEARLY * self.highest_fps:
            return "nothing is lost at the highest rate, however long it lasts"
        return f"no rate is known at which the UUT loses frames: {self.limited_by}"


def measure_tests(
    asked: SearchOptions,
    profile: Profile,
    throughput: Throughput,
    trials: Trials,
    keep: Callable[[Rfc2544Tests], None],
) -> None:
    """Run all requested tests, in the order of the RFC; `keep` is called with each intermediate result."""
    found = Rfc2544Tests(throughput.line_rate_fps)

    def told(**known: object) -> None:
        nonlocal found
        found = replace(found, **known)  # type: ignore[arg-type]  # each value has the type of its field
        keep(found)

    for test in asked.tests:
        match test:
            case "latency":
                for latency in _latency(asked, throughput, trials):
                    told(latency=latency)
            case "frame-loss-rate":
                for losses in _losses(profile, throughput, trials):
                    told(losses=losses)
            case "back-to-back":
                for bursts in _back_to_back(asked, throughput, trials):
                    told(back_to_back=bursts)
            case "system-recovery":
                for recovery in _recovery(asked, throughput, trials):
                    told(recovery=recovery)
            case "reset" if throughput.is_smallest:
                for reset in _reset(asked, throughput, trials):
                    told(reset=reset)


def _latency(asked: SearchOptions, throughput: Throughput, trials: Trials) -> Iterator[Latency]:
    wanted = asked.latency
    result = Latency(throughput.fps, wanted.duration, ())
    if throughput.state is SearchState.AT_MOST:
        yield replace(result, refused=_NO_THROUGHPUT)
        return
    try:
        while len(result.means_ns) < wanted.times:
            trial = _useful(lambda: trials.steady(wanted.duration, throughput.fps))
            mean_ns = None if trial.delay is None else trial.delay.mean_ns
            if mean_ns is None:
                raise GivenUpError(trial.delay_refused or "the sink tells no delays")
            result = replace(result, means_ns=(*result.means_ns, mean_ns))
            yield result
    except GivenUpError as why:
        yield replace(result, refused=str(why))


def _losses(profile: Profile, throughput: Throughput, trials: Trials) -> Iterator[tuple[LossAtLoad, ...]]:
    """Yield the losses at 100 %, 90 %, … of the highest load, until two loads in a row lose nothing."""
    losses: list[LossAtLoad] = []
    highest = throughput.highest_fps

    def measure(seconds: float, fps: float) -> Measured:
        trial = trials.steady(seconds, fps)
        refused = trial.limited_by
        ratio = None if refused else trial.loss_ratio
        losses.append(LossAtLoad(round(fps / highest, 9), trial.offered_fps, ratio, refused))
        return trial

    try:
        # Late frames are not lost, and the reported ratios do not include them.
        LossRate(Goal("", 0.0, buffered=1.0), trial_s=profile.duration).search(0.0, highest, measure)
    except GivenUpError as why:
        losses.append(LossAtLoad(0.0, 0.0, None, str(why)))
    yield tuple(losses)


def _back_to_back(asked: SearchOptions, throughput: Throughput, trials: Trials) -> Iterator[BackToBack]:
    wanted, rate = asked.back_to_back, throughput.highest_fps
    result = BackToBack(rate, throughput.fps, max(1, round(rate * wanted.longest)), ())
    if throughput.state is SearchState.AT_MOST:
        yield replace(result, refused=_NO_THROUGHPUT)
        return
    if throughput.is_mix:
        yield replace(result, refused="not with frames of several sizes (RFC 9004, section 3)")
        return
    if throughput.without_loss:  # RFC 9004, section 6.1: such frame sizes are left out
        yield replace(result, refused=throughput.without_loss)
        return
    try:
        while len(result.frames) < wanted.times:
            result = replace(
                result, frames=(*result.frames, _longest_burst(result.longest_frames, rate, asked, trials))
            )
            yield result
    except _UnsendableError as why:
        yield replace(result, refused=str(why), too_long_frames=why.too_long)
    except GivenUpError as why:
        yield replace(result, refused=str(why))


class _UnsendableError(GivenUpError):
    """Sources do not send a burst at the intended rate; a burst of `too_long` frames is known to be too long."""

    def __init__(self, why: GivenUpError, too_long: int) -> None:
        super().__init__(str(why))
        self.too_long = too_long


def _longest_burst(longest: int, rate: float, asked: SearchOptions, trials: Trials) -> int:
    """Return the frames of the longest burst without loss, found by halving to the width or to one frame."""

    def is_whole(frames: int) -> bool:
        burst = _useful(lambda: _with_what_slow_ones_tell(trials.burst(frames, rate)), _MOST_USELESS_BURSTS)
        return burst.forwarded == burst.intended and not burst.failed

    if is_whole(longest):
        return longest
    whole, too_long = 0, longest
    try:
        while too_long - whole > max(1, int(asked.width * too_long)):
            middle = (whole + too_long) // 2
            if is_whole(middle):
                whole = middle
            else:
                too_long = middle
    except GivenUpError as why:
        raise _UnsendableError(why, too_long) from why
    return whole


def _with_what_slow_ones_tell(burst: Measured) -> Measured:
    """Return the burst, without its limit if it lost frames although it was sent too slowly.

    At its intended rate such a burst would certainly be too long.
    """
    is_slow = burst.limited_by.startswith(ReasonKind.OFFERED_OUT_OF_TOLERANCE.value)
    return replace(burst, limited_by="") if is_slow and burst.forwarded < burst.offered else burst


def _recovery(asked: SearchOptions, throughput: Throughput, trials: Trials) -> Iterator[Recovery]:
    wanted = asked.recovery
    overload = min(_OVERLOAD * throughput.fps, throughput.highest_fps)
    reduced = _REDUCED * overload
    result = Recovery(overload, wanted.duration, reduced, wanted.reduced, ())
    if throughput.state is SearchState.AT_MOST:
        yield replace(result, refused=_NO_THROUGHPUT)
        return
    if throughput.without_loss:
        yield replace(result, refused=f"there is no overload to recover from: {throughput.without_loss}")
        return
    try:
        while len(result.seconds) + result.unrecovered < wanted.times:
            trial = _useful(lambda: trials.reduced((overload, wanted.duration), (reduced, wanted.reduced)))
            if trial.offered < trial.intended:
                raise GivenUpError("the link pushes back: the overload could not be offered")
            if trial.last_missing is None:
                raise GivenUpError(f"nothing was lost at {overload:,.0f} frames/s either")
            before = round(overload * wanted.duration)
            after = round(reduced * wanted.reduced)
            if trial.last_missing + 1 >= before + after:
                result = replace(result, unrecovered=result.unrecovered + 1)
            else:
                lost_s = max(0, trial.last_missing - before) / reduced
                result = replace(result, seconds=(*result.seconds, lost_s))
            yield result
    except GivenUpError as why:
        yield replace(result, refused=str(why))


def _reset(asked: SearchOptions, throughput: Throughput, trials: Trials) -> Iterator[Reset]:
    wanted = asked.reset
    result = Reset(throughput.fps, ())
    if throughput.state is SearchState.AT_MOST:
        yield replace(result, refused=_NO_THROUGHPUT)
        return
    try:
        while len(result.seconds) + result.dead < wanted.times:
            trial = _useful(lambda: trials.restarted(wanted.duration, throughput.fps, wanted.before))
            if trial.failed:
                raise GivenUpError(trial.failed)
            if trial.offered < trial.intended:
                raise GivenUpError("the link pushes back while the UUT is not there")
            if trial.longest_missing is None or trial.silent_s is None:
                raise GivenUpError("the sink does not tell which frames are missing")
            # A recovered UUT may lose one of the last frames too.
            if trial.silent_s * throughput.fps > max(1.0, _SILENT_PART * trial.longest_missing):
                result = replace(result, dead=result.dead + 1)
            else:
                result = replace(result, seconds=(*result.seconds, trial.longest_missing / throughput.fps))
            yield result
    except GivenUpError as why:
        yield replace(result, refused=str(why))


def _useful(measure: Callable[[], Measured], most: int = _MOST_USELESS) -> Measured:
    """Return a trial that the tester did not limit; GivenUpError with the reason if it limits all attempts."""
    why = ""
    for _ in range(most):
        trial = measure()
        if not trial.limited_by:
            return trial
        why = trial.limited_by
    raise GivenUpError(why)


def expected_of_tests(asked: SearchOptions, trial_s: float, *, is_smallest: bool, is_mix: bool) -> tuple[int, float]:
    """Return an estimate of the number of trials for each search and of the seconds of traffic."""
    trials, seconds = 0, 0.0
    if LATENCY in asked.tests:
        trials, seconds = trials + asked.latency.times, seconds + asked.latency.times * asked.latency.duration
    if FRAME_LOSS_RATE in asked.tests:
        most, most_s = LossRate(Goal("", 0.0, 0.0), trial_s=trial_s).expected()
        trials, seconds = trials + most, seconds + most_s
    if BACK_TO_BACK in asked.tests and not is_mix:
        # Each trial halves the interval, so that the bursts soon become short.
        halvings = 1 + ceil(log2(1 / asked.width))
        trials += asked.back_to_back.times * halvings
        seconds += asked.back_to_back.times * 2 * asked.back_to_back.longest
    if SYSTEM_RECOVERY in asked.tests:
        trials += asked.recovery.times
        seconds += asked.recovery.times * (asked.recovery.duration + asked.recovery.reduced)
    if RESET in asked.tests and is_smallest:
        trials, seconds = trials + asked.reset.times, seconds + asked.reset.times * asked.reset.duration
    return trials, seconds


def deviations(asked: SearchOptions, profile: Profile) -> Iterator[str]:
    """Yield the deviations of a profile from RFC 2544, for its requested tests."""
    sizes = tuple(size for size in profile.frame_sizes if not isinstance(size, FrameMix))
    if sizes != _SIZES:
        yield f"frame sizes {', '.join(map(str, sizes)) or 'none'} instead of those of section 9.1"
    if asked.method != "rfc2544":
        yield f"the throughput is searched for by {asked.method} instead of as in section 26.1"
    yield from _shorter("trials", profile.duration, _TRIAL_S, "section 24")
    yield from _shorter("pauses between trials", profile.settle.before + profile.settle.after, _SETTLE_S, "section 23")
    if asked.width > 0:
        yield f"the throughput is known to {asked.width:.2%}, and not to the frame"
    if LATENCY in asked.tests:
        yield (
            "latency is measured of every frame, by time stamps that software makes at the source and at the sink, "
            "instead of one tagged frame after 60 s (section 26.2): a trial's value is their mean, from the moment "
            "that a frame is handed to the source's NIC until it is taken from the sink's, which is neither of the two "
            "definitions of RFC 1242 (section 3.8)"
        )
        yield from _shorter("latency's trials", asked.latency.duration, _LATENCY_S, "section 26.2")
        yield from _fewer("trials of latency", asked.latency.times, _LATENCY_TIMES, "section 26.2")
    if FRAME_LOSS_RATE in asked.tests:
        yield (
            "frame loss is measured, and drawn, at parts of the highest rate that the sources can be paced at, or that "
            "is asked for, not of the link's (section 26.3)"
        )
    if BACK_TO_BACK in asked.tests:
        yield (
            "bursts are sent at the highest rate that the sources can be paced at, not with the smallest gaps of the "
            "link (section 26.4), and buffer times are computed with that rate"
        )
        yield from _shorter("the longest burst", asked.back_to_back.longest, _BURST_S, "section 26.4")
        yield from _fewer("searches for the longest burst", asked.back_to_back.times, _BURST_TIMES, "section 26.4")
    if SYSTEM_RECOVERY in asked.tests:
        yield from _shorter("overload before recovery", asked.recovery.duration, _TRIAL_S, "section 26.5")
    if RESET in asked.tests:
        yield (
            "a reset (section 26.6) is the UUT ended and started again by netbench, with what is set up for it: no "
            "button is pressed, and no power interrupted for 10 s; it is timed by the frames that are lost (RFC 6201)"
        )
    every = (LATENCY, FRAME_LOSS_RATE, BACK_TO_BACK, SYSTEM_RECOVERY, RESET)
    left_out = [test for test in every if test not in asked.tests]
    if left_out:
        yield f"not measured: {', '.join(left_out)}"
    if profile.flows == 1:
        yield "frames have one pair of addresses and ports instead of 256 networks (section 12)"
    yield "broadcast frames, management frames, routing updates and filters (section 11) are not part of the traffic"


def _shorter(what: str, seconds: float, asked_s: float, section: str) -> Iterator[str]:
    if seconds < asked_s:
        yield f"{what}: {seconds:g} s instead of {asked_s:g} s ({section})"


def _fewer(what: str, number: int, asked: int, section: str) -> Iterator[str]:
    if number < asked:
        yield f"{what}: {number} instead of {asked} ({section})"
