"""The best available source for each host and load: pktgen or AF_PACKET sockets, and live frames for high loads."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel, Field

from netbench.errors import MissingError, TestbedError
from netbench.generators.afpacket.afpacket import AfPacket, AfPacketOptions
from netbench.generators.base import Generator, Source
from netbench.generators.pktgen.parameters import PktGenOptions
from netbench.generators.pktgen.pktgen import PktGen
from netbench.generators.xdp.xdp import Xdp, XdpOptions
from netbench.hosts.base import Host
from netbench.model.frame_mix import FrameMix, FrameSize, largest_bytes
from netbench.model.tester import Identity
from netbench.model.traffic import Sent, Stamps, Traffic

# Up to this rate, pktgen and afpacket keep their pace even on a CPU with other work.
_HIGH_FPS = 200_000


class AutoGeneratorOptions(BaseModel, extra="forbid"):
    """With `steady`, the source of the highest loads sends all loads: a search has one source throughout."""

    steady: bool = False
    """Use the source of the highest loads for all loads. Searches set it."""
    realtime: int = Field(default=0, ge=0, le=98)
    """SCHED_FIFO priority of afpacket and xdp; 0: SCHED_OTHER."""


class AutoGenerator(Generator):
    """The kernel's pktgen where it works, else afpacket; above 200,000 frames/s xdp, where the link takes it."""

    Options: ClassVar[type[BaseModel]] = AutoGeneratorOptions
    sends_mixes: ClassVar[bool] = True  # afpacket and xdp do

    def __init__(self, options: AutoGeneratorOptions | None = None) -> None:
        options = options or AutoGeneratorOptions()
        self._high_fps = 0 if options.steady else _HIGH_FPS
        self._pktgen = PktGen(PktGenOptions())
        self._afpacket = AfPacket(AfPacketOptions(realtime=options.realtime))
        self._xdp = Xdp(XdpOptions(realtime=options.realtime), attach=False)  # the user chose no program on a NIC

    def unfit(self, host: Host) -> str:
        no_pktgen, no_afpacket = self._pktgen.unfit(host), self._afpacket.unfit(host)
        return f"{no_pktgen}, and {no_afpacket}" if no_pktgen and no_afpacket else ""

    def source(self) -> "AutoSource":
        return AutoSource(self._pktgen, self._afpacket, self._xdp, self._high_fps)


class AutoSource(Source):
    """Two sources, chosen by the load of each trial: xdp sends high loads, where it works.

    Where the other source is pktgen, which sends no mixes, afpacket sends the mixes. It is opened for the first mix.
    """

    def __init__(self, pktgen: PktGen, afpacket: AfPacket, xdp: Xdp, high_fps: int) -> None:
        self._pktgen, self._afpacket, self._xdp = pktgen, afpacket, xdp
        self._high_fps = high_fps
        self._usual: Source | None = None
        self._fast: Source | None = None
        self._mixing: Source | None = None
        self._is_mixing = False  # whether `_mixing` is open
        self._sending: Source | None = None
        self._why: list[str] = []

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        """Return the commands of all sources, because open() chooses between them."""
        return [
            "# where pktgen works:",
            *self._pktgen.source().commands(interface, cpus),
            "# elsewhere:",
            *self._afpacket.source().commands(interface, cpus),
            f"# for {self._high}, where the link takes frames from XDP:",
            *self._xdp.source().commands(interface, cpus),
        ]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Open pktgen, or afpacket where pktgen fails, and xdp where it works; MissingError where none works."""
        self.close()
        where = f"{interface} of host {host.name}"
        self._where = host, interface, cpus
        self._usual, no_pktgen = _try(self._pktgen, host, interface, cpus)
        self._mixing, self._is_mixing = self._afpacket.source(), False
        if self._usual is None:
            if no_afpacket := self._afpacket.unfit(host):
                raise MissingError(f"nothing can send from {where}: {no_pktgen}, and {no_afpacket}")
            self._usual = self._mixing
            self._usual.open(host, interface, cpus)
            self._is_mixing = True
            self._why = [f"afpacket sends from {where}: {no_pktgen}"]
        self._fast, no_xdp = _try(self._xdp, host, interface, cpus)
        usual = self._usual.identity().kind
        if self._fast is None:
            self._why.append(f"{usual} sends high loads from {where} too: {no_xdp}")
        elif self._high_fps:
            self._why.append(
                f"xdp sends `max` and {self._high} from {where}, {usual} the others: name one of "
                "them as the generator, or have auto be `steady`, where a curve is to have one source throughout"
            )

    def identity(self) -> Identity:
        if self._sending:
            return self._sending.identity()
        if self._usual is None:
            return Identity("pktgen, or afpacket where it does not work; xdp for high loads where that works")
        usual = self._usual.identity()
        return replace(usual, kind=f"{usual.kind}+{self._fast.identity().kind}") if self._fast else usual

    def remarks(self) -> list[str]:
        """Return why pktgen is not used, which source sends which loads, and the remarks of the opened source."""
        return self._why + self._opened.remarks()

    def nearest_fps(self, fps: float, frame_size: FrameSize) -> float:
        return self._source_for(fps, frame_size).nearest_fps(fps, frame_size)

    def stamps(self, traffic: Traffic) -> Stamps:
        return self._source_for(traffic.fps, traffic.frame_size).stamps(traffic)

    def prepare(self, traffic: Traffic) -> None:
        """Prepare the source for this load; MissingError for a mix that no source can send from this interface."""
        self._sending = self._source_for(traffic.fps, traffic.frame_size)
        if self._sending is self._mixing and not self._is_mixing:
            host, interface, cpus = self._where
            if unfit := self._afpacket.unfit(host):
                raise MissingError(f"pktgen cannot send the mix {traffic.frame_size} from {interface}, and {unfit}")
            self._sending.open(host, interface, cpus)
            self._is_mixing = True
        self._sending.prepare(traffic)

    @property
    def start_ahead_ns(self) -> int:
        return self._prepared.start_ahead_ns

    def start(self, at_monotonic_ns: int) -> None:
        self._prepared.start(at_monotonic_ns)

    def wait(self, timeout_s: float) -> Sent:
        return self._prepared.wait(timeout_s)

    def close(self) -> None:
        for source in (self._usual, self._fast, self._mixing):
            if source is not None:
                source.close()
        self._usual = self._fast = self._mixing = self._sending = None
        self._is_mixing = False
        self._why = []

    def _source_for(self, fps: float | None, frame_size: FrameSize) -> Source:
        usual = self._opened
        if isinstance(frame_size, FrameMix) and self._mixing is not None:
            usual = self._mixing
        is_fast = (fps is None or fps > self._high_fps) and largest_bytes(frame_size) <= self._xdp.largest_frame
        return self._fast if self._fast and is_fast else usual

    @property
    def _high(self) -> str:
        return f"loads above {self._high_fps:,} frames/s" if self._high_fps else "all loads"

    @property
    def _opened(self) -> Source:
        if self._usual is None:
            raise TestbedError("an auto source is used before open() or after close(); open it first")
        return self._usual

    @property
    def _prepared(self) -> Source:
        return self._sending or self._opened


def _try(kind: Generator, host: Host, interface: str, cpus: Sequence[int]) -> tuple[Source | None, str]:
    """Return an open source of this kind, or None and the reason for the failure."""
    if unfit := kind.unfit(host):
        return None, unfit
    source = kind.source()
    try:
        source.open(host, interface, cpus)
    except (TestbedError, MissingError) as error:
        return None, str(error)
    return source, ""
