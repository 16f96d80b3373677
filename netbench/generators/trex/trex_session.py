"""A session with one TRex server, and what it has counted. The client's errors come out as netbench's.

Every wait is bounded by the client's limit for an answer.
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

# What the data path has sent, and what has come in, comes to the counters with a delay.
_COUNTERS_REST_S = 0.05
_COUNTERS_MOST_S = 3.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, and at which TCP ports it takes requests and publishes."""

    server: str
    sync_port: int
    async_port: int

    def __str__(self) -> str:
        return f"the TRex server {self.server}:{self.sync_port}"


class TrexSession:
    """One client of a server until close(), which several threads may use, one at a time."""

    def __init__(self, address: ServerAddress) -> None:
        """MissingError when no server answers there."""
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
        """The server's version, as it says."""
        return str(self.client.get_server_version().get("version", ""))

    @property
    def by_software(self) -> bool:
        """Whether its ports are software's, all frames of which one core looks at when it gets to them."""
        return any(self.client.ports[port].is_virtual() for port in self.client.get_all_ports())

    def counted(self, groups: Sequence[int]) -> dict[int, GroupCount]:
        """What it has counted in these groups; one that it does not know of has counted nothing."""
        return _counts_of(self._statistics(groups), groups)

    def delay(self, group: int) -> SoftwareDelay:
        """What it has measured of the delay of a group's frames."""
        of_group = self._statistics([group]).get("latency", {}).get(group, {})
        return delay_of(of_group, self.version, by_software=self.by_software)

    def missed_at(self, port: int) -> int:
        """How many frames it could not take in at a port itself: the tester's own loss (`ierrors`)."""
        return int(self.asked("get_port_stats", {"port_id": port})["ierrors"])

    def at_rest(self, read: Callable[[], T]) -> T:
        """What `read` finds once it finds the same twice; TestbedError where that takes too long."""
        give_up = time.monotonic() + _COUNTERS_MOST_S
        found = read()
        while time.monotonic() < give_up:
            time.sleep(_COUNTERS_REST_S)
            before, found = found, read()
            if found == before:
                return found
        raise TestbedError(f"{self.address} counts on, {_COUNTERS_MOST_S:g} s after it stopped")

    def asked(self, method: str, params: Mapping[str, object]) -> Mapping[str, Any]:
        """The server's own answer to a request; TestbedError where it gives none."""
        with self.turn:
            answer = self.client.conn.rpc.transmit(method, dict(params))
        if not answer:
            raise TestbedError(f"{self.address} does not answer {method}: {answer.err()}")
        found: Mapping[str, Any] = answer.data()
        return found

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """The client's errors within, as TestbedError that says `what` went wrong; no other thread uses the client."""
        with self.turn:
            try:
                yield
            except TRexError as error:
                raise TestbedError(f"{what}: {brief(error)}") from error

    def close(self) -> None:
        """End the session; ports that are not released stay its own, and what sends goes on."""
        with self.turn, suppress(TRexError):  # it is gone already
            self.client.disconnect(stop_traffic=False)

    def _statistics(self, groups: Sequence[int]) -> Mapping[str, Any]:
        with self.told(f"{self.address} does not say what it counted"):
            # Not relative to what the client remembers, which the server's starting again from 0 would make negative.
            found: Mapping[str, Any] = self.client.pgid_stats.get_stats(list(groups), relative=False)
            return found


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
    """What the client says, in one line and without the asterisks it likes."""
    return " ".join(str(error).replace("*", " ").split()).strip(" .")
