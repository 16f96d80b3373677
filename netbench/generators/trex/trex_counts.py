"""The packet groups (`pg_id`) by which a TRex server counts frames of a port, their counts, and the frames' delay.

The meaning of the delay figures is from src/time_histogram.cpp of TRex. TRex reads the time when its software sends a
frame, and again when its software polls the receive queue. The measured delay includes the waits for both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netbench.model.distributions import DelayClass, SoftwareDelay

# Per port: a group for each size of a mix (at most 1,024, netbench/model/frame_size.py), and one for delays.
_GROUPS_PER_PORT = 2048


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
        return (self.port + 1) * _GROUPS_PER_PORT

    def of_size(self, size: int) -> int:
        """Return the group of all other frames of a size."""
        return self.of_delay + 1 + self.sizes.index(size)

    @property
    def all(self) -> list[int]:
        """The numbers of all groups."""
        return [*([self.of_delay] if self.delay_fps else []), *map(self.of_size, self.sizes)]


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """Frames of the stream that arrived at the sink's port, by size (bytes with FCS), as the server counts.

    `missed` is the number of frames, of any stream, that the server could not receive there: the tester's own loss.
    """

    by_size: Mapping[int, int]
    missed: int
    delay: SoftwareDelay | None = None

    @property
    def frames(self) -> int:
        """The frames of all sizes."""
        return sum(self.by_size.values())


def delay_of(of_group: Mapping[str, Any], version: str, *, by_software: bool) -> SoftwareDelay:
    """Return the delay from the client's statistics of a group (`get_stats()["latency"][group]`)."""
    times = of_group.get("latency", {})
    classes = tuple(
        DelayClass(start, _end_of(start), int(frames))
        for start, frames in sorted(times.get("histogram", {}).items())
        if frames
    )
    smallest, mean, largest, jitter = (
        float(times[name]) if classes and isinstance(times.get(name), int | float) else None
        for name in ("total_min", "average", "total_max", "jitter")
    )
    if largest is not None and largest < classes[-1].from_us:
        largest = None  # it omits the first frames of a stream, one of which took longer
    measured_by = f"TRex {version}{', in software' if by_software else ''}"
    frames = sum(delay_class.frames for delay_class in classes)
    return SoftwareDelay(measured_by, frames, smallest, mean, largest, jitter, classes)


def _end_of(start_us: int) -> int:
    """Return the end of a class in µs: from 10 µs on, starts have one significant digit (10, 20, … 90, 100, 200, …)."""
    return start_us + 10 ** (len(str(start_us)) - 1) if start_us else 10
