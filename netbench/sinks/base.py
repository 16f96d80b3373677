"""The interface between a trial and the sinks that receive its frames."""

import resource
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from pydantic import BaseModel

from netbench.capture.capture_counts import ANY_NUMBER, STAMP_TOLERANCE_NS, Expected
from netbench.capture.packet_decoder import least_snap_length
from netbench.hosts.base import Host
from netbench.linux.requirements import Requirement
from netbench.model.frame_template import ExpectedHeaders
from netbench.model.paths import StreamPath
from netbench.model.profile import NoOptions
from netbench.model.received import Received
from netbench.model.tester import Identity
from netbench.model.traffic import Sent, Stamps, Traffic


@dataclass(frozen=True, slots=True)
class Incoming:
    """The frames that one sink will receive in one trial, as determined before they are sent.

    A frame stamped before `from_ns` (CLOCK_REALTIME of the source) is a late one of an earlier trial. A sink that
    writes frames to disk stores `snap_length` bytes of each, in files named `record` with a suffix. Unless `keep`,
    these are not needed once the frames are counted. `sinks` is the number of sinks in the trial, which share the
    memory for buffers. `tcpdump_fps` is the rate that each of so many tcpdumps captured in the self-test, in frames/s;
    None if unknown. `headers` are those of a described packet, None for the plain one.
    """

    path: StreamPath
    traffic: Traffic
    stamps: Stamps
    from_ns: int
    record: Path
    keep: bool = False
    snap_length: int = 64
    sinks: int = 1
    tcpdump_fps: float | None = None
    headers: ExpectedHeaders | None = None

    @property
    def stored_bytes(self) -> int:
        """The bytes of each frame that are captured: the snap length, or more where described headers need them."""
        return self.snap_length if self.headers is None else max(self.snap_length, least_snap_length(self.headers))

    @property
    def expected(self) -> Expected:
        """The criteria for the stream's frames, as determined before they are sent."""
        frames, first = self.traffic.frames, self.stamps.first_sequence
        if frames is None or first is None:
            frames, first = ANY_NUMBER, 0
        return Expected(
            stream=self.path.name,
            src_ip=self.traffic.src_ip,
            dst_ip=self.traffic.dst_ip,
            frame_size=self.traffic.frame_size,
            sent_frames=frames,
            first_sequence=first,
            sent_from_ns=self.from_ns + STAMP_TOLERANCE_NS,  # any earlier frame is of another trial
            stamped=self.stamps.stamped,
            stamped_early=self.stamps.stamped_early,
            headers=self.headers,
        )


LEARNING_BATCH = 250  # learning frames of one request to a sink's process: lines stay shorter than a pipe


def batched(frames: Sequence[bytes], most: int) -> Iterator[Sequence[bytes]]:
    """Yield frames in their order, at most so many at once."""
    return (frames[at : at + most] for at in range(0, len(frames), most))


class Sink(Protocol):
    """One sink on one NIC, kept ready across trials.

    Order of calls: commands() and writes() at any time; open() once; then arm(), prime_fdb() if foreign bridges may be
    on the path, armed(), stop(), received() for each trial; close() at the end. `Received` reports errors of the sink
    in a trial; TestbedError is for a host that is gone. A subclass overrides only the methods that differ from the
    default.
    """

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        """Return the commands that a trial would start on the sink's host, for `--dry-run`; nothing is touched."""
        return []

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Set the NIC to receive on, and the CPUs to use (empty: any)."""

    def identity(self) -> Identity:
        """Return the actual identity of the sink, as `Source.identity` for a source."""
        return Identity()

    def remarks(self) -> list[str]:
        """Return remarks about this sink for readers of the results, known once it is open; usually none."""
        return []

    def writes(self, incoming: Incoming) -> int:
        """Return how many bytes it will write to this machine's disk in such a trial; 0 if unknown."""
        return 0

    def arm(self, incoming: Incoming) -> None:
        """Begin to receive; returns at once."""

    def prime_fdb(self, frames: Sequence[bytes]) -> None:
        """Send learning frames (RFC 2544, section 23) out of its NIC, without FCS, if it can send at all.

        It pauses between them, so that no short queue overflows. All are sent once armed() returns True.
        """
        return

    def armed(self, timeout_s: float) -> bool:
        """Return True once it receives; False if it does not: then nothing must be sent."""
        return True

    def stop(self, limit_s: float) -> None:
        """Stop receiving once all arrived frames are safe, which may take `limit_s`; no more are expected."""

    def processes(self) -> Sequence[int]:
        """Return the ids of the single-threaded processes on this machine that receive now; none of other machines."""
        return ()

    def received(self, sent: Sent) -> Received:
        """Return the received frames of those sent; called once, after stop()."""

    def rest(self) -> None:
        """Stop all activity for the next trial, in which another sink receives on this NIC."""
        return

    def close(self) -> None:
        """End the sink; harmless if called twice or before open()."""
        return


@dataclass(frozen=True, slots=True)
class SinkPreference:
    """When the sink `auto` takes a kind: of all that can count a load, the one with the highest rank.

    All sinks of a trial together can be trusted with `trusted_fps` frames/s without a self-test; None: with any rate.
    """

    rank: int
    trusted_fps: int | None = None


class SinkKind(Protocol):
    """A kind of sink. One object serves a whole campaign, so that sinks that work as one share it.

    A kind that also sends is a generator in the same object: a profile that names one kind for both uses one object.
    """

    Options: ClassVar[type[BaseModel]] = NoOptions  # options of this kind of sink in the profile
    needs: ClassVar[frozenset[str]] = frozenset()  # requirements on this machine, by their names in `netbench doctor`
    counts_mixes: ClassVar[bool] = False  # whether it checks the size of frame n in a mix, and counts each size
    counts_packets: ClassVar[bool] = False  # whether it compares the headers of described packets
    may_need: ClassVar[tuple[Requirement, ...]] = ()  # its own requirements: how they are detected and installed
    counts_own_only: ClassVar[bool] = False  # whether it recognises only frames of the generator of the same kind
    auto_sink: ClassVar[SinkPreference | None] = None  # when `auto` takes this kind; None: never
    takes_cpu: ClassVar[bool] = True  # whether a separate process or thread receives, on the sink's CPUs
    program: ClassVar[str] = ""  # kernel name of the process that each sink runs; empty: none to observe

    def __init__(self, options: BaseModel) -> None:
        """`options` are of the class Options."""
        return

    def unsupported_reason(self, host: Host) -> str:
        """Return why it cannot receive on this host, as a phrase; empty if it can. Nothing is touched."""
        return ""

    def sink(self) -> Sink:
        """Return a sink, not open yet."""


def shortage(sizes: Mapping[Path, int]) -> str:
    """Return why files of these sizes, in bytes, do not fit into their common directory; empty if they do.

    If this is detected beforehand, only one trial is lost; a full disk would cost more.
    """
    if not sizes:
        return ""
    needed, largest = sum(sizes.values()), max(sizes.values())
    directory = next(iter(sizes)).parent
    free = shutil.disk_usage(directory).free
    if needed > free:
        return (
            f"the captures of this trial take {needed:,} bytes, and {directory} has {free:,} left; free some, write "
            "elsewhere with -o, or keep none (keep_captures: none)"
        )
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most != resource.RLIM_INFINITY and largest > most:
        return (
            f"a capture of this trial takes {largest:,} bytes, and no file may have more than {most:,} "
            "(ulimit -f); raise this limit, or keep none (keep_captures: none)"
        )
    return ""
