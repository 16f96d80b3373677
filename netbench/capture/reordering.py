"""Reordered frames and how far each came too late, by RFC 4737, sections 3.3 and 4.2."""

import numpy as np

from netbench.capture.arrivals import Arrivals
from netbench.capture.distribution import Distribution
from netbench.model.counts import Extent

# Breaks in the order that are remembered. An extent that goes back beyond them is counted as far as they go: by at
# least as many frames.
_BREAKS = 1 << 16


class ReorderingTracker:
    """Takes a stream's frames in the order of arrival, without further copies of what has arrived.

    A frame is reordered when a higher number came before it (section 3.3; of duplicates only the first to arrive is
    considered). Its extent is i - j, where it is the i-th to arrive and the j-th is the earliest one with a
    higher number (section 4.2).
    """

    def __init__(self) -> None:
        self.reordered = 0
        self._arrived = 0
        self._extents = Distribution()
        # Ranges of numbers that arrived one after the other, each higher than all before: the first number, the
        # one after the last, and how many frames had come before the first.
        self._starts = self._stops = self._places = np.empty(0, np.int64)

    def add(self, batch: Arrivals) -> None:
        """The next frames."""
        self._starts = np.concatenate((self._starts, batch.ahead_from))
        self._stops = np.concatenate((self._stops, batch.ahead_to))
        self._places = np.concatenate((self._places, batch.ahead_places + self._arrived))
        if len(batch.late):
            self.reordered += len(batch.late)
            higher = batch.late + 1
            ranges = np.searchsorted(self._stops, higher, side="right")
            starts = self._starts[ranges]
            earliest = self._places[ranges] + np.maximum(higher - starts, 0)
            self._extents.add(batch.late_places + self._arrived - earliest)
        self._arrived += batch.frames
        self._starts, self._stops, self._places = (one[-_BREAKS:] for one in (self._starts, self._stops, self._places))

    def extent(self) -> Extent | None:
        """Of all reordered frames; None where there are none."""
        median, mean, largest = self._extents.percentile(500), self._extents.mean, self._extents.largest
        if median is None or mean is None or largest is None:
            return None
        return Extent(median, mean, largest)
