"""The highest rate that the sources of a testbed can offer, and the samples that it is based on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netbench.model.frame_size import FrameSize

# A ceiling is based on the two highest samples that count, if they agree within this ratio of the higher one.
AGREEMENT = 0.05
# Samples after the warm-up sample: at least this number, and more until two agree, up to the maximum.
FEWEST_SAMPLES, MOST_SAMPLES = 3, 8
# The sources sustain a rate if they sustain it in at least this many samples.
FEWEST_SUSTAINED = 2
SAMPLE_S = 0.2
# A source that did not send for longer than this ratio of a sample was stopped: the sample does not count.
MAY_BE_STOPPED_PART = 0.05
# A ceiling below this ratio of the rate of the same source elsewhere is not a limit of the source.
FAR_BELOW_SOURCE_RATE = 0.8


@dataclass(frozen=True, slots=True)
class CeilingSample:
    """One sample: the offered rate of each unpaced source, in frames/s; of several sources the slowest.

    `accepted` is False if the sample does not count, for the reason `reason`. The warm-up sample is not included. With
    `intended_fps`, the sources were paced at this rate, and `accepted` is whether they sustained it. `disturbed`: a
    source could not run for part of the sample.
    """

    offered_fps: float
    duration_s: float
    accepted: bool = True
    reason: str = ""
    intended_fps: float | None = None
    disturbed: bool = False


@dataclass(frozen=True, slots=True)
class CeilingComparison:
    """The rate of the same source, in frames/s of each, under other conditions: another UUT, or the self-test."""

    name: str
    fps: float


@dataclass(frozen=True, slots=True)
class SourceCeiling:
    """The highest rate of each of so many sources of a kind at one frame size (bytes with FCS), in frames/s.

    `fps` is the second highest of the samples that count; 0 where fewer than two count. `agreed`: these two are
    at most 5 % apart. `uut` is the UUT that the samples were sent into; without one, frames were dropped at the
    ingress NIC. `on` is the VM that the testbed is on. `compared_with` has rates of the same source elsewhere.
    `paced_fps` is a rate that the sources sustain, or the lowest one that was tried; None: no rate was tried.
    """

    source: str
    sources: int
    frame_size: FrameSize
    fps: float
    samples: tuple[CeilingSample, ...]
    agreed: bool
    uut: str = ""
    on: str | None = None
    compared_with: tuple[CeilingComparison, ...] = ()
    paced_fps: float | None = None
    paced_samples: tuple[CeilingSample, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether at least two samples count."""
        return self.fps > 0

    @property
    def far_below(self) -> CeilingComparison | None:
        """The highest rate of the same source elsewhere, if this ceiling is far below it."""
        highest = max(self.compared_with, key=lambda comparison: comparison.fps, default=None)
        return highest if highest and self.fps < FAR_BELOW_SOURCE_RATE * highest.fps else None

    @property
    def doubt(self) -> str:
        """Why the ceiling is not reliable; empty where it is."""
        if not self.is_known:
            reasons = dict.fromkeys(sample.reason for sample in self.samples if sample.reason)
            return f"fewer than two of {len(self.samples)} samples count" + "".join(f"; {why}" for why in reasons)
        if not self.agreed:
            return f"the two highest of {len(self.samples)} samples differ by more than {AGREEMENT:.0%}"
        sustained = sum(sample.accepted and sample.intended_fps == self.paced_fps for sample in self.paced_samples)
        if self.paced_samples and sustained < FEWEST_SUSTAINED:
            return f"the sources sustained {self.paced_fps or 0:,.0f} frames/s in fewer than {FEWEST_SUSTAINED} samples"
        if elsewhere := self.far_below:
            return f"the same source offered {elsewhere.fps:,.0f} frames/s in {elsewhere.name}"
        return ""


def is_settled(samples: Sequence[CeilingSample]) -> bool:
    """Return whether no further sample is needed: the two highest agree, or the maximum number is reached."""
    return len(samples) >= MOST_SAMPLES or (len(samples) >= FEWEST_SAMPLES and _highest_two(samples)[1])


def ceiling_of(
    source: str,
    sources: int,
    frame_size: FrameSize,
    samples: Iterable[CeilingSample],
    *,
    uut: str = "",
    on: str | None = None,
    compared_with: Iterable[CeilingComparison] = (),
) -> SourceCeiling:
    """Return the ceiling that is based on these samples."""
    kept = tuple(samples)
    fps, agreed = _highest_two(kept)
    return SourceCeiling(source, sources, frame_size, fps, kept, agreed, uut, on, tuple(compared_with))


def _highest_two(samples: Sequence[CeilingSample]) -> tuple[float, bool]:
    """Return the second highest of the samples that count, 0 without two; and whether it agrees with the highest."""
    highest = sorted(
        (sample.offered_fps for sample in samples if sample.accepted and sample.offered_fps >= 1), reverse=True
    )[:2]
    if len(highest) < 2:
        return 0.0, False
    return highest[1], highest[1] >= (1 - AGREEMENT) * highest[0]
