"""The results of the tests of RFC 2544 after the throughput test: sections 26.2 to 26.6.

Rates are in frames/s of each stream. `refused` is the reason why a test, or a part of it, could not be measured; it is
empty if nothing is missing.
"""

from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True, slots=True)
class Latency:
    """One-way delays at the throughput (section 26.2): the mean of each trial's frames, in ns.

    They are those of the stream with the largest median. Trials are `trial_s` seconds long.
    """

    load_fps: float
    trial_s: float
    means_ns: tuple[float, ...]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class LossAtLoad:
    """Lost ÷ offered at one load (section 26.3), all streams together; None where `refused` is the reason why."""

    share: float  # of the highest tried load
    offered_fps: float
    loss_ratio: float | None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class BackToBack:
    """The longest bursts at `rate_fps` without loss, in frames of each stream (section 26.4).

    There is one from each search of RFC 9004, section 6.3, with bursts of at most `longest_frames`. `throughput_fps` is
    that of section 26.1. If shorter bursts could not be sent, `too_long_frames` is the shortest burst with loss.
    """

    rate_fps: float
    throughput_fps: float
    longest_frames: int
    frames: tuple[int, ...]
    refused: str = ""
    too_long_frames: int | None = None

    @property
    def mean_frames(self) -> float | None:
        """Their mean, which is the benchmark; None without any."""
        return fmean(self.frames) if self.frames else None

    @property
    def deviation_frames(self) -> float | None:
        """Their standard deviation; None for fewer than two."""
        return stdev(self.frames) if len(self.frames) > 1 else None

    @property
    def is_bounded(self) -> bool:
        """Whether longer bursts lost frames in each search; otherwise the mean is a lower bound."""
        return all(frames < self.longest_frames for frames in self.frames)

    @property
    def implied_buffer_s(self) -> float | None:
        """The time to send the mean burst, in seconds: RFC 9004, section 6.4, "Implied DUT Buffer Time"."""
        mean = self.mean_frames
        return None if mean is None else mean / self.rate_fps

    @property
    def corrected_buffer_s(self) -> float | None:
        """The same without the frames that were forwarded meanwhile: "Corrected DUT Buffer Time" of that section."""
        implied = self.implied_buffer_s
        return None if implied is None else implied * (1 - self.throughput_fps / self.rate_fps)

    @property
    def corrected_buffer_frames(self) -> float | None:
        """The capacity of that buffer in frames."""
        corrected = self.corrected_buffer_s
        return None if corrected is None else corrected * self.rate_fps


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from the end of an overload to the last lost frame (section 26.5), one for each trial.

    `overload_s` seconds at `overload_fps` were followed by `reduced_s` at `reduced_fps`. The value is 0 without loss at
    the reduced rate. It omits `unrecovered` trials, in which frames were lost to the end.
    """

    overload_fps: float
    overload_s: float
    reduced_fps: float
    reduced_s: float
    seconds: tuple[float, ...]
    unrecovered: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Reset:
    """Seconds without a frame around a reset of the UUT under a steady load (section 26.6), one for each trial.

    They are the frames of the longest loss ÷ the load (RFC 6201, the method of frame loss). They omit `dead` trials,
    in which no frame was forwarded any more.
    """

    load_fps: float
    seconds: tuple[float, ...]
    dead: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Rfc2544Tests:
    """The results in the order of the RFC; None for a test that was not requested, or not started yet.

    `line_rate_fps` is the capacity of the link for such frames, by its rate in the topology, in frames/s.
    """

    line_rate_fps: float
    latency: Latency | None = None
    losses: tuple[LossAtLoad, ...] = ()
    back_to_back: BackToBack | None = None
    recovery: Recovery | None = None
    reset: Reset | None = None
