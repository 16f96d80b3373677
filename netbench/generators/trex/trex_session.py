"""A session with one TRex server, and its ports. Errors of the client become errors of netbench.

The client's reply timeout bounds every wait.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from lbr_trex_client.interactive.trex.stl.api import STLClient, TRexError

from netbench.errors import MissingError, TestbedError
from netbench.generators.trex.trex_counts import GroupCount, delay_of
from netbench.generators.trex.trex_package import ServerAddress, is_left_behind, own_name
from netbench.model.distributions import SoftwareDelay

# The counters lag behind the frames that the data path has sent and received.
_COUNTERS_REST_S = 0.05
_COUNTERS_MOST_S = 3.0
T = TypeVar("T")
_ONE_CORE = STLClient.CORE_MASK_SINGLE


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
                f"no TRex server of this API responds at {address.server}:{address.sync_port} ({brief(error)}); start "
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
        return int(self.call("get_port_stats", {"port_id": port})["ierrors"])

    def at_rest(self, read: Callable[[], T]) -> T:
        """Return the result of `read` once two in a row are equal; TestbedError where that takes too long."""
        give_up = time.monotonic() + _COUNTERS_MOST_S
        counts = read()
        while time.monotonic() < give_up:
            time.sleep(_COUNTERS_REST_S)
            before, counts = counts, read()
            if counts == before:
                return counts
        raise TestbedError(f"the counters of {self.address} still change {_COUNTERS_MOST_S:g} s after it stopped")

    def call(self, method: str, params: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the server's reply to a request; TestbedError where there is none."""
        with self.turn:
            reply = self.client.conn.rpc.transmit(method, dict(params))
        if not reply:
            raise TestbedError(f"{self.address} rejects {method}: {reply.err()}")
        data: Mapping[str, Any] = reply.data()
        return data

    @contextmanager
    def errors_as(self, effect: str) -> Iterator[None]:
        """Turn errors of the client into TestbedError with `effect` as context; no other thread can use the client."""
        with self.turn:
            try:
                yield
            except TRexError as error:
                raise TestbedError(f"{effect}: {brief(error)}") from error

    def close(self) -> None:
        """End the session; unreleased ports keep their owner, and their streams keep sending."""
        with self.turn, suppress(TRexError):  # the server is gone already
            self.client.disconnect(stop_traffic=False)

    def _statistics(self, groups: Sequence[int]) -> Mapping[str, Any]:
        with self.errors_as(f"{self.address} does not report its counts"):
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


class TrexPort:
    """A port that this process owns until close(); never taken by force from an owner that may be active."""

    def __init__(self, session: TrexSession, number: int) -> None:
        """Acquire the port; MissingError when the server has no such port, or it has another owner.

        The port keeps its settings. The client's `reset()` would take it from any owner, and disable promiscuous mode.
        """
        self._session, self._client, self.number = session, session.client, number
        ports = self._client.get_all_ports()
        if number not in ports:
            raise MissingError(f"{self} does not exist: the server has {', '.join(map(str, ports))}")
        owner = str(session.call("get_port_status", self._which)["owner"])
        try:
            self._client.acquire(self._ports, force=is_left_behind(owner))
        except TRexError as error:
            raise MissingError(
                f"{self} has another owner: {brief(error)}. Ask the owner to release it; if it is abandoned, use "
                f"`acquire --force -p {number}` and `release -p {number}` in trex-console"
            ) from error
        try:
            with session.errors_as(f"the streams of {self} cannot be removed"):
                self._clear()  # streams left by a killed netbench may still be sending
        except BaseException:  # Ctrl-C too: no port stays acquired
            self.close()
            raise

    def __str__(self) -> str:
        return f"port {self.number} of {self._session.address}"

    def load(self, streams: Sequence[Any]) -> None:
        """Replace the streams of the port by these, without starting them."""
        with self._session.errors_as(f"{self} rejects the streams"):
            self._clear()
            self._client.add_streams(list(streams), self._ports)

    def start(self, limit_s: float) -> None:
        """Start the streams; a server without a client stops by itself after about `limit_s` seconds."""
        with self._session.errors_as(f"{self} does not start"):
            self._client.start(self._ports, duration=limit_s, core_mask=_ONE_CORE)

    def is_sending(self) -> bool:
        """Return whether streams are still sending; the server updates this every few milliseconds."""
        state = self._session.call("get_port_status", self._which)["state"]
        return str(state) in ("TX", "PAUSE")

    def stop(self) -> None:
        """Stop sending at once; arriving frames are still counted.

        The client's own stop() would make the server ignore frames that are still on their way (remove_rx_filters).
        """
        with self._session.errors_as(f"{self} does not stop"):
            self._halt()

    def close(self) -> None:
        """Stop, remove all streams, release the port; each step is tried even if an earlier one fails."""
        steps: tuple[Callable[[], object], ...] = (
            self._clear,
            lambda: self._client.release(self._ports),
        )
        for step in steps:
            with suppress(TRexError, TestbedError), self._session.turn:  # the next step may still succeed
                step()

    def _clear(self) -> None:
        self._halt()
        self._client.remove_all_streams(self._ports)

    def _halt(self) -> None:
        # Forced where the server still sends: its event may not have reached the client yet.
        answer = self._client.ports[self.number].stop(force=self.is_sending())
        if not answer:
            raise TRexError(answer.err())

    @property
    def _ports(self) -> list[int]:
        return [self.number]

    @property
    def _which(self) -> dict[str, object]:
        return {"port_id": self.number, "profile_id": "*", "block": False}
