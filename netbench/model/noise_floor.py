"""The noise floor of a host: how far repeats of one fixed trial differ. Smaller differences are not reported."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """The variation between repeats of one fixed `trial`, measured at the start of a campaign.

    `half_width` is a ratio of the mean: 95 % of repeats with the duration of a campaign trial lie within the mean ±
    this ratio. The `repeats` themselves are shorter; `throughputs_fps` are their throughputs in frames/s. `run_to_run`
    is the 95 % half width, as a ratio, of the variation of maxima between runs on this kind of host. It is not
    measured.
    """

    half_width: float
    repeats: int
    trial: str
    throughputs_fps: tuple[float, ...] = ()
    run_to_run: float = 0.0

    def __str__(self) -> str:
        percent = f"{100 * self.half_width:.0f}" if self.half_width >= 0.01 else f"{100 * self.half_width:.1g}"
        text = f"This host varies by ±{percent} % between repeats. Smaller differences are not reported."
        if not self.run_to_run:
            return text
        more = f"another ±{100 * self.run_to_run:.0f} %, the variation between runs"
        return f"{text} It is a virtual machine: intervals of maxima contain {more}."
