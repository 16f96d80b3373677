"""The noise floor from the repeats of one fixed trial."""

from collections.abc import Sequence
from math import sqrt
from statistics import median

from netbench.model.campaign import NoiseFloor
from netbench.statistics.intervals import student_t

FEWEST = 3  # repeats: fewer do not show their variation
_ENOUGH_FOR_MEDIAN = 5
_MOST_ABOVE = 2
# The 95 % half width, as a ratio, of the variation of maxima between runs in a virtual machine, which shares CPUs,
# caches and memory. In two series of ten runs of four UUTs the standard deviations were 3 to 18 %, 11 % pooled.
# The next run is within t(0.975; 18) · 11 % · √(1 + 1/10). This is a type B evaluation (JCGM 100:2008, section 4.3).
RUN_TO_RUN_IN_VM = 0.25
_OF_NORMAL = 1.4826  # the standard deviation of a normal distribution ÷ its median absolute deviation


def noise_floor(
    throughputs_fps: Sequence[float], trial: str, parts: float = 1.0, *, run_to_run: float = 0.0
) -> NoiseFloor | None:
    """Return the noise floor of repeats with these throughputs in frames/s; None for fewer than 3, or without frames.

    `parts` is the duration of the campaign's trials ÷ that of a repeat: a trial of the campaign counts as the mean of
    `parts` repeats. t(0.975; n − 1) · s · √(1/parts + 1/n) ÷ mean is the prediction interval of the mean of `parts`
    further repeats (Hahn and Meeker 1991, "Statistical Intervals", section 4.8). The centre is the median. With 5
    repeats or more, s is limited to twice the deviation derived from their median absolute deviation (Hampel 1974,
    "The influence curve and its role in robust estimation"), so that a single disturbed repeat does not decide.
    `run_to_run` is that of NoiseFloor.
    """
    n = len(throughputs_fps)
    if n < FEWEST:
        return None
    centre = median(throughputs_fps)
    if centre <= 0:
        return None
    mean = sum(throughputs_fps) / n
    deviation = sqrt(sum((value - mean) ** 2 for value in throughputs_fps) / (n - 1))
    if n >= _ENOUGH_FOR_MEDIAN:
        deviation = min(deviation, _MOST_ABOVE * _OF_NORMAL * median(abs(value - centre) for value in throughputs_fps))
    half_width = student_t(n - 1) * deviation * sqrt(1 / max(1.0, parts) + 1 / n) / centre
    return NoiseFloor(half_width, n, trial, tuple(throughputs_fps), run_to_run)
