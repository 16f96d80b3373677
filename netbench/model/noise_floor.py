"""The noise floor of a host: how far repeats of one fixed trial differ. Smaller differences are not reported."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """The variation between repeats of one fixed `trial`, measured at the start of a campaign.

    95 % of repeats that last as long as the trials of the campaign lie within the mean ± `half_width`, which is a ratio
    of that mean. `repeats` is how many were made, which are shorter; `throughputs_fps` are these, in frames/s.
    `run_to_run` is a ratio too: by how much the maxima of a UUT may differ between runs on this kind of host, beyond
    what boots of one run show. It is not measured.
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
