"""A logarithmic scale for loss ratios on which zero has a place."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, log10

from netbench.statistics.intervals import Interval

_FEWEST_DECADES = 3
_MOST_DECADES = 9
_BAND = 0.7  # height of the band for zero, in decades
_GAP = 0.15  # between that band and the lowest decade


@dataclass(frozen=True, slots=True)
class LossScale:
    """Decades from 10^`lowest` to 100 % and below them a band for zero. Heights are in decades of the ratio.

    In that band a `row` between 0 and 1 sets UUTs without loss beside, not on top of each other.
    """

    lowest: int

    @classmethod
    def over(cls, ratios: Iterable[float]) -> "LossScale":
        """A scale that reaches down to the smallest loss among `ratios`, zero left aside."""
        smallest = min((ratio for ratio in ratios if ratio > 0), default=1.0)
        return cls(max(-_MOST_DECADES, min(-_FEWEST_DECADES, floor(log10(smallest)))))

    @property
    def border(self) -> float:
        """The upper edge of the band for zero."""
        return self.lowest - _GAP

    @property
    def bottom(self) -> float:
        """The lower edge of the band for zero, and of the scale."""
        return self.border - _BAND

    @property
    def top(self) -> float:
        """The upper end of the scale, a little above 100 %."""
        return 0.2

    def height(self, ratio: float, row: float) -> float:
        """Where a loss ratio is drawn; zero, or less, in its row of the band."""
        if ratio <= 0:
            return self.bottom + row * _BAND
        return max(log10(ratio), float(self.lowest))

    def reach(self, loss: Interval, row: float) -> tuple[float, float] | None:
        """How far the error bar of a loss extends up and down from its height; None where that is unknown."""
        if loss.half_width is None:
            return None
        here = self.height(loss.mean, row)
        above = self.height(min(1.0, loss.mean + loss.half_width), row)
        below = self.height(max(0.0, loss.mean - loss.half_width), row)
        return max(0.0, above - here), max(0.0, here - below)

    def ticks(self) -> tuple[list[float], list[str]]:
        """Heights and labels, in percent, of the decades and of zero."""
        decades = range(self.lowest, 1)
        labels = [f"{100 * 10.0**decade:.10g}" for decade in decades]
        return [self.bottom + _BAND / 2, *map(float, decades)], ["0", *labels]
