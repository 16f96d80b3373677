"""The repetitions of a measurement: means of one guest over the valid ones, with their intervals."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from netbench.model.counts import l1_mbps, l2_mbps
from netbench.model.frame_size import FrameSize
from netbench.model.scenario import Activity
from netbench.statistics.intervals import Interval, boots_interval, known_interval
from netbench.statistics.totals import (
    LOSS_RATIO,
    OFFERED_FPS,
    THROUGHPUT_FPS,
    UNSENT_RATIO,
    CountedNumber,
    Mbps,
    Totals,
)


def mean_property(number: CountedNumber[Any], doc: str) -> cached_property[Interval | None]:
    """Return a property: the mean of a number over the valid repetitions, with its interval."""
    mean: cached_property[Interval | None] = cached_property(lambda repetitions: number.over(repetitions.valid))
    mean.__doc__ = doc
    return mean


@dataclass(frozen=True)  # no slots: the instance caches computed values
class Repetitions:
    """One guest over the valid repetitions of a measurement, its streams added up.

    Intervals are over the repetitions with a known value; None without any. `frame_size` is None for a guest that
    forwards nothing.
    """

    frame_size: FrameSize | None
    valid: tuple[Totals, ...]

    offered_fps = mean_property(OFFERED_FPS, "Offered frames per second, all sources together.")

    @cached_property
    def throughput_fps(self) -> Interval | None:
        """Received frames per second, all sources together; its interval is over boots, with the noise floor."""
        throughput = self.throughput_without_noise
        return None if throughput is None else throughput.widened(self._noise)

    throughput_without_noise = mean_property(
        THROUGHPUT_FPS, "The throughput without the noise floor, for a comparison with other loads of the campaign."
    )

    @cached_property
    def offered_mbps(self) -> Interval | None:
        """Offered load in Mbit/s (L1)."""
        return self._in(l1_mbps, self.offered_fps, Totals.offered_in)

    @cached_property
    def throughput_mbps(self) -> Interval | None:
        """Throughput in Mbit/s (L1)."""
        return self._in(l1_mbps, self.throughput_fps, Totals.throughput_in)

    @property
    def offered_l2_mbps(self) -> Interval | None:
        """Offered load in Mbit/s (L2)."""
        return self._in(l2_mbps, self.offered_fps, Totals.offered_in)

    @property
    def throughput_l2_mbps(self) -> Interval | None:
        """Throughput in Mbit/s (L2)."""
        return self._in(l2_mbps, self.throughput_fps, Totals.throughput_in)

    loss_ratio = mean_property(LOSS_RATIO, "Lost ÷ offered, the mean of the ratios of the repetitions.")
    unsent_ratio = mean_property(
        UNSENT_RATIO, "Unsent ÷ intended, the mean of the ratios of the repetitions; None for `max`."
    )

    def cpu_s(self, whose: str) -> Interval | None:
        """Return the mean CPU time of a trial in s for an owner, as in Totals; None if unknown in all repetitions."""
        return known_interval(totals.cpu_s(whose) for totals in self.valid)

    def cpu_share(self, whose: str) -> Interval | None:
        """Return CPU time ÷ the time it was counted over: the mean of the shares of the repetitions."""
        return self.once(("CPU share", whose), lambda: known_interval(totals.cpu_share(whose) for totals in self.valid))

    def once(self, what: Hashable, computed: Callable[[], Interval | None]) -> Interval | None:
        """Return an interval that is often needed, computed once; `what` identifies it among these repetitions."""
        if what not in self._intervals:
            self._intervals[what] = computed()
        return self._intervals[what]

    @property
    def _noise(self) -> float | None:
        """The relative variation of the throughput due to the host, beyond the scatter of repetitions."""
        return None

    @cached_property
    def _intervals(self) -> dict[Hashable, Interval | None]:
        return {}

    def _in(self, mbps: Mbps, fps: Interval | None, of_each: Callable[[Totals, Mbps], float | None]) -> Interval | None:
        if self.frame_size and self.frame_size.is_mix:  # mean sizes differ between trials if not all frames arrive
            known = [(totals.boot, value) for totals in self.valid if (value := of_each(totals, mbps)) is not None]
            return boots_interval(known).widened(self._noise) if known else None
        factor = None if self.frame_size is None else mbps(1.0, self.frame_size.mean_bytes)
        return None if fps is None or factor is None else fps.scaled(factor)


@dataclass(frozen=True)  # no slots: the instance caches computed values
class NeighbourGroup(Repetitions):
    """One neighbour over the valid repetitions of a measurement; its rates are None if it forwards nothing."""

    name: str
    activity: Activity
