"""One netlink socket per network namespace, opened when first needed."""

from types import TracebackType
from typing import Any, Self

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from netbench.errors import TestbedError
from netbench.hosts.signals import shielded


class Netlink:
    """The netlink sockets of one run, by namespace name (None: the one netbench runs in)."""

    def __init__(self) -> None:
        self._sockets: dict[str | None, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def socket(self, netns: str | None) -> Any:  # noqa: ANN401 - pyroute2 is untyped
        """The IPRoute of a namespace; TestbedError when the namespace is gone."""
        if netns not in self._sockets:
            try:
                with shielded():  # pyroute2 forks to enter a namespace, and a signal handler must not unwind the fork
                    self._sockets[netns] = IPRoute(netns=netns, flags=0) if netns else IPRoute()
            except (OSError, NetlinkError) as error:
                raise TestbedError(f"network namespace {netns} cannot be entered: {error}") from error
        return self._sockets[netns]

    def index(self, netns: str | None, interface: str) -> int:
        """The index of an interface; TestbedError when there is none of that name."""
        found = self.socket(netns).link_lookup(ifname=interface)
        if not found:
            raise TestbedError(f"there is no interface {interface} in {netns or 'this machine'}")
        return int(found[0])

    def has(self, netns: str | None, interface: str) -> bool:
        """Whether there is an interface of that name; TestbedError when the namespace is gone."""
        return bool(self.socket(netns).link_lookup(ifname=interface))

    def forget(self, netns: str | None) -> None:
        """Close the socket of a namespace, before the namespace itself goes."""
        socket = self._sockets.pop(netns, None)
        if socket is not None:
            socket.close()

    def close(self) -> None:
        """Close all of them."""
        for netns in list(self._sockets):
            self.forget(netns)
