"""A source of kind trex: one port of a TRex server."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version

from netbench.errors import TestbedError
from netbench.generators.base import Source
from netbench.generators.trex.client_package import BEGINS_LATER_S, PACKAGE, no_client
from netbench.generators.trex.trex_options import TrexOptions
from netbench.generators.trex.trex_servers import TrexServer, TrexServers
from netbench.hosts.base import Host
from netbench.model.documents import plain
from netbench.model.tester import Identity
from netbench.model.traffic import NOTHING_SENT, Sent, Stamps, Traffic

# Time limit for a stop and the report of what was sent.
_STOP_S = 5.0


class TrexSource(Source):
    """One port of a running server, or of one that netbench starts.

    TRex's field engine numbers the frames. It cannot write times, so frames have none, and delay is unavailable."""

    def __init__(self, options: TrexOptions, servers: TrexServers) -> None:
        self._options, self._servers = options, servers
        self._server: TrexServer | None = None
        self._started = 0  # the number of the request whose reply reports what was sent
        self.version = ""

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        self._servers.require_sense(interface)
        if self._options.path is not None and self._servers.count:
            return [f"# {interface}: a port of the TRex server that its host has for all sources and sinks"]
        return self._servers.commands({interface: False}, cpus)

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Acquire the port of this interface; errors as in TrexServers.join."""
        self._interface = interface
        self._server = self._servers.join(self, host, interface, cpus)

    def identity(self) -> Identity:
        return identity_of(self._options, self._server)

    def remarks(self) -> list[str]:
        return [
            "TRex does not tell when it sent single frames: how evenly, and how late, is unknown, and frames bear no "
            "time; how long it took is known to about 20 ms, on a busy machine to what it took to have TRex start"
        ]

    def stamps(self, traffic: Traffic) -> Stamps:
        return Stamps(stamped=False, first_sequence=None if self._delay_fps else 0)

    def prepare(self, traffic: Traffic) -> None:
        """Load the streams of the next trial; TestbedError when the worker died or cannot send there."""
        self._opened.ask("prepare", self._interface, traffic=asdict(traffic), delay_fps=self._delay_fps)

    @property
    def start_ahead_ns(self) -> int:
        return super().start_ahead_ns + round(BEGINS_LATER_S * 1e9)

    def start(self, at_monotonic_ns: int) -> None:
        self._started = self._opened.tell("start", self._interface, at_monotonic_ns=at_monotonic_ns)

    def wait(self, timeout_s: float) -> Sent:
        """Wait for the end of sending and return the sent frames; as in WorkerSource."""
        server = self._opened
        try:
            try:
                reply = server.reply(self._started, timeout_s)
            except TimeoutError:
                server.tell("stop", self._interface)
                reply = server.reply(self._started, _STOP_S)
            return Sent(**reply["sent"])  # type: ignore[arg-type]  # checked by the call itself
        except (KeyError, TypeError):
            server.kill()
            return replace(NOTHING_SENT, error=server.failure("does not say what it sent"))
        except (TimeoutError, TestbedError) as error:
            server.kill()  # it must stop sending, whatever its state
            return replace(NOTHING_SENT, error=str(error))

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.leave(self)

    @property
    def _delay_fps(self) -> float:
        return self._options.delay_fps if self._servers.count else 0.0

    @property
    def _opened(self) -> TrexServer:
        if self._server is None:
            raise TestbedError("a source of kind trex is used before open() or after close(); open it first")
        return self._server


def identity_of(options: TrexOptions, server: TrexServer | None) -> Identity:
    """Return the identity of a source or sink: the versions of server and client, and the chosen options."""
    client = "" if no_client() else f"{PACKAGE} {version(PACKAGE)}"
    versions = ", ".join(text for text in (server.version if server else "", client) if text)
    chosen = plain(options, exclude_unset=True)
    return Identity("trex", versions, {name: str(value) for name, value in chosen.items()}, 1)
