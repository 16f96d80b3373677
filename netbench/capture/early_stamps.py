"""Delays of frames whose source stamps a frame first and then waits for its turn, as the kernel's pktgen does.

`pktgen_xmit` in the kernel's net/core/pktgen.c builds a frame and stamps it, waits until it is due, hands it to the
driver, and goes on to build the next one at once. So a frame's own stamp is early by up to the gap between frames,
while the stamp of its successor comes right after it was handed over. Counted from there, a delay is too short by what
handing a frame over costs: about 1 µs on hardware, 10 µs under emulation, and on veth all that is done to the frame
up to the first queue, as that happens in the same call. A frame that arrives during that call has a delay of 0: less
than can be told.

This is for sources that pause between frames. One that does not sends a frame as soon as it is stamped. One of several
on the same kernel thread builds its next frame only when it is its turn again: its delays are too short by as much.
"""

import numpy as np
from numpy.typing import NDArray

from netbench.capture.successors import Successors


class EarlyStamps:
    """Takes frames, without further copies of what has arrived, and gives their delays."""

    def __init__(self) -> None:
        self._pairs = Successors(lambda arrivals_ns, stamps_ns: np.maximum(arrivals_ns - stamps_ns, 0))

    def add(
        self, sequence: NDArray[np.uint32], stamp_ns: NDArray[np.int64], arrival_ns: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The delays that the next frames reveal, of themselves and of earlier ones: numbers of frames, and int64 ns.

        A delay is arrival - stamp of the frame with the next number, at least 0, and revealed once both have arrived;
        times are since 1970 by one clock.
        """
        return self._pairs.add(sequence, arrival_ns, stamp_ns)
