"""The seam between a trial and what catches its frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from netbench.hosts.base import Host


class Listener(Protocol):
    """Who wants a capture while it is being made, through a pipe, instead of a file of it."""

    def begin(self, pipe: int, cpus: Sequence[int]) -> None:
        """Read from the descriptor `pipe`, on `cpus` (empty: any), until its end, and close it; returns at once."""

    def await_flush(self, timeout_s: float) -> bool:
        """Return True once a flush frame has been read, and with it all captured before; False when none comes."""


@dataclass(frozen=True, slots=True)
class Catch:
    """What one sink is to catch in one trial; `fps` None when the rate is not known beforehand.

    The capture goes to `listener` where the sink can have it read while it is made, else to the file `capture`. `sinks`
    is how many share the memory for buffers.
    """

    src_ip: str
    dst_ip: str
    fps: float | None
    snap_length: int
    capture: Path
    listener: Listener | None = None
    sinks: int = 1


@dataclass(frozen=True, slots=True)
class Arrived:
    """What a sink says of itself. Frames it dropped are the tester's own loss; None is unknown.

    `filter_frames` are those its filter let through, flush frames included; `flush_frames` those the
    sink itself sent to push the last captured frames out of the kernel. `disk_full` says that the disk
    was full when the sink stopped; whether the capture suffered shows when it is read. `shortage` tells what the
    disk was short of beforehand: nothing was begun. `heard`: the listener had it all, and there is no file.
    """

    capture: Path
    captured_frames: int | None
    filter_frames: int | None
    dropped_frames: int | None
    flush_frames: int
    flushed: bool
    error: str = ""
    disk_full: bool = False
    shortage: str = ""
    heard: bool = False


class Sink(Protocol):
    """One sink on one NIC.

    Order of calls: open() once; then arm(), armed(), flush(), stop() for each trial; close() at the end.
    """

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Name the NIC to listen on and the CPUs to do it with (empty: any)."""

    def arm(self, catch: Catch) -> None:
        """Begin to listen; returns at once."""

    def armed(self, timeout_s: float) -> bool:
        """Return True once it listens, False when it does not: nothing must be sent then, stop() tells why."""

    def flush(self, timeout_s: float) -> None:
        """Push what has arrived so far into the capture; called when no more frames are expected."""

    def stop(self) -> Arrived:
        """Stop listening; what it says of itself. A sink that died says so in `error`."""

    def close(self) -> None:
        """End it; harmless when called twice."""
