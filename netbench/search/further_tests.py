"""The tests of RFC 2544 that follow that of throughput, at the rate that it found: sections 26.2 to 26.5, RFC 9004."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Protocol

from netbench.model.frame_mix import FrameMix
from netbench.model.profile import Profile
from netbench.model.rfc2544 import BackToBack, Latency, LossAtLoad, Recovery, Reset, Rfc2544Tests
from netbench.model.search import SearchState
from netbench.model.verdict import ReasonKind
from netbench.search.loss_rate import LossRate
from netbench.search.method import GivenUpError, Goal, Measured
from netbench.search.options import BACK_TO_BACK, FRAME_LOSS_RATE, LATENCY, RESET, SYSTEM_RECOVERY, SearchOptions

# Of trials in which the source did not do what a test needs, so many in a row end it: of bursts more, which are short,
# so that a moment in which the source did not run is much.
_MOST_USELESS, _MOST_USELESS_BURSTS = 3, 10
# Section 26.5: at 110 % of the throughput first, then at half of that.
_OVERLOAD, _REDUCED = 1.1, 0.5
# What was offered may be a little below the highest rate at which it was to be.
_NEARLY = 0.95
# A UUT is not back after a reset where sending ended in the longest silence, or most of it.
_SILENT_PART = 0.5
_NO_THROUGHPUT = "frames are lost even at the lowest load: there is no throughput at which to measure"
_SIZES = (64, 128, 256, 512, 1024, 1280, 1518)
_TRIAL_S, _SETTLE_S = 60.0, 7.0  # section 24; section 23 (e): 2 s for what is left, 5 s for the UUT to become stable
_LATENCY_S, _LATENCY_TIMES = 120.0, 20  # section 26.2
_BURST_S, _BURST_TIMES = 2.0, 50  # section 26.4


class Trials(Protocol):
    """What a test measures with; GivenUpError where nothing can be measured any more."""

    def steady(self, seconds: float, fps: float) -> Measured:
        """A trial at one load."""

    def burst(self, frames: int, fps: float) -> Measured:
        """So many frames of each stream, and no more."""

    def reduced(self, first: tuple[float, float], then: tuple[float, float]) -> Measured:
        """One rate, in frames/s, for so many seconds, and at once another one."""

    def restarted(self, seconds: float, fps: float, restart_at_s: float) -> Measured:
        """A steady load, while the UUT is ended and started again after so many seconds."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """What is known once the throughput was searched for, in frames/s of each stream.

    There is none (`fps` is 0) where frames are lost even at the lowest load.
    """

    fps: float
    highest_fps: float  # that the sources can be paced at, or may
    line_rate_fps: float
    state: SearchState
    is_smallest: bool  # of the frame sizes of the profile: resets are measured with those only (section 26.6)
    is_mix: bool = False  # of frame sizes: bursts are not measured with such (RFC 9004, section 3)
    limited_by: str = ""  # why no load is known at which the UUT loses frames; empty where one is known

    @property
    def without_loss(self) -> str:
        """Why the loss above the throughput is unknown; empty where frames are lost there."""
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
    """All tests that are asked for, in the order of the RFC; `keep` is told again and again what is known by then."""
    found = Rfc2544Tests(throughput.line_rate_fps)

    def told(**known: object) -> None:
        nonlocal found
        found = replace(found, **known)  # type: ignore[arg-type]  # each is what its field holds
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
    found = Latency(throughput.fps, wanted.duration, ())
    if throughput.state is SearchState.AT_MOST:
        yield replace(found, refused=_NO_THROUGHPUT)
        return
    try:
        while len(found.means_ns) < wanted.times:
            one = _useful(lambda: trials.steady(wanted.duration, throughput.fps))
            mean_ns = None if one.delay is None else one.delay.mean_ns
            if mean_ns is None:
                raise GivenUpError(one.delay_refused or "the sink tells no delays")
            found = replace(found, means_ns=(*found.means_ns, mean_ns))
            yield found
    except GivenUpError as why:
        yield replace(found, refused=str(why))


def _losses(profile: Profile, throughput: Throughput, trials: Trials) -> Iterator[tuple[LossAtLoad, ...]]:
    """At 100 %, 90 %, … of the highest load, until two in a row lose nothing."""
    found: list[LossAtLoad] = []
    highest = throughput.highest_fps

    def measure(seconds: float, fps: float) -> Measured:
        one = trials.steady(seconds, fps)
        refused = one.limited_by
        ratio = None if refused else one.loss_ratio
        found.append(LossAtLoad(round(fps / highest, 9), one.offered_fps, ratio, refused))
        return one

    try:
        # What came out late is not lost, and the ratios that are told do not have it.
        LossRate(Goal("", 0.0, buffered=1.0), trial_s=profile.duration).search(0.0, highest, measure)
    except GivenUpError as why:
        found.append(LossAtLoad(0.0, 0.0, None, str(why)))
    yield tuple(found)


def _back_to_back(asked: SearchOptions, throughput: Throughput, trials: Trials) -> Iterator[BackToBack]:
    wanted, rate = asked.back_to_back, throughput.highest_fps
    found = BackToBack(rate, throughput.fps, max(1, round(rate * wanted.longest)), ())
    if throughput.state is SearchState.AT_MOST:
        yield replace(found, refused=_NO_THROUGHPUT)
        return
    if throughput.is_mix:
        yield replace(found, refused="not with frames of several sizes (RFC 9004, section 3)")
        return
    if throughput.without_loss:  # RFC 9004, section 6.1: such sizes are left out
        yield replace(found, refused=throughput.without_loss)
        return
    try:
        while len(found.frames) < wanted.times:
            found = replace(found, frames=(*found.frames, _longest_burst(found.longest_frames, rate, asked, trials)))
            yield found
    except _UnsendableError as why:
        yield replace(found, refused=str(why), too_long_frames=why.too_long)
    except GivenUpError as why:
        yield replace(found, refused=str(why))


class _UnsendableError(GivenUpError):
    """Sources do not send a burst at its rate; what is known is that one of so many frames is too long."""

    def __init__(self, why: GivenUpError, too_long: int) -> None:
        super().__init__(str(why))
        self.too_long = too_long


def _longest_burst(longest: int, rate: float, asked: SearchOptions, trials: Trials) -> int:
    """Frames of the longest burst that comes out whole: by halving, to the width that is asked for or to the frame."""

    def is_whole(frames: int) -> bool:
        one = _useful(lambda: _with_what_slow_ones_tell(trials.burst(frames, rate)), _MOST_USELESS_BURSTS)
        return one.forwarded == one.intended and not one.failed

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
    """A burst that lost frames though sources sent it too slowly is too long at its rate all the more."""
    is_slow = burst.limited_by.startswith(ReasonKind.OFFERED_OUT_OF_TOLERANCE.value)
    return replace(burst, limited_by="") if is_slow and burst.forwarded < burst.offered else burst


def _recovery(asked: SearchOptions, throughput: Throughput, trials: Trials) -> Iterator[Recovery]:
    wanted = asked.recovery
    overload = min(_OVERLOAD * throughput.fps, throughput.highest_fps)
    reduced = _REDUCED * overload
    found = Recovery(overload, wanted.duration, reduced, wanted.reduced, ())
    if throughput.state is SearchState.AT_MOST:
        yield replace(found, refused=_NO_THROUGHPUT)
        return
    if throughput.without_loss:
        yield replace(found, refused=f"there is no overload to recover from: {throughput.without_loss}")
        return
    try:
        while len(found.seconds) + found.unrecovered < wanted.times:
            one = _useful(lambda: trials.reduced((overload, wanted.duration), (reduced, wanted.reduced)))
            if one.offered < one.intended:
                raise GivenUpError("the link pushes back: the overload could not be offered")
            if one.last_missing is None:
                raise GivenUpError(f"nothing was lost at {overload:,.0f} frames/s either")
            before = round(overload * wanted.duration)
            after = round(reduced * wanted.reduced)
            if one.last_missing + 1 >= before + after:
                found = replace(found, unrecovered=found.unrecovered + 1)
            else:
                lost_s = max(0, one.last_missing - before) / reduced
                found = replace(found, seconds=(*found.seconds, lost_s))
            yield found
    except GivenUpError as why:
        yield replace(found, refused=str(why))


def _reset(asked: SearchOptions, throughput: Throughput, trials: Trials) -> Iterator[Reset]:
    wanted = asked.reset
    found = Reset(throughput.fps, ())
    if throughput.state is SearchState.AT_MOST:
        yield replace(found, refused=_NO_THROUGHPUT)
        return
    try:
        while len(found.seconds) + found.dead < wanted.times:
            one = _useful(lambda: trials.restarted(wanted.duration, throughput.fps, wanted.before))
            if one.failed:
                raise GivenUpError(one.failed)
            if one.offered < one.intended:
                raise GivenUpError("the link pushes back while the UUT is not there")
            if one.longest_missing is None or one.silent_s is None:
                raise GivenUpError("the sink does not tell which frames are missing")
            # A UUT that is back may lose one of the last frames too.
            if one.silent_s * throughput.fps > max(1.0, _SILENT_PART * one.longest_missing):
                found = replace(found, dead=found.dead + 1)
            else:
                found = replace(found, seconds=(*found.seconds, one.longest_missing / throughput.fps))
            yield found
    except GivenUpError as why:
        yield replace(found, refused=str(why))


def _useful(measure: Callable[[], Measured], most: int = _MOST_USELESS) -> Measured:
    """A trial in which the tester did what it was to; GivenUpError with why it did not when none is one."""
    why = ""
    for _ in range(most):
        one = measure()
        if not one.limited_by:
            return one
        why = one.limited_by
    raise GivenUpError(why)


def expected_of_tests(asked: SearchOptions, trial_s: float, *, is_smallest: bool, is_mix: bool) -> tuple[int, float]:
    """How many trials they will take for each search, and how many seconds of traffic, about."""
    trials, seconds = 0, 0.0
    if LATENCY in asked.tests:
        trials, seconds = trials + asked.latency.times, seconds + asked.latency.times * asked.latency.duration
    if FRAME_LOSS_RATE in asked.tests:
        most, most_s = LossRate(Goal("", 0.0, 0.0), trial_s=trial_s).expected()
        trials, seconds = trials + most, seconds + most_s
    if BACK_TO_BACK in asked.tests and not is_mix:
        # Each halves what is left, and what is left is short soon.
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
    """In what a profile does otherwise than RFC 2544 says, where it asks for its tests."""
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
