"""The axes of figures: their ends, and a logarithmic scale of losses with a place for zero."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, log10

from netbench.statistics.intervals import Interval

THROUGHPUT = "Throughput [Mbit/s, L1]"
THROUGHPUT_FPS = "Throughput [thousand frames/s]"
LOSS = "Loss [% of offered frames]"
OFFERED = "Offered load [Mbit/s, L1]"
OFFERED_FPS = "Offered load [thousand frames/s]"
_HEADROOM = 1.05

# Decades of a loss ratio.
_FEWEST_DECADES = 3
_MOST_DECADES = 9
_BAND = 0.7  # height of the band for zero
_GAP = 0.15  # between that band and the lowest decade


@dataclass(frozen=True, slots=True)
class LossScale:
    """Decades from 10^`lowest` to 100 % and below them a band for zero. Heights are in decades of the ratio.

    In that band, a `row` between 0 and 1 separates UUTs without loss.
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
        """The height of a loss ratio; a ratio of zero or less is in its row of the band."""
        if ratio <= 0:
            return self.bottom + row * _BAND
        return max(log10(ratio), float(self.lowest))

    def ends(self, loss: Interval, row: float) -> tuple[float, float] | None:
        """The heights of the ends of the interval of a loss; None where that is unknown."""
        if loss.half_width is None:
            return None
        here = self.height(loss.mean, row)
        above = self.height(min(1.0, loss.mean + loss.half_width), row)
        below = self.height(max(0.0, loss.mean - loss.half_width), row)
        return min(here, below), max(here, above)

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Heights and labels, in percent, of zero and of the decades."""
        decades = range(self.lowest, 1)
        return ((self.bottom + _BAND / 2, "0"), *((float(decade), f"{100 * 10.0**decade:.10g}") for decade in decades))


def least_loss(loss: Interval | None) -> float:
    """The value that the scale must include: the mean loss, or its upper limit for no loss; 0 for neither."""
    return 0.0 if loss is None else loss.mean or loss.half_width or 0.0


def rows_of_zero(number: int) -> list[float]:
    """The rows of the band for zero that separate this number of UUTs, the first one highest."""
    return [1 - place / (number + 1) for place in range(1, number + 1)]


def end_of_axis(intervals: Iterable[Interval | None], trials: Iterable[float | None] = ()) -> float:
    """The end of an axis from 0: beyond all means and single trials. A huge error bar does not stretch it."""
    known = [interval for interval in intervals if interval is not None]
    drawn = max([interval.mean for interval in known] + [value for value in trials if value], default=0.0)
    tip = max([interval.mean + (interval.half_width or 0.0) for interval in known], default=0.0)
    return _HEADROOM * max(drawn, min(tip, 1.3 * drawn)) or 1.0
