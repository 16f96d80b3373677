"""The interface between a trial and its packet sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from pydantic import BaseModel

from netbench.hosts.base import Host
from netbench.linux.requirements import Requirement
from netbench.model.frame_size import FrameSize
from netbench.model.packet import AnyValue, FieldRef, FieldValue, Packet
from netbench.model.profile import NoOptions
from netbench.model.tester import Identity
from netbench.model.traffic import Sent, Stamps, Traffic


class Source(Protocol):
    """One source on one NIC, kept ready across trials.

    Order of calls: commands() at any time; open() once; then nearest_fps(), stamps(), prepare(), start(), wait()
    for each trial; close() at the end.
    A source that dies raises TestbedError from prepare(), or reports it in `Sent.error`. A subclass overrides only
    the methods that differ from these defaults.
    """

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        """Return the commands of open(), for `--dry-run`; nothing is touched."""
        return []

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Bring the source up on `interface` of `host`, pinned to `cpus` (empty: not pinned)."""

    def identity(self) -> Identity:
        """Return the identity of the source in the last trial, for the results; before one, as far as it is known.

        No machine is queried. Omitted fields have their defaults: kind and options as in the profile, the version of
        the kind's package, the CPUs passed to open().
        """
        return Identity()

    def remarks(self) -> list[str]:
        """Return notes on this source for readers of the results; usually none. Available once it is open."""
        return []

    def nearest_fps(self, fps: float, frame_size: FrameSize) -> float:
        """Return the nearest rate to `fps` that this source can pace, in frames/s: the new intended load."""
        return fps

    def own_fields(self) -> Mapping[FieldRef, FieldValue | AnyValue]:
        """Return the fields that this source sets itself where a packet's description has none; usually none.

        A source with own fields also computes checksums over the whole payload itself: sinks do not compare them.
        """
        return {}

    def stamps(self, traffic: Traffic) -> Stamps:
        """Return how this source stamps the frames of `traffic`."""
        return Stamps()

    def prepare(self, traffic: Traffic) -> None:
        """Build the frames of the next trial; nothing is sent yet. Returns when the source is ready."""

    @property
    def start_ahead_ns(self) -> int:
        """The lead time of start() in ns, so that all sources of a trial are waiting at the start time."""
        return 5_000_000

    def start(self, at_monotonic_ns: int) -> None:
        """Start sending at `at_monotonic_ns` (CLOCK_MONOTONIC of the source's host); returns at once."""

    def wait(self, timeout_s: float) -> Sent:
        """Wait for the end of sending and return the sent frames; a source that exceeds the time limit is stopped."""

    def close(self) -> None:
        """End the source; harmless when called twice or before open()."""
        return


@dataclass(frozen=True, slots=True)
class SourcePreference:
    """When the generator `auto` takes a kind: of all that work, the one with the highest rank.

    A kind with `above_fps` sends only loads above this rate, in frames/s, and loads without a rate.
    """

    rank: int
    above_fps: int = 0


class Generator(Protocol):
    """A kind of source. One object serves a whole campaign, so that sources that start together can be coordinated."""

    Options: ClassVar[type[BaseModel]] = NoOptions  # the options of this kind in the profile
    sends_mixes: ClassVar[bool] = False  # whether it can send a mix of frame sizes
    sends_packets: ClassVar[bool] = False  # whether it can send any described packet
    auto_source: ClassVar[SourcePreference | None] = None  # when `auto` takes this kind; None: never
    may_need: ClassVar[tuple[Requirement, ...]] = ()  # requirements a machine may lack: how to detect and add them

    def __init__(self, options: BaseModel) -> None:
        """`options` are of the class Options."""
        return

    @classmethod
    def for_auto(cls, realtime: int) -> Self:
        """Return the generator that `auto` uses; `realtime` is its option of that name, if this kind has it."""
        options = {"realtime": realtime} if "realtime" in cls.Options.model_fields else {}
        return cls(cls.Options.model_validate(options))

    @property
    def largest_frame(self) -> int | None:
        """The largest frame in bytes, with FCS; None: limited only by the link."""
        return None

    def unsupported_reason(self, host: Host) -> str:
        """Return why it cannot send from this host, as a phrase; empty when it can. Nothing is touched."""
        return ""

    def unsupported_part(self, packet: Packet) -> str:
        """Return which layer or field of a packet it cannot send, and why, as a phrase; empty when it can."""
        return "" if self.sends_packets else "it sends plain frames only"

    @classmethod
    def leaves_checksums(cls, packet: Packet) -> bool:
        """Return whether NICs that can compute checksums have to compute those of this packet."""
        return False

    def source(self) -> Source:
        """Return a source that is not open yet."""
