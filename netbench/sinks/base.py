"""The seam between a trial and what receives its frames."""

import resource
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from pydantic import BaseModel

from netbench.hosts.base import Host
from netbench.linux.needs import Need
from netbench.model.paths import StreamPath
from netbench.model.profile import NoOptions
from netbench.model.received import Received
from netbench.model.tester import Identity
from netbench.model.traffic import Sent, Stamps, Traffic


@dataclass(frozen=True, slots=True)
class Incoming:
    """What one sink is to receive in one trial, as far as that is known before it is sent.

    A frame stamped before `from_ns` (CLOCK_REALTIME of the source) is late from an earlier trial. A sink that writes
    frames down keeps `snap_length` bytes of each, in files called `record` with a suffix; unless `keep`, nobody needs
    them once the frames are counted. `sinks` is how many are at work in the trial, and share the memory for buffers.
    `tcpdump_fps` is what so many tcpdumps held each when the testbed was tested, in frames/s; None: nobody knows.
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


class Sink(Protocol):
    """One sink on one NIC, kept ready across trials.

    Order of calls: commands() and writes() at any time; open() once; then arm(), learn() where bridges of others may be
    on the way, armed(), stop(), received() for each trial; close() at the end. What goes wrong with it in a trial is
    said in `Received`; TestbedError is for a host that is gone. Whoever derives from this class need only say what is
    not as usual.
    """

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        """What a trial would start on the sink's host, as commands, for `--dry-run`; nothing is touched."""
        return []

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Name the NIC to receive on, and the CPUs to do it with (empty: any)."""

    def identity(self) -> Identity:
        """What it really is, as `Source.identity` has it of a source."""
        return Identity()

    def remarks(self) -> list[str]:
        """What a reader of the results must know of this sink, known once it is open; mostly nothing."""
        return []

    def writes(self, incoming: Incoming) -> int:
        """How many bytes it will write to this machine's disk in such a trial, as far as that is known."""
        return 0

    def arm(self, incoming: Incoming) -> None:
        """Begin to receive; returns at once."""

    def learn(self, mac: str) -> None:
        """Send a learning frame (RFC 2544, section 23) to this address out of its NIC, where it can send at all."""
        return

    def armed(self, timeout_s: float) -> bool:
        """Return True once it receives, False when it does not: nothing must be sent then."""
        return True

    def stop(self, limit_s: float) -> None:
        """Stop receiving once all that has arrived is safe, which may take `limit_s`; nothing more is expected."""

    def processes(self) -> Sequence[int]:
        """The ids of the single-threaded processes of this machine that receive now; none of other machines."""
        return ()

    def received(self, sent: Sent) -> Received:
        """What there is of the frames that were sent, once it has stopped; to be asked once."""

    def rest(self) -> None:
        """Have nothing at work for the next trial, in which another sink receives on this NIC."""
        return

    def close(self) -> None:
        """End it; harmless when called twice or before open()."""
        return


class SinkKind(Protocol):
    """A kind of sink. One object serves a whole campaign, so that sinks that work as one know of each other.

    What sends as well is a generator in the same object: where a profile names one kind for both, there is one object.
    """

    Options: ClassVar[type[BaseModel]] = NoOptions  # how the profile describes this kind of sink
    needs: ClassVar[frozenset[str]] = frozenset()  # what this machine must have for it, as `netbench doctor` calls it
    counts_mixes: ClassVar[bool] = False  # whether it knows frame n by the size that it has in a mix, and counts each
    may_need: ClassVar[tuple[Need, ...]] = ()  # those that are its own: how they are looked for, and added
    counts_own_only: ClassVar[bool] = False  # whether it knows frames of the generator of the same kind alone
    takes_cpu: ClassVar[bool] = True  # whether a process or thread of its own receives, on the sink's CPUs
    program: ClassVar[str] = ""  # what each sink runs, as the kernel names the process; empty: nothing to be watched

    def __init__(self, options: BaseModel) -> None:
        """`options` are of the class Options."""
        return

    def unfit(self, host: Host) -> str:
        """Why it cannot receive on this host, as a phrase; empty when it can. Nothing is touched."""
        return ""

    def sink(self) -> Sink:
        """A sink, not open yet."""


def shortage(sizes: Mapping[Path, int]) -> str:
    """What is missing for files of these sizes, in bytes, that all go to one directory; empty when there is room.

    Known beforehand, it costs one trial: a full disk would cost more.
    """
    if not sizes:
        return ""
    wanted, largest = sum(sizes.values()), max(sizes.values())
    directory = next(iter(sizes)).parent
    free = shutil.disk_usage(directory).free
    if wanted > free:
        return (
            f"the captures of this trial take {wanted:,} bytes, and {directory} has {free:,} left; free some, write "
            "elsewhere with -o, or keep none (keep_captures: none)"
        )
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most != resource.RLIM_INFINITY and largest > most:
        return (
            f"a capture of this trial takes {largest:,} bytes, and no file may have more than {most:,} here "
            "(ulimit -f); raise that, or keep none (keep_captures: none)"
        )
    return ""
