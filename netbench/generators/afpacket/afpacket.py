"""The built-in source: frames through an AF_PACKET socket, from a separate process."""

from importlib.metadata import version
from typing import ClassVar

from pydantic import BaseModel, Field

from netbench.generators.base import Generator, SourcePreference
from netbench.generators.worker_source import WorkerSource, no_netbench
from netbench.hosts.base import Host
from netbench.linux.requirements import ON_VETH, Feature, Probes
from netbench.model.tester import Identity
from netbench.model.traffic import Stamps, Traffic


class AfPacketOptions(BaseModel, extra="forbid"):
    """Options of the sources."""

    threads: int = Field(default=1, ge=1, le=64)  # of one worker; more than one use more CPUs
    """Threads of each source."""
    realtime: int = Field(default=0, ge=0, le=98)  # priority in SCHED_FIFO; 0: another class
    """SCHED_FIFO priority; 0: SCHED_OTHER."""


class AfPacket(Generator):
    """AF_PACKET sockets, in a separate process: needs only Linux and the right to open them."""

    Options = AfPacketOptions
    sends_mixes: ClassVar[bool] = True
    sends_packets: ClassVar[bool] = True
    auto_source = SourcePreference(rank=1)
    may_need = (Feature("packet", "the generator afpacket", ON_VETH, "CONFIG_PACKET", "af_packet", Probes.packet),)

    def __init__(self, options: AfPacketOptions) -> None:
        self._options = options

    def unsupported_reason(self, host: Host) -> str:
        return no_netbench(host)

    def source(self) -> "AfPacketSource":
        return AfPacketSource(self._options)


class AfPacketSource(WorkerSource):
    """A source that paces any rate: frame i is due at start + i/fps, to the nanosecond, and stamped when due."""

    Options = AfPacketOptions

    def __init__(self, options: AfPacketOptions | None = None) -> None:
        options = options or AfPacketOptions()
        self._threads = options.threads
        module = "netbench.generators.afpacket.afpacket_worker"
        super().__init__("afpacket", module, str(self._threads), realtime=options.realtime)

    def stamps(self, traffic: Traffic) -> Stamps:
        return Stamps(first_sequence=0)

    def identity(self) -> Identity:
        return Identity("afpacket", f"netbench {version('netbench')}", {}, self._threads)
