"""The fastest built-in source, inside the kernel: XDP live frames, filled by a BPF program."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import ClassVar, Self

from pydantic import BaseModel, Field

from netbench.generators.base import Generator, SourcePreference
from netbench.generators.worker_source import WorkerSource, no_netbench
from netbench.hosts.base import Host, kernel_of
from netbench.linux.requirements import ON_VETH, Feature, Probes
from netbench.model.frame_size import FCS_BYTES
from netbench.model.tester import Identity
from netbench.model.traffic import Stamps, Traffic

# A page, minus the headroom (256 bytes), the kernel's data before the frame (112: struct xdp_page_head in
# net/bpf/test_run.c) and after it (320: struct skb_shared_info); plus the FCS, which a live frame does not have.
_LARGEST_FRAME = 4096 - 256 - 112 - 320 + FCS_BYTES
_LIVE_FRAMES = "live-frames", "the generator xdp", ON_VETH, "CONFIG_BPF_SYSCALL", "", Probes.live_frames


class XdpOptions(BaseModel, extra="forbid"):
    """Options of the sources."""

    realtime: int = Field(default=0, ge=0, le=98)
    """SCHED_FIFO priority; 0: SCHED_OTHER, nice −20 on a dedicated CPU."""


class Xdp(Generator):
    """A BPF program that fills XDP live frames: millions of frames/s, paced or not (Linux 6.3; links by NAPI, NICs)."""

    Options = XdpOptions
    sends_mixes: ClassVar[bool] = True
    sends_packets: ClassVar[bool] = True
    auto_source = SourcePreference(rank=1, above_fps=200_000)  # slower kinds keep their pace below, even on a busy CPU
    may_need = (Feature(*_LIVE_FRAMES, optional=True, otherwise="or use the generator afpacket, as auto does"),)

    def __init__(self, options: XdpOptions | None = None, *, attach: bool = True) -> None:
        """`attach` is passed on to its sources."""
        self._options, self._attach = options or XdpOptions(), attach

    @classmethod
    def for_auto(cls, realtime: int) -> Self:
        """Return the generator that `auto` uses: it attaches no program, because the user did not choose one."""
        return cls(XdpOptions(realtime=realtime), attach=False)

    @property
    def largest_frame(self) -> int:
        return _LARGEST_FRAME

    def unsupported_reason(self, host: Host) -> str:
        return no_netbench(host)

    def source(self) -> "XdpSource":
        return XdpSource(attach=self._attach, realtime=self._options.realtime)


class XdpSource(WorkerSource):
    """A source that paces any rate: frame i is due at start + i/fps, to the nanosecond, and stamped when sent."""

    def __init__(self, *, attach: bool = True, realtime: int = 0) -> None:
        """`attach` attaches a program that passes all frames on, to a NIC whose driver accepts frames only then."""
        self._kernel = "the kernel of its host"
        super().__init__("xdp", "netbench.generators.xdp.xdp_worker", str(int(attach)), realtime=realtime)

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Open as every worker source; MissingError when the kernel or the interface lacks a required feature."""
        self._kernel = kernel_of(host)
        super().open(host, interface, cpus)

    @property
    def start_ahead_ns(self) -> int:
        # The kernel takes up to 15 ms before its first run of a live-frame program: it waits for all CPUs (RCU).
        return 20_000_000

    def stamps(self, traffic: Traffic) -> Stamps:
        return Stamps(first_sequence=0)

    def identity(self) -> Identity:
        program = {"program": f"source.bpf.o of netbench {version('netbench')}"}
        return Identity("xdp", self._kernel, program, 1)
