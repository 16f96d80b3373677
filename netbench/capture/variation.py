"""How much the delays of consecutive frames differ: inter-packet delay variation."""

import numpy as np
from numpy.typing import NDArray

from netbench.capture.distribution import Distribution
from netbench.capture.successors import Successors
from netbench.model.counts import Spread


class VariationTally:
    """IPDV of RFC 5481, section 4.1: delay of a frame - delay of the frame with the number before; its magnitude.

    By number, not by arrival; undefined, and left out, where either frame is lost (RFC 3393). Signs are
    left out too: all differences between the first and the last frame add up to the difference of those two.
    """

    def __init__(self) -> None:
        self._pairs = Successors(lambda earlier_ns, later_ns: np.abs(later_ns - earlier_ns))
        self._magnitudes = Distribution()

    def add(self, sequence: NDArray[np.uint32], delays_ns: NDArray[np.int64]) -> None:
        """Numbers and delays of frames, in any order, without further copies of what there was."""
        self._magnitudes.add(self._pairs.add(sequence, delays_ns, delays_ns)[1])

    def spread(self) -> Spread | None:
        """Of all pairs; None where there is none."""
        return self._magnitudes.spread()
