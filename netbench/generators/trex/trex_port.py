"""One port of a TRex server, taken for a campaign: streams onto it, start, stop, what was sent, release.

The client's errors come out as netbench's. Every wait is bounded by the client's limit for an answer.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from lbr_trex_client.interactive.trex.stl.api import STLClient, TRexError

from netbench.errors import MissingError, TestbedError

_USER = "netbench"  # who owns a port, as others see it
_ONE_CORE = STLClient.CORE_MASK_SINGLE
# What the data path has sent comes to the counters with a delay.
_COUNTERS_REST_S = 0.05
_COUNTERS_MOST_S = 3.0


@dataclass(frozen=True, slots=True)
class _Counted:
    """What the server has counted of a port's frames; from 0 again whenever it changes the `version`."""

    frames: int
    version: int | None

    def since(self, before: "_Counted") -> int:
        return self.frames - (before.frames if before.version == self.version else 0)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a port is: of which server, at which TCP ports it takes requests and publishes."""

    server: str
    sync_port: int
    async_port: int
    port: int

    def __str__(self) -> str:
        return f"port {self.port} of the TRex server {self.server}:{self.sync_port}"


class TrexPort:
    """A port that is this process's own until close(); never taken by force."""

    def __init__(self, place: Place) -> None:
        """MissingError when no server answers there, it has no such port, or the port is somebody else's."""
        self._place = place
        self._client = STLClient(_USER, place.server, place.sync_port, place.async_port, verbose_level="none")
        try:
            self._client.connect()
        except TRexError as error:
            raise MissingError(
                f"no TRex server of this API answers at {place.server}:{place.sync_port} ({_brief(error)}); start one "
                "there (`t-rex-64 -i`), or name another with `server` and `sync_port`"
            ) from error
        try:
            self._take()
        except BaseException:
            self._client.disconnect(stop_traffic=False)
            raise

    @property
    def version(self) -> str:
        """The server's version, as it says."""
        return str(self._client.get_server_version().get("version", ""))

    @property
    def group(self) -> int:
        """The number under which the server counts what this port sends."""
        return self._place.port + 1

    def load(self, streams: Sequence[Any]) -> None:
        """Have these streams on the port, and no others, none of them sending yet."""
        with self._told("cannot take the streams"):
            self._client.stop(self._ports)
            self._client.remove_all_streams(self._ports)
            self._client.add_streams(list(streams), self._ports)
            self._before = self._counted()

    def start(self, limit_s: float) -> None:
        """Start them; a server that is left alone stops by itself after about `limit_s`."""
        with self._told("does not start"):
            self._client.start(self._ports, duration=limit_s, core_mask=_ONE_CORE)

    def is_sending(self) -> bool:
        """Whether the server has seen them end; it looks every some milliseconds."""
        answer = self._client.conn.rpc.transmit(
            "get_port_status", {"port_id": self._place.port, "profile_id": "*", "block": False}
        )
        if not answer:
            raise TestbedError(f"{self._place} does not answer any more: {answer.err()}")
        return str(answer.data()["state"]) in ("TX", "PAUSE")

    def stop(self) -> None:
        """Stop sending, whatever is left."""
        with self._told("does not stop"):
            self._client.stop(self._ports, rx_delay_ms=0)

    def sent_frames(self) -> int:
        """How many frames have left since start(), once the counters rest."""
        give_up = time.monotonic() + _COUNTERS_MOST_S
        with self._told("does not say what it sent"):
            counted = self._counted()
            while time.monotonic() < give_up:
                time.sleep(_COUNTERS_REST_S)
                before, counted = counted, self._counted()
                if counted == before:
                    return counted.since(self._before)
        raise TestbedError(f"{self._place} counts on, {_COUNTERS_MOST_S:g} s after it stopped")

    def close(self) -> None:
        """Stop, leave no stream behind, release the port; goes on whatever fails, as the next step may not."""
        steps: tuple[Callable[[], object], ...] = (
            lambda: self._client.stop(self._ports, rx_delay_ms=0),
            lambda: self._client.remove_all_streams(self._ports),
            lambda: self._client.disconnect(stop_traffic=False),
        )
        for step in steps:
            with suppress(TRexError):
                step()

    @property
    def _ports(self) -> list[int]:
        return [self._place.port]

    def _take(self) -> None:
        known = self._client.get_all_ports()
        if self._place.port not in known:
            raise MissingError(f"there is no {self._place}: it has {', '.join(map(str, known))}")
        try:
            self._client.acquire(self._ports, force=False)
        except TRexError as error:
            port = self._place.port
            raise MissingError(
                f"{self._place} is somebody else's: {_brief(error)}. Have its owner release it; if nobody is at work "
                f"there, `acquire --force -p {port}` and `release -p {port}` in trex-console do"
            ) from error

    def _counted(self) -> _Counted:
        # Not relative to what the client remembers, which the server's starting again from 0 would make negative.
        counts = self._client.pgid_stats.get_stats([self.group], relative=False)
        by_port = counts.get("flow_stats", {}).get(self.group, {}).get("tx_pkts", {})
        return _Counted(int(by_port.get(self._place.port, 0)), counts["ver_id"].get(str(self.group)))

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except TRexError as error:
            raise TestbedError(f"{self._place} {what}: {_brief(error)}") from error


def _brief(error: TRexError) -> str:
    """What the client says, in one line and without the asterisks it likes."""
    return " ".join(str(error).replace("*", " ").split()).strip(" .")
