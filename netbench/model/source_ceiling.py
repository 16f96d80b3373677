"""The highest rate that the sources of a testbed can offer, and the samples that it rests on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netbench.model.frame_mix import FrameSize

# A ceiling rests on the two highest samples that count, where they agree within this part of the higher one.
AGREEMENT = 0.05
# Samples after the warm-up sample: at least so many, and more until two agree, at most so many.
FEWEST_SAMPLES, MOST_SAMPLES = 3, 8
# The sources sustain a rate if they sustain it in at least this many samples.
FEWEST_SUSTAINED = 2
SAMPLE_S = 0.2
# A source that did not send for longer than this part of a sample was stopped: the sample does not count.
MAY_BE_STOPPED_PART = 0.05
# Less than this part of what the same source offered elsewhere is no ceiling of the source.
FAR_BELOW = 0.8


@dataclass(frozen=True, slots=True)
class CeilingSample:
    """One sample: what each source offered without a rate to keep, in frames/s; of several the slowest.

    `accepted` is False where `reason` says why the sample says nothing of the source. The warm-up sample is none. With
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
    """The rate of the same source, in frames/s of each, in another place: another UUT, or the self-test."""

    name: str
    fps: float


@dataclass(frozen=True, slots=True)
class SourceCeiling:
    """The highest rate of each of so many sources of a kind at one frame size (bytes with FCS), in frames/s.

    `fps` is the lower one of the two highest samples that count; 0 where fewer than two count. `agreed` says that these
    two are at most 5 % apart. `uut` is the UUT that the samples were sent into; without one, frames were dropped at the
    ingress NIC. `on` is the VM that the testbed is on. `compared_with` has rates of the same source elsewhere.
    `paced_fps` is a rate that the sources hold, or the lowest that they were tried at; None: no rate was tried.
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
        """Whether at least two samples say something of the source."""
        return self.fps > 0

    @property
    def far_below(self) -> CeilingComparison | None:
        """The highest rate of the same source elsewhere, where this ceiling is far below it."""
        highest = max(self.compared_with, key=lambda one: one.fps, default=None)
        return highest if highest and self.fps < FAR_BELOW * highest.fps else None

    @property
    def doubt(self) -> str:
        """Why the ceiling is not reliable; empty where it is."""
        if not self.is_known:
            reasons = dict.fromkeys(one.reason for one in self.samples if one.reason)
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
    """Whether no further sample is needed: the two highest agree, or there are as many as there may be."""
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
    """The ceiling that these samples show."""
    kept = tuple(samples)
    fps, agreed = _highest_two(kept)
    return SourceCeiling(source, sources, frame_size, fps, kept, agreed, uut, on, tuple(compared_with))


def _highest_two(samples: Sequence[CeilingSample]) -> tuple[float, bool]:
    """The lower one of the two highest samples that count, 0 without two; and whether the two agree."""
    highest = sorted((one.offered_fps for one in samples if one.accepted and one.offered_fps >= 1), reverse=True)[:2]
    if len(highest) < 2:
        return 0.0, False
    return highest[1], highest[1] >= (1 - AGREEMENT) * highest[0]
