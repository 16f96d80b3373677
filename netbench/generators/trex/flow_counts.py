"""What a TRex server has counted of one stream in one trial, and what it says of the delay of its frames.

The delay is read with what its numbers really are (src/time_histogram.cpp of TRex). It looks at the time when its
software sends a frame, and again when its software comes to look at what arrived: both are part of what it measures.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netbench.model.distributions import DelayClass, SoftwareDelay


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """Frames that arrived at the sink's port: those of the stream, of each size (bytes with FCS), by the server's word.

    `missed` is what the server could not take in at that port, whosever: the tester's own loss.
    """

    frames: int
    by_size: Mapping[int, int]
    missed: int
    delay: SoftwareDelay | None = None


def flow_counts_of(plain: Mapping[str, Any]) -> FlowCounts:
    """What `dataclasses.asdict` made of counts, and JSON of that, as counts again."""
    delay = plain["delay"]
    if delay is not None:
        delay = SoftwareDelay(**{**delay, "classes": tuple(DelayClass(**one) for one in delay["classes"])})
    by_size = {int(size): frames for size, frames in plain["by_size"].items()}
    return FlowCounts(**{**plain, "by_size": by_size, "delay": delay})


def delay_of(of_group: Mapping[str, Any], version: str, *, by_software: bool) -> SoftwareDelay:
    """From the statistics of a group as the client has them (`get_stats()["latency"][group]`)."""
    times = of_group.get("latency", {})
    classes = tuple(
        DelayClass(start, _end_of(start), int(frames))
        for start, frames in sorted(times.get("histogram", {}).items())
        if frames
    )
    any_arrived = bool(classes)
    largest_us = _time(times, "total_max")
    if not classes or (largest_us is not None and largest_us < classes[-1].from_us):
        largest_us = None  # it leaves out the first frames of a stream, and one of them took longer
    return SoftwareDelay(
        measured_by=f"TRex {version}{', in software' if by_software else ''}",
        frames=sum(one.frames for one in classes),
        smallest_us=_time(times, "total_min") if any_arrived else None,
        smoothed_mean_us=_time(times, "average") if any_arrived else None,
        largest_us=largest_us,
        jitter_us=_time(times, "jitter") if any_arrived else None,
        classes=classes,
    )


def _end_of(start_us: int) -> int:
    """Where a class ends: all from 10 µs on have one digit that counts (10, 20, … 90, 100, 200, …)."""
    return start_us + 10 ** (len(str(start_us)) - 1) if start_us else 10


def _time(times: Mapping[str, Any], name: str) -> float | None:
    value = times.get(name)
    return float(value) if isinstance(value, int | float) else None
