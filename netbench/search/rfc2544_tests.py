"""The tests of RFC 2544 after the throughput test, at the throughput it found: sections 26.2 to 26.6, RFC 9004."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Any, Protocol, get_args

from netbench.model.frame_size import FrameSize
from netbench.model.profile import Profile
from netbench.model.search import BackToBack, Latency, LossAtLoad, Recovery, Reset, Rfc2544Tests, SearchState
from netbench.search.methods import GivenUpError, Goal, LossRate, Measured
from netbench.search.search_options import BACK_TO_BACK, FRAME_LOSS_RATE, LATENCY, SYSTEM_RECOVERY, SearchOptions, Test

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
_SIZES = tuple(map(FrameSize.of, (64, 128, 256, 512, 1024, 1280, 1518)))


@dataclass(frozen=True, slots=True)
class Throughput:
    """The result of the search for the throughput, in frames/s of each stream.

    `fps` is 0 if frames are lost even at the lowest load. `highest_fps` is the highest rate that the sources can be
    paced at, or the highest allowed rate. `limited_by`: why no load is known at which the UUT loses frames; empty if
    one is known.
    """

    fps: float
    highest_fps: float
    line_rate_fps: float
    state: SearchState
    frame_size: FrameSize
    limited_by: str = ""

    @property
    def without_loss(self) -> str:
        """The reason why the loss above the throughput is unknown; empty if frames are lost there."""
        if self.state is not SearchState.AT_LEAST:
            return ""
        if self.fps >= _NEARLY * self.highest_fps:
            return "nothing is lost at the highest rate, however long it lasts"
        return f"no rate is known at which the UUT loses frames: {self.limited_by}"


def is_smallest(frame_size: FrameSize, profile: Profile) -> bool:
    """Return True for the smallest frame size of a profile, with any packet.

    Resets are measured with this size only (section 26.6).
    """
    return frame_size.without_packet == min(profile.frame_sizes)


class TrialMaker(Protocol):
    """Makes the trials of tests, with rates in frames/s of each stream."""

    def steady(self, seconds: float, rate: float) -> Measured:
        """Return a trial at one load."""

    def burst(self, frames: int, fps: float) -> Measured:
        """Send exactly so many frames of each stream at one rate."""

    def reduced(self, first: tuple[float, float], then: tuple[float, float]) -> Measured:
        """Send at one rate, in frames/s, for so many seconds, and immediately afterwards at another rate."""

    def restarted(self, seconds: float, fps: float, restart_at_s: float) -> Measured:
        """Send at a steady load and restart the UUT after so many seconds."""


class BenchmarkingTests:
    """The tests that follow one search; `results` are those so far, None before the first trial.

    Each test yields its results: the first one, without trials, is not kept. The test ends early by GivenUpError, whose
    text then is the result's `refused`.
    """

    def __init__(self, options: SearchOptions, profile: Profile, throughput: Throughput, trials: TrialMaker) -> None:
        self._options, self._profile, self._throughput, self._trials = options, profile, throughput, trials
        self.results: Rfc2544Tests | None = None

    def measure(self) -> None:
        """Run all requested tests, in the order of the RFC."""
        for test in self._options.tests:
            if test == FRAME_LOSS_RATE:
                self._record(losses=self._losses())
            elif test == LATENCY:
                self._run("latency", self._latency())
            elif test == BACK_TO_BACK:
                self._run("back_to_back", self._back_to_back())
            elif test == SYSTEM_RECOVERY:
                self._run("recovery", self._recovery())
            elif is_smallest(self._throughput.frame_size, self._profile):
                self._run("reset", self._reset())

    def _record(self, **results: Any) -> None:  # noqa: ANN401 - each value has the type of its field
        self.results = replace(self.results or Rfc2544Tests(self._throughput.line_rate_fps), **results)

    def _run(self, field: str, results: Iterator[Any]) -> None:
        result = next(results)
        try:
            if self._throughput.state is SearchState.AT_MOST:
                raise GivenUpError(_NO_THROUGHPUT)
            for result in results:
                self._record(**{field: result})
        except GivenUpError as why:
            self._record(**{field: replace(result, refused=str(why))})

    def _latency(self) -> Iterator[Latency]:
        options, fps = self._options.latency, self._throughput.fps
        result = Latency(fps, options.duration, ())
        yield result
        while len(result.means_ns) < options.times:
            trial = _useful(lambda: self._trials.steady(options.duration, fps))
            mean_ns = None if trial.delay is None else trial.delay.mean_ns
            if mean_ns is None:
                raise GivenUpError(trial.delay_refused or "the sink measures no delays")
            result = replace(result, means_ns=(*result.means_ns, mean_ns))
            yield result

    def _losses(self) -> tuple[LossAtLoad, ...]:
        """Return the losses at 100 %, 90 %, … of the highest load, until two loads in a row lose nothing."""
        losses: list[LossAtLoad] = []
        highest = self._throughput.highest_fps

        def measure(seconds: float, fps: float) -> Measured:
            trial = self._trials.steady(seconds, fps)
            ratio = None if trial.limited_by else trial.loss_ratio
            losses.append(LossAtLoad(round(fps / highest, 9), trial.offered_load, ratio, trial.limited_by))
            return trial

        try:
            # Late frames are not lost, and the reported ratios do not include them.
            LossRate(Goal("", 0.0, buffered=1.0), trial_s=self._profile.duration).search(0.0, highest, measure)
        except GivenUpError as why:
            losses.append(LossAtLoad(0.0, 0.0, None, str(why)))
        return tuple(losses)

    def _back_to_back(self) -> Iterator[BackToBack]:
        """Yield the longest bursts without loss, each found by halving to the width or to one frame."""
        options, throughput = self._options.back_to_back, self._throughput
        rate = throughput.highest_fps
        result = BackToBack(rate, throughput.fps, max(1, round(rate * options.longest)), ())
        yield result
        if throughput.frame_size.is_mix:
            raise GivenUpError("not with frames of several sizes (RFC 9004, section 3)")
        if throughput.without_loss:  # RFC 9004, section 6.1: such frame sizes are left out
            raise GivenUpError(throughput.without_loss)

        def is_whole(frames: int) -> bool:
            burst = _useful(lambda: _without_limit_if_lossy(self._trials.burst(frames, rate)), _MOST_USELESS_BURSTS)
            return burst.forwarded == burst.intended and not burst.failed

        while len(result.frames) < options.times:
            too_long = result.longest_frames
            whole = too_long if is_whole(too_long) else 0
            try:
                while too_long - whole > max(1, int(self._options.width * too_long)):
                    middle = (whole + too_long) // 2
                    if is_whole(middle):
                        whole = middle
                    else:
                        too_long = middle
            except GivenUpError:
                yield replace(result, too_long_frames=too_long)
                raise
            result = replace(result, frames=(*result.frames, whole))
            yield result

    def _recovery(self) -> Iterator[Recovery]:
        options, throughput = self._options.recovery, self._throughput
        overload = min(_OVERLOAD * throughput.fps, throughput.highest_fps)
        reduced = _REDUCED * overload
        result = Recovery(overload, options.duration, reduced, options.reduced, ())
        yield result
        if throughput.without_loss:
            raise GivenUpError(f"there is no overload to recover from: {throughput.without_loss}")
        before, after = round(overload * options.duration), round(reduced * options.reduced)
        while len(result.seconds) + result.unrecovered < options.times:
            trial = _useful(lambda: self._trials.reduced((overload, options.duration), (reduced, options.reduced)))
            if trial.offered < trial.intended:
                raise GivenUpError("backpressure by the link: the overload could not be offered")
            if trial.last_missing is None:
                raise GivenUpError(f"nothing was lost at {overload:,.0f} frames/s either")
            if trial.last_missing + 1 >= before + after:
                result = replace(result, unrecovered=result.unrecovered + 1)
            else:
                result = replace(result, seconds=(*result.seconds, max(0, trial.last_missing - before) / reduced))
            yield result

    def _reset(self) -> Iterator[Reset]:
        options, fps = self._options.reset, self._throughput.fps
        result = Reset(fps, ())
        yield result
        while len(result.seconds) + result.dead < options.times:
            trial = _useful(lambda: self._trials.restarted(options.duration, fps, options.before))
            if trial.failed:
                raise GivenUpError(trial.failed)
            if trial.offered < trial.intended:
                raise GivenUpError("backpressure by the link while the UUT is down")
            if trial.longest_missing is None or trial.silent_s is None:
                raise GivenUpError("the sink does not report which frames are missing")
            # A recovered UUT may lose one of the last frames too.
            if trial.silent_s * fps > max(1.0, _SILENT_PART * trial.longest_missing):
                result = replace(result, dead=result.dead + 1)
            else:
                result = replace(result, seconds=(*result.seconds, trial.longest_missing / fps))
            yield result


def _useful(measure: Callable[[], Measured], most: int = _MOST_USELESS) -> Measured:
    """Return a trial that the tester did not limit; GivenUpError with the reason if it limits all attempts."""
    for _ in range(most):
        trial = measure()
        if not trial.limited_by:
            return trial
    raise GivenUpError(trial.limited_by)


def _without_limit_if_lossy(burst: Measured) -> Measured:
    """Return the burst, without its limit if it lost frames although it was sent too slowly.

    At its intended rate such a burst would certainly be too long.
    """
    is_too_long = burst.is_short and burst.forwarded < burst.offered
    return replace(burst, limited_by="", is_short=False) if is_too_long else burst


def expected_of_tests(options: SearchOptions, profile: Profile, frame_size: FrameSize) -> tuple[int, float]:
    """Return an estimate of the number of trials for each search and of the seconds of traffic."""
    latency, bursts, recovery, reset = options.latency, options.back_to_back, options.recovery, options.reset
    halvings = 1 + ceil(log2(1 / options.width))  # each halves the interval, so that the bursts soon become short
    expected: dict[Test, tuple[int, float]] = {
        "latency": (latency.times, latency.times * latency.duration),
        "frame-loss-rate": LossRate(Goal("", 0.0, 0.0), trial_s=profile.duration).expected(),
        "back-to-back": (bursts.times * halvings, bursts.times * 2 * bursts.longest),
        "system-recovery": (recovery.times, recovery.times * (recovery.duration + recovery.reduced)),
        "reset": (reset.times, reset.times * reset.duration),
    }
    if frame_size.is_mix:
        del expected["back-to-back"]
    if not is_smallest(frame_size, profile):
        del expected["reset"]
    requested = [expected[test] for test in options.tests if test in expected]
    return sum(trials for trials, _ in requested), sum(seconds for _, seconds in requested)


_OF_TEST: dict[Test, str] = {
    "latency": (
        "latency is the mean over all frames of a trial, by software time stamps, instead of that of one tagged frame "
        "after 60 s (section 26.2); it runs from the hand-over of a frame to the source's NIC to its reading from the "
        "sink's NIC, which matches neither definition of RFC 1242 (section 3.8)"
    ),
    "frame-loss-rate": (
        "frame loss is measured and plotted at percentages of the highest paced rate of the sources, or of the "
        "highest load requested, not of the link rate (section 26.3)"
    ),
    "back-to-back": (
        "bursts are sent at the highest rate that the sources can be paced at, not with the smallest gaps of the "
        "link (section 26.4), and buffer times are computed with that rate"
    ),
    "reset": (
        "a reset (section 26.6) is a restart in software: netbench stops and starts the UUT and its setup, without a "
        "reset button or a power interruption of 10 s; the reset time is computed from lost frames (RFC 6201)"
    ),
}


def deviations(options: SearchOptions, profile: Profile) -> Iterator[str]:
    """Yield the deviations of a profile from RFC 2544, for its requested tests."""
    sizes = tuple(size for size in profile.frame_sizes if not size.is_mix)
    if sizes != _SIZES:
        yield f"frame sizes {', '.join(map(str, sizes)) or 'none'} instead of those of section 9.1"
    if packets := [name for name in profile.packet_names if name]:
        yield f"packets {', '.join(packets)} instead of the frame formats of section 8 (appendix C)"
    if options.method != "rfc2544":
        yield f"the throughput is searched for by {options.method} instead of as in section 26.1"
    # Section 23 (e): 2 s for residual frames, 5 s for the UUT to stabilize.
    pauses_s = profile.settle.before + profile.settle.after
    yield from _less("trials", profile.duration, 60.0, "section 24", " s")
    yield from _less("pauses between trials", pauses_s, 7.0, "section 23", " s")
    if options.width > 0:
        yield f"the throughput is known to {options.width:.2%}, and not to the frame"
    for test in get_args(Test):
        if test not in options.tests:
            continue
        if test in _OF_TEST:
            yield _OF_TEST[test]
        if test == LATENCY:
            yield from _less("latency's trials", options.latency.duration, 120.0, "section 26.2", " s")
            yield from _less("trials of latency", options.latency.times, 20, "section 26.2")
        elif test == BACK_TO_BACK:
            yield from _less("the longest burst", options.back_to_back.longest, 2.0, "section 26.4", " s")
            yield from _less("searches for the longest burst", options.back_to_back.times, 50, "section 26.4")
        elif test == SYSTEM_RECOVERY:
            yield from _less("overload before recovery", options.recovery.duration, 60.0, "section 26.5", " s")
    if missing := [test for test in get_args(Test) if test not in options.tests]:
        yield f"not measured: {', '.join(missing)}"
    if profile.flows == 1:
        yield "frames have one pair of addresses and ports instead of 256 networks (section 12)"
    yield "broadcast frames, management frames, routing updates and filters (section 11) are not part of the traffic"


def _less(name: str, actual: float, required: float, section: str, unit: str = "") -> Iterator[str]:
    if actual < required:
        yield f"{name}: {actual:g}{unit} instead of {required:g}{unit} ({section})"
