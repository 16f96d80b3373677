"""Generator `auto`: the best available kind for each host and load, by the preferences that the kinds declare."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel, Field

from netbench.config.plugins import GENERATORS, plugins
from netbench.errors import MissingError, TestbedError
from netbench.generators.base import Generator, Source
from netbench.hosts.base import Host
from netbench.model.frame_size import FrameSize
from netbench.model.tester import Identity
from netbench.model.traffic import Sent, Stamps, Traffic


class AutoGeneratorOptions(BaseModel, extra="forbid"):
    """With `steady`, the source of the highest loads sends all loads: a search has one source throughout."""

    steady: bool = False
    """Use the source of the highest loads for all loads. Searches set it."""
    realtime: int = Field(default=0, ge=0, le=98)
    """SCHED_FIFO priority, if the chosen source has this option; 0: another class."""


class AutoGenerator(Generator):
    """The kernel's pktgen where it works, else afpacket; above 200,000 frames/s xdp, where the link takes it."""

    Options: ClassVar[type[BaseModel]] = AutoGeneratorOptions
    sends_mixes: ClassVar[bool] = True  # afpacket and xdp do
    sends_packets: ClassVar[bool] = True  # afpacket and xdp do

    def __init__(self, options: AutoGeneratorOptions | None = None) -> None:
        options = options or AutoGeneratorOptions()
        self._steady = options.steady
        kinds: dict[str, type[Generator]] = {
            name: kind for name, kind in plugins(GENERATORS).items() if kind.auto_source
        }
        ranked = sorted(kinds, key=lambda name: _rank(kinds[name]), reverse=True)
        self._generators = {name: kinds[name].for_auto(options.realtime) for name in ranked}

    def unsupported_reason(self, host: Host) -> str:
        reasons = [kind.unsupported_reason(host) for kind in self._generators.values() if not _above_fps(kind)]
        return ", and ".join(reasons) if all(reasons) else ""

    def source(self) -> "AutoSource":
        return AutoSource(self._generators, steady=self._steady)


class AutoSource(Source):
    """Sources of several kinds, chosen by the load of each trial.

    `usual` is the preferred source that works and sends all loads; `fast` one that sends high loads only. Where the
    usual source sends no mixes or no described packets, another one sends them. It is opened for the first of them.
    """

    def __init__(self, generators: Mapping[str, Generator], *, steady: bool) -> None:
        """`generators` are in the order of preference; with `steady`, a fast source sends all loads."""
        self._kinds, self._steady = generators, steady
        self._general = [name for name, kind in generators.items() if not _above_fps(kind)]
        self._special = [name for name, kind in generators.items() if _above_fps(kind)]
        self._opened: dict[str, Source] = {}
        self._usual = self._fast = ""
        self._prepared: Source | None = None
        self._reasons: list[str] = []

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        """Return the commands of all sources, because open() chooses between them."""
        lines: list[str] = []
        for name in (*self._general, *self._special):
            if name in self._special:
                lines.append(f"# for {self._high_loads(name)}, where {name} works:")
            else:
                lines.append("# elsewhere:" if lines else f"# where {name} works:")
            lines += self._kinds[name].source().commands(interface, cpus)
        return lines

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Open the usual source, and a fast one where it works; MissingError where no source works."""
        self.close()
        self._location = host, interface, cpus
        where = f"{interface} of host {host.name}"
        self._usual, failures = self._open_first(self._general)
        if not self._usual:
            raise type(failures[-1])(f"nothing can send from {where}: {', and '.join(map(str, failures))}")
        usual = self._opened[self._usual].identity().kind
        self._reasons += [f"{self._usual} sends from {where}: {failure}" for failure in failures]
        self._fast, failures = self._open_first(self._special)
        if not self._fast:
            self._reasons += [f"{usual} sends high loads from {where} too: {failure}" for failure in failures]
        elif not self._steady:
            self._reasons.append(
                f"{self._fast} sends `max` and {self._high_loads(self._fast)} from {where}, {usual} the others. For "
                "one source at all loads, name one of them as the generator, or set `steady` of auto"
            )

    def identity(self) -> Identity:
        if self._prepared:
            return self._prepared.identity()
        if not self._usual:
            general, special = ", or ".join(self._general), ", ".join(self._special)
            return Identity(f"{general} where it does not work; {special} for high loads where that works")
        usual = self._opened[self._usual].identity()
        return replace(usual, kind=f"{usual.kind}+{self._opened[self._fast].identity().kind}") if self._fast else usual

    def remarks(self) -> list[str]:
        """Return why a preferred kind is not used, which source sends which loads, and the usual source's remarks."""
        self._require_open()
        return self._reasons + self._opened[self._usual].remarks()

    def nearest_fps(self, fps: float, frame_size: FrameSize) -> float:
        return self._source_for(fps, frame_size).nearest_fps(fps, frame_size)

    def stamps(self, traffic: Traffic) -> Stamps:
        return self._source_for(traffic.fps, _frames_of(traffic)).stamps(traffic)

    def prepare(self, traffic: Traffic) -> None:
        """Prepare the source for this load; MissingError for a mix that no source can send from this interface."""
        name = self._choose(traffic.fps, _frames_of(traffic))
        if name not in self._opened:
            try:
                self._open(name)
            except MissingError as error:
                frames = f"{traffic.frame_size.frames_text} from {self._location[1]}"
                raise MissingError(f"{self._usual} cannot send {frames}, and {error}") from error
        self._prepared = self._opened[name]
        self._prepared.prepare(traffic)

    @property
    def start_ahead_ns(self) -> int:
        return self._ready.start_ahead_ns

    def start(self, at_monotonic_ns: int) -> None:
        self._ready.start(at_monotonic_ns)

    def wait(self, timeout_s: float) -> Sent:
        return self._ready.wait(timeout_s)

    def close(self) -> None:
        for source in self._opened.values():
            source.close()
        self._opened, self._reasons, self._prepared = {}, [], None
        self._usual = self._fast = ""

    def _open(self, name: str) -> None:
        """Open the source of a kind; MissingError or TestbedError where it does not work."""
        host, interface, cpus = self._location
        if reason := self._kinds[name].unsupported_reason(host):
            raise MissingError(reason)
        source = self._kinds[name].source()
        source.open(host, interface, cpus)
        self._opened[name] = source

    def _open_first(self, names: Sequence[str]) -> tuple[str, list[MissingError | TestbedError]]:
        """Open the first source that works; return its name (empty: none works), and why those before it do not."""
        failures: list[MissingError | TestbedError] = []
        for name in names:
            try:
                self._open(name)
            except (TestbedError, MissingError) as error:
                failures.append(error)
            else:
                return name, failures
        return "", failures

    def _choose(self, fps: float | None, frame_size: FrameSize) -> str:
        """Return the name of the kind that sends such a trial."""
        self._require_open()
        if self._fast:
            kind = self._kinds[self._fast]
            is_high = self._steady or fps is None or fps > _above_fps(kind)
            fits = kind.largest_frame is None or frame_size.largest_bytes <= kind.largest_frame
            if is_high and fits and _sends(kind, frame_size):
                return self._fast
        if not _sends(self._kinds[self._usual], frame_size):
            return next((name for name in self._general if _sends(self._kinds[name], frame_size)), self._usual)
        return self._usual

    def _require_open(self) -> None:
        if not self._usual:
            raise TestbedError("an auto source is used before open() or after close(); open it first")

    def _high_loads(self, name: str) -> str:
        return "all loads" if self._steady else f"loads above {_above_fps(self._kinds[name]):,} frames/s"

    def _source_for(self, fps: float | None, frame_size: FrameSize) -> Source:
        """Return the source of such a trial; it need not be open to describe its frames."""
        name = self._choose(fps, frame_size)
        return self._opened.get(name) or self._kinds[name].source()

    @property
    def _ready(self) -> Source:
        if self._prepared is None:
            raise TestbedError("an auto source is used before prepare()")
        return self._prepared


def _frames_of(traffic: Traffic) -> FrameSize:
    """Return the frames of a trial, with the name of their packet, also if it is that of the stream."""
    size, packet = traffic.frame_size, traffic.packet
    return size if packet is None else size.with_packet(packet.name)


def _sends(kind: Generator, frame_size: FrameSize) -> bool:
    """Return whether a kind sends mixes or described packets, where these are needed."""
    return (kind.sends_mixes or not frame_size.is_mix) and (kind.sends_packets or not frame_size.packet)


def _rank(kind: type[Generator]) -> int:
    return kind.auto_source.rank if kind.auto_source else 0


def _above_fps(kind: Generator) -> int:
    return kind.auto_source.above_fps if kind.auto_source else 0
