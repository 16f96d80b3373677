"""The seam between a trial and what sends its frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pydantic import BaseModel

from netbench.hosts.base import Host


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one source is to send in one trial.

    Addresses are text (`02:…`, `198.18.…`); `frame_size` is in bytes with FCS. `fps` None sends as fast
    as the generator can for `duration_s` seconds; otherwise exactly round(fps × duration_s) frames are
    paced evenly. `flows` UDP port pairs are drawn pseudo-randomly from `seed` and used in turn
    (RFC 4814, section 4).
    """

    stream: str
    src_mac: str
    dst_mac: str
    src_ip: str
    dst_ip: str
    frame_size: int
    fps: float | None
    duration_s: float
    flows: int
    seed: int

    @property
    def frames(self) -> int | None:
        """How many frames are intended; None for a source that sends as fast as it can."""
        return None if self.fps is None else max(1, round(self.fps * self.duration_s))


@dataclass(frozen=True, slots=True)
class Sent:
    """What a source really sent.

    `duration_s` runs from when the first frame is due to the end of the last frame's slot (1/fps after its due time,
    or the return of the last send when that is later, or when unpaced). Times are CLOCK_REALTIME in ns.
    """

    frames: int
    errors: int
    duration_s: float
    first_ns: int | None
    last_ns: int | None
    max_burst_frames: int
    max_lateness_s: float
    error: str = ""  # why it stopped early, empty when it did not
    first_sequence: int = 0  # the number its first frame bears
    stamped: bool = True  # whether each frame bears the time when it was built; else a time of 0
    stamped_early: bool = False  # a frame's stamp is made when the one before it was handed over, not when it is due
    numbered: bool = True  # whether each frame bears the next number; others can be counted, but not told apart


@dataclass(frozen=True, slots=True)
class Stamps:
    """How a source stamps its frames, as `Sent` has it: known before they are sent."""

    stamped: bool = True
    stamped_early: bool = False


class Source(Protocol):
    """One source on one NIC, kept ready across trials.

    Order of calls: commands() at any time; open() once; then nearest_fps(), stamps(), prepare(), start(), wait()
    for each trial; close() at the end.
    A source that dies raises TestbedError from prepare(), or says so in `Sent.error`.
    """

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        """What open() would do, as commands, for `--dry-run`; nothing is touched."""

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Bring the source up on `interface` of `host`, pinned to `cpus` (empty: not pinned)."""

    @property
    def kind(self) -> str:
        """What really sends, once it is open: the name of a generator that chooses nothing."""

    def remarks(self) -> list[str]:
        """What a reader of the results must know of this source, known once it is open; mostly nothing."""

    def nearest_fps(self, fps: float, frame_size: int) -> float:
        """The rate this source can pace that is nearest to `fps` frames/s: what is intended of it instead."""

    def stamps(self, traffic: Traffic) -> Stamps:
        """How it will stamp these frames."""

    def prepare(self, traffic: Traffic) -> None:
        """Build the frames of the next trial; nothing is sent yet. Returns when the source is ready."""

    def start(self, at_monotonic_ns: int) -> None:
        """Send from `at_monotonic_ns` (CLOCK_MONOTONIC of the source's host) on; returns at once."""

    def wait(self, timeout_s: float) -> Sent:
        """What was sent, once sending has ended; a source that does not end in time is stopped."""

    def close(self) -> None:
        """End the source; harmless when called twice or before open()."""


class Generator(Protocol):
    """A kind of source. One object serves a whole campaign, so that sources that start as one know of each other."""

    Options: ClassVar[type[BaseModel]]  # how the profile describes this kind of generator

    def unfit(self, host: Host) -> str:
        """Why it cannot send from this host, as a phrase; empty when it can. Nothing is touched."""

    def source(self) -> Source:
        """A source, not open yet."""
