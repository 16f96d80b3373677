"""A session with one TRex server, and the server's counts. Errors of the client become errors of netbench.

The client's reply timeout bounds every wait.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from lbr_trex_client.interactive.trex.stl.api import STLClient, TRexError

from netbench.errors import MissingError, TestbedError
from netbench.generators.trex.flow_counts import delay_of
from netbench.generators.trex.owner_name import own_name
from netbench.generators.trex.packet_groups import GroupCount
from netbench.model.distributions import SoftwareDelay

# The counters lag behind the frames that the data path has sent and received.
_COUNTERS_REST_S = 0.05
_COUNTERS_MOST_S = 3.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server, and the TCP ports at which it receives requests and publishes."""

    server: str
    sync_port: int
    async_port: int

    def __str__(self) -> str:
        return f"the TRex server {self.server}:{self.sync_port}"


class TrexSession:
    """One client of a server until close(); several threads may use it, one at a time."""

    def __init__(self, address: ServerAddress) -> None:
        """Connect to the server; MissingError when none answers there."""
        self.address = address
        self.turn = threading.RLock()
        self.client = STLClient(own_name(), address.server, address.sync_port, address.async_port, verbose_level="none")
        try:
            self.client.connect()
        except TRexError as error:
            raise MissingError(
                f"no TRex server of this API answers at {address.server}:{address.sync_port} ({brief(error)}); start "
                "one there (`t-rex-64 -i`), or name another with `server` and `sync_port`"
            ) from error

    @property
    def version(self) -> str:
        """The version that the server reports."""
        return str(self.client.get_server_version().get("version", ""))

    @property
    def by_software(self) -> bool:
        """Whether its ports are virtual, so that one core polls for all frames in software."""
        return any(self.client.ports[port].is_virtual() for port in self.client.get_all_ports())

    def counted(self, groups: Sequence[int]) -> dict[int, GroupCount]:
        """Return the counts of these groups; groups unknown to the server have counts of 0."""
        return _counts_of(self._statistics(groups), groups)

    def delay(self, group: int) -> SoftwareDelay:
        """Return the measured delay of a group's frames."""
        of_group = self._statistics([group]).get("latency", {}).get(group, {})
        return delay_of(of_group, self.version, by_software=self.by_software)

    def missed_at(self, port: int) -> int:
        """Return how many frames the server itself could not receive at a port: the tester's own loss (`ierrors`)."""
        return int(self.asked("get_port_stats", {"port_id": port})["ierrors"])

    def at_rest(self, read: Callable[[], T]) -> T:
        """Return the result of `read` once two in a row are equal; TestbedError where that takes too long."""
        give_up = time.monotonic() + _COUNTERS_MOST_S
        counts = read()
        while time.monotonic() < give_up:
            time.sleep(_COUNTERS_REST_S)
            before, counts = counts, read()
            if counts == before:
                return counts
        raise TestbedError(f"{self.address} counts on, {_COUNTERS_MOST_S:g} s after it stopped")

    def asked(self, method: str, params: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the server's reply to a request; TestbedError where there is none."""
        with self.turn:
            answer = self.client.conn.rpc.transmit(method, dict(params))
        if not answer:
            raise TestbedError(f"{self.address} does not answer {method}: {answer.err()}")
        reply: Mapping[str, Any] = answer.data()
        return reply

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Turn errors of the client into TestbedError with `what` as context; no other thread can use the client."""
        with self.turn:
            try:
                yield
            except TRexError as error:
                raise TestbedError(f"{what}: {brief(error)}") from error

    def close(self) -> None:
        """End the session; unreleased ports keep their owner, and their streams keep sending."""
        with self.turn, suppress(TRexError):  # the server is gone already
            self.client.disconnect(stop_traffic=False)

    def _statistics(self, groups: Sequence[int]) -> Mapping[str, Any]:
        with self.told(f"{self.address} does not say what it counted"):
            # Not relative to counts cached in the client: a restart of the server from 0 would make them negative.
            statistics: Mapping[str, Any] = self.client.pgid_stats.get_stats(list(groups), relative=False)
            return statistics


def _counts_of(statistics: Mapping[str, Any], groups: Sequence[int]) -> dict[int, GroupCount]:
    counts = {}
    for group in groups:
        of_group = statistics.get("flow_stats", {}).get(group, {})
        sent, received = (
            {port: int(frames) for port, frames in of_group.get(name, {}).items() if port != "total"}
            for name in ("tx_pkts", "rx_pkts")
        )
        counts[group] = GroupCount(sent, received, statistics["ver_id"].get(str(group)))
    return counts


def brief(error: TRexError) -> str:
    """Return the client's message in one line, without its asterisks."""
    return " ".join(str(error).replace("*", " ").split()).strip(" .")
