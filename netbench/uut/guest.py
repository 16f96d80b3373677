"""A Linux guest that is to forward, whatever runs it: told how by way of a host, waited for, and read."""

from collections.abc import Callable, Sequence

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.linux.cpu_time import busy_s
from netbench.linux.ip_link import list_command, parse_links
from netbench.linux.nics import NicCounters
from netbench.model.paths import StreamPath
from netbench.uut.forwarding import forwards
from netbench.uut.guest_counters import GuestCounters, parse_counters, read_command
from netbench.uut.guest_forwarding import GuestNics, forwarding_commands, guest_mac

_CARRIER_S = 10.0
_RECEPTION_S = 20.0
_POLL_S = 0.05


class Guest:
    """A guest that has booted. Every method raises TestbedError, naming it, when it does not do what it should."""

    def __init__(self, name: str, host: Host, paths: Sequence[StreamPath], model: str) -> None:
        """`model` is that of its NICs."""
        self._name = name
        self._model = model
        self._host = host
        self._paths = tuple(paths)
        self.nics = self._find_nics()

    @property
    def kernel(self) -> str:
        """The release of its kernel."""
        return run_checked(self._host, ("uname", "-r")).strip()

    def forward(self, how: str) -> None:
        """Have it `bridge` or `route`; returns once its NICs have a carrier and forward."""
        for command in forwarding_commands(self._paths, self.nics, how):
            run_checked(self._host, command.argv, stdin=command.stdin)
        if not wait_until(self._forwards, _CARRIER_S, _POLL_S):
            raise TestbedError(f"{self._name}: its NICs have no carrier after {_CARRIER_S:g} s")

    def await_reception(self, send: Callable[[StreamPath], None]) -> None:
        """Return once every ingress NIC has taken the frames that `send` sends it, one a call."""
        before = self._received()
        for path in self._paths:
            send(path)

        def received() -> bool:
            return all(now > before[stream] for stream, now in self._received().items())

        if not wait_until(received, _RECEPTION_S, _POLL_S):
            raise TestbedError(f"{self._name}: it takes no frames {_RECEPTION_S:g} s after its NICs came up")

    def counters(self) -> GuestCounters:
        """All its counters, read at nearly one moment."""
        return parse_counters(run_checked(self._host, read_command(self._interfaces)), self._name)

    def cpu_s(self) -> float:
        """CPU time it has used since it was started, in seconds, as its kernel counts it."""
        text = run_checked(self._host, ("cat", "/proc/stat"))
        try:
            return busy_s(text)
        except (ValueError, IndexError) as error:
            raise TestbedError(f"{self._name}: its CPU time makes no sense: {error}") from error

    @property
    def _interfaces(self) -> list[str]:
        return [name for own in self.nics.values() for name in (own.ingress, own.egress)]

    def _forwards(self) -> bool:
        return all(forwards(nic) for name, nic in self._links().items() if name in self._interfaces)

    def _received(self) -> dict[str, int]:
        counted = self.counters().nics
        try:
            return {stream: counted[own.ingress]["rx"] for stream, own in self.nics.items()}
        except KeyError as error:
            raise TestbedError(f"{self._name}: its NIC {error.args[0]} is gone") from None

    def _find_nics(self) -> dict[str, GuestNics]:
        by_mac = {nic.mac: name for name, nic in self._links().items()}
        try:
            return {
                path.name: GuestNics(by_mac[guest_mac(path, "ingress")], by_mac[guest_mac(path, "egress")])
                for path in self._paths
            }
        except KeyError as error:
            raise TestbedError(
                f"{self._name} has no NIC {error.args[0]}: its kernel has no driver for {self._model}"
            ) from None

    def _links(self) -> dict[str, NicCounters]:
        text = run_checked(self._host, list_command())
        try:
            return parse_links(text)
        except (ValueError, LookupError, TypeError) as error:
            raise TestbedError(f"{self._name}: its list of links makes no sense; it needs iproute2") from error
