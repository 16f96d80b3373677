"""The packet groups (`pg_id`) by which a TRex server counts frames of a port, their counts, and the frames' delay.

The meaning of the delay figures is from src/time_histogram.cpp of TRex. TRex reads the time when its software sends a
frame, and again when its software polls the receive queue. The measured delay includes the waits for both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netbench.model.distributions import DelayClass, SoftwareDelay

# Per port: a group for each size of a mix (at most 1,024, netbench/model/frame_mix.py), and one for delays.
_A_PORT = 2048


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one port in a trial: one per frame size, and one for frames whose delay is measured, if any.

    `sizes` are in bytes with FCS, the smallest first; `delay_fps` frames/s, of `delay_size` bytes, measure delay.
    """

    port: int
    sizes: tuple[int, ...]
    delay_fps: float = 0.0
    delay_size: int = 0

    @property
    def of_delay(self) -> int:
        """The group of the frames whose delay is measured."""
        return (self.port + 1) * _A_PORT

    def of_size(self, size: int) -> int:
        """Return the group of all other frames of a size."""
        return self.of_delay + 1 + self.sizes.index(size)

    @property
    def all(self) -> list[int]:
        """The numbers of all groups."""
        return [*([self.of_delay] if self.delay_fps else []), *map(self.of_size, self.sizes)]


@dataclass(frozen=True, slots=True)
class GroupCount:
    """Frames of a group so far, by sending and receiving port; each `version` counts from 0."""

    sent: Mapping[int, int]
    received: Mapping[int, int]
    version: int | None

    def sent_since(self, before: "GroupCount", port: int) -> int:
        """Return the number of frames sent from a port since `before`."""
        return self.sent.get(port, 0) - (before.sent.get(port, 0) if self.version == before.version else 0)

    def received_since(self, before: "GroupCount", port: int) -> int:
        """Return the number of frames that arrived at a port since `before`."""
        return self.received.get(port, 0) - (before.received.get(port, 0) if self.version == before.version else 0)


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """Frames of the stream that arrived at the sink's port, also by size (bytes with FCS), as the server counts.

    `missed` is the number of frames, of any stream, that the server could not receive there: the tester's own loss.
    """

    frames: int
    by_size: Mapping[int, int]
    missed: int
    delay: SoftwareDelay | None = None


def flow_counts_of(plain: Mapping[str, Any]) -> FlowCounts:
    """Return the counts that `dataclasses.asdict` and JSON have converted to plain data."""
    delay = plain["delay"]
    if delay is not None:
        delay = SoftwareDelay(**{**delay, "classes": tuple(DelayClass(**fields) for fields in delay["classes"])})
    by_size = {int(size): frames for size, frames in plain["by_size"].items()}
    return FlowCounts(**{**plain, "by_size": by_size, "delay": delay})


def delay_of(of_group: Mapping[str, Any], version: str, *, by_software: bool) -> SoftwareDelay:
    """Return the delay from the client's statistics of a group (`get_stats()["latency"][group]`)."""
    times = of_group.get("latency", {})
    classes = tuple(
        DelayClass(start, _end_of(start), int(frames))
        for start, frames in sorted(times.get("histogram", {}).items())
        if frames
    )
    any_arrived = bool(classes)
    largest_us = _time(times, "total_max")
    if not classes or (largest_us is not None and largest_us < classes[-1].from_us):
        largest_us = None  # it omits the first frames of a stream, one of which took longer
    return SoftwareDelay(
        measured_by=f"TRex {version}{', in software' if by_software else ''}",
        frames=sum(delay_class.frames for delay_class in classes),
        smallest_us=_time(times, "total_min") if any_arrived else None,
        smoothed_mean_us=_time(times, "average") if any_arrived else None,
        largest_us=largest_us,
        jitter_us=_time(times, "jitter") if any_arrived else None,
        classes=classes,
    )


def _end_of(start_us: int) -> int:
    """Return the end of a class in µs: from 10 µs on, starts have one significant digit (10, 20, … 90, 100, 200, …)."""
    return start_us + 10 ** (len(str(start_us)) - 1) if start_us else 10


def _time(times: Mapping[str, Any], name: str) -> float | None:
    value = times.get(name)
    return float(value) if isinstance(value, int | float) else None
