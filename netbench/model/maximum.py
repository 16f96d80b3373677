"""The maximum that loads of neighbours refer to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Maximum:
    """The highest throughput of one stream of a UUT at one frame size while its neighbours were idle.

    What neighbours are made to forward is a share of it (Schlosser et al. 2011, section 3.4).
    """

    uut: str
    frame_size: int  # bytes with FCS
    fps: float  # frames per second per stream, the mean over `repetitions`
    load: str  # the load per stream it was reached at, as the profile has it
    repetitions: int
