"""The service level that a search requires of a workload, and its options: percentile, errors, and throughput."""

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from netbench.errors import KeyedError
from netbench.model.fields import ClientLoadField, Percent, Seconds
from netbench.model.units import Load, LoadKind
from netbench.search.methods import Goal, Measured
from netbench.search.search_options import Width

# The part of the intended operations that must start, end, and succeed within the measured time.
_KEPT_UP_PART = 0.99
_LOWEST_PART = 0.001
_PER_PERCENT = 1000  # percentiles are in parts of 100,000
_RATES = (LoadKind.OPERATION_RATE, LoadKind.L1_BIT_RATE)


class ServiceOptions(BaseModel):
    """Options of the search for the highest rate at which a service meets a service level objective (SLO).

    The rate is that of each stream's client. A trial meets the objective if the percentile of its response times is
    below the limit, at most the part `errors` of the operations failed, and at least 99 % of them started and succeeded
    within the measured time. Without `below` the search finds the rate from which on throughput falls behind.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    percentile: Annotated[float, Field(gt=0, lt=100)] = 99.0
    """Percentile of response times, from the intended start; of sockperf, of round-trip times."""
    below: Annotated[Seconds, Field(gt=0)] | None = None
    """Limit of that percentile. Default: none."""
    errors: Annotated[Percent, Field(lt=1)] = 0.0
    """Part of the operations that may fail."""
    width: Width = 0.05
    """Allowed distance of the final bounds, as a part of the upper one."""
    highest: ClientLoadField = Load(LoadKind.MAX)
    """Highest rate of each client: 5000/s, or 1Gbit/s of payload; `max`: the rate of a closed-loop trial; for iperf3
    give `lowest` too."""
    lowest: ClientLoadField | None = None
    """Lowest rate, at most half of the highest. Default: a thousandth of it, or more: with a response beyond the
    percentile in each trial."""
    verified: Annotated[int, Field(strict=True, ge=1, le=100)] = 2
    """Trials in a row that must miss the objective until a rate is too high."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.highest.kind not in (*_RATES, LoadKind.MAX):
            raise KeyedError("highest", f"a rate of a tool such as 5000/s or 1Gbit/s, or max, not {self.highest}")
        if self.lowest is None:
            return self
        if self.lowest.kind not in _RATES:
            raise KeyedError("lowest", f"a rate of a tool such as 10/s or 1Mbit/s, not {self.lowest}")
        if self.highest.kind is not LoadKind.MAX:
            if self.highest.kind is not self.lowest.kind:
                raise KeyedError("lowest", f"{self.lowest} has another unit than highest, {self.highest}")
            if 2 * self.lowest.value > self.highest.value:
                raise KeyedError("lowest", f"{self.lowest} is more than half of highest ({self.highest})")
        return self

    @property
    def unit(self) -> LoadKind:
        """The unit of rates: operations/s, or bit/s of payload if a bound is such a rate."""
        rates = [load.kind for load in (self.highest, self.lowest) if load is not None and load.kind in _RATES]
        return rates[0] if rates else LoadKind.OPERATION_RATE

    @property
    def objective(self) -> str:
        """The objective, the range of rates and the width of the final bounds, in words."""
        limit = "" if self.below is None else f"p{self.percentile:g} below {_time_text(self.below)}, "
        highest = "that of a closed-loop trial" if self.highest.kind is LoadKind.MAX else str(self.highest)
        lowest = "the default lowest rate" if self.lowest is None else str(self.lowest)
        return (
            f"highest rate with {limit}at most {100 * self.errors:g} % errors and throughput that follows the "
            f"rate; from {lowest} to {highest}; width {100 * self.width:g} %"
        )

    @property
    def goal(self) -> "ServiceGoal":
        """The goal of the search."""
        part = None if self.below is None else round(self.percentile * _PER_PERCENT)
        limit_ns = 0 if self.below is None else round(self.below * 1e9)
        parts = ["throughput follows the rate"] if self.below is None else []
        if self.below is not None:
            parts.append(f"p{self.percentile:g} below {_time_text(self.below)}")
        if self.errors:
            parts.append(f"errors at most {100 * self.errors:g} %")
        return ServiceGoal(", ".join(parts), self.errors, 0.0, part, limit_ns)

    def lowest_of(self, highest: float, measured_s: float) -> float:
        """Return the lowest rate of the search, which is at most half of the highest.

        By default a trial, of which so many seconds are measured, has a response beyond the percentile. Otherwise that
        is the longest response time, and a single stall of the tester exceeds any limit.
        """
        if self.lowest is not None:
            return min(self.lowest.value, highest / 2)
        needed = 0.0 if self.below is None else 1 / (1 - self.percentile / 100) / measured_s
        return min(max(highest * _LOWEST_PART, needed), highest / 2)


@dataclass(frozen=True, slots=True)
class ServiceGoal(Goal):
    """The service level: this percentile, in parts of 100,000, below `limit_ns`; no percentile if it is None."""

    part: int | None = None
    limit_ns: int = 0

    def is_met_by(self, measured: Measured) -> bool:
        """Return True if a trial met the service level."""
        service = measured.service
        if measured.limited_by or measured.failed or service is None or not measured.intended:
            return False
        enough = min(_KEPT_UP_PART * measured.intended, measured.intended - service.on_the_way)
        return (
            service.failed <= (self.loss_ratio or 0.0) * measured.intended
            and measured.offered >= enough
            and measured.forwarded > 0
            and min(measured.forwarded, service.in_time) + service.failed >= enough
            and (self.part is None or self._is_fast(measured))
        )

    def _is_fast(self, measured: Measured) -> bool:
        times = None if measured.service is None else measured.service.times
        return times is not None and self.part is not None and times.percentile_ns(self.part) < self.limit_ns


def _time_text(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{1000 * seconds:g} ms"
