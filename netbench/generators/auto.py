"""The best source each host can have: pktgen where it works, else AF_PACKET sockets."""

from collections.abc import Sequence

from pydantic import BaseModel

from netbench.errors import MissingError, TestbedError
from netbench.generators.afpacket.afpacket import AfPacket, AfPacketOptions
from netbench.generators.base import Generator, Source
from netbench.generators.pktgen.parameters import PktGenOptions
from netbench.generators.pktgen.pktgen import PktGen
from netbench.hosts.base import Host
from netbench.model.tester import Identity
from netbench.model.traffic import Sent, Stamps, Traffic


class Auto(Generator):
    """The kernel's pktgen where it works, else afpacket; chosen anew for every source, when it is opened."""

    def __init__(self, options: BaseModel | None = None) -> None:
        """There are none: whoever wants to choose more names the generator."""
        self._pktgen = PktGen(PktGenOptions())
        self._afpacket = AfPacket(AfPacketOptions())

    def unfit(self, host: Host) -> str:
        no_pktgen, no_afpacket = self._pktgen.unfit(host), self._afpacket.unfit(host)
        return f"{no_pktgen}, and {no_afpacket}" if no_pktgen and no_afpacket else ""

    def source(self) -> "AutoSource":
        return AutoSource(self._pktgen, self._afpacket)


class AutoSource(Source):
    """A source of the kind that works where it is opened; what it says of itself begins with why it was taken."""

    def __init__(self, pktgen: PktGen, afpacket: AfPacket) -> None:
        self._pktgen = pktgen
        self._afpacket = afpacket
        self._chosen: Source | None = None
        self._why = ""

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        """What open() would do with either, as it is chosen only then."""
        return [
            "# where pktgen works:",
            *self._pktgen.source().commands(interface, cpus),
            "# elsewhere:",
            *self._afpacket.source().commands(interface, cpus),
        ]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Bring up pktgen, or afpacket where pktgen does not work; MissingError when neither does."""
        self.close()
        no_pktgen = self._pktgen.unfit(host)
        if not no_pktgen:
            source = self._pktgen.source()
            try:
                source.open(host, interface, cpus)
            except (TestbedError, MissingError) as error:
                no_pktgen = str(error)
            else:
                self._chosen, self._why = source, ""
                return
        if no_afpacket := self._afpacket.unfit(host):
            raise MissingError(f"nothing can send from {interface} of host {host.name}: {no_pktgen}, and {no_afpacket}")
        fallback = self._afpacket.source()
        fallback.open(host, interface, cpus)
        self._chosen, self._why = fallback, f"afpacket sends from {interface} of host {host.name}: {no_pktgen}"

    def identity(self) -> Identity:
        return self._chosen.identity() if self._chosen else Identity("pktgen, or afpacket where it does not work")

    def remarks(self) -> list[str]:
        """Why it is not pktgen, where it is not, and what the source itself says."""
        return ([self._why] if self._why else []) + self._opened.remarks()

    def nearest_fps(self, fps: float, frame_size: int) -> float:
        return self._opened.nearest_fps(fps, frame_size)

    def stamps(self, traffic: Traffic) -> Stamps:
        return self._opened.stamps(traffic)

    def prepare(self, traffic: Traffic) -> None:
        self._opened.prepare(traffic)

    def start(self, at_monotonic_ns: int) -> None:
        self._opened.start(at_monotonic_ns)

    def wait(self, timeout_s: float) -> Sent:
        return self._opened.wait(timeout_s)

    def close(self) -> None:
        if self._chosen is not None:
            self._chosen.close()
            self._chosen = None

    @property
    def _opened(self) -> Source:
        if self._chosen is None:
            raise TestbedError("an auto source is used before open() or after close(); open it first")
        return self._chosen
