"""A session with one TRex server, and the sending of its ports. Errors of the client become errors of netbench.

The client's reply timeout bounds every wait.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from lbr_trex_client.interactive.trex.stl.api import STLClient, TRexError

from netbench.errors import MissingError, TestbedError
from netbench.generators.source_worker import Halt
from netbench.generators.trex.trex_counts import Groups, delay_of
from netbench.generators.trex.trex_package import BEGINS_LATER_S, OwnServer, ServerAddress, is_left_behind, own_name
from netbench.generators.trex.trex_streams import streams_of
from netbench.model.distributions import SoftwareDelay
from netbench.model.frame_template import FrameTemplate
from netbench.model.traffic import NOTHING_SENT, Sent, Traffic

# The counters lag behind the frames that the data path has sent and received.
_COUNTERS_REST_S = 0.05
_COUNTERS_MOST_S = 3.0
_SENT, _RECEIVED = "tx_pkts", "rx_pkts"
# The server checks for ports that have ended every 10 ms (CGlobalTRex::run_in_master), and is polled as often.
_END_NOTICED_S = 0.02
_POLL_S = 0.005
# A server whose client is gone stops by itself this long after a trial's longest duration, by its own clock.
_ABANDONED_S = 10.0
_BEGINS_LATER_NS = round(BEGINS_LATER_S * 1e9)
_ONE_CORE = STLClient.CORE_MASK_SINGLE

T = TypeVar("T")
# The group, its direction (`tx_pkts` or `rx_pkts`), the port, and the version of the group: each counts from 0.
GroupCounts = Mapping[tuple[int, str, int, int | None], int]


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
                f"no TRex server of this API responds at {address.server}:{address.sync_port} ({_brief(error)}); start "
                "one there (`t-rex-64 -i`), or name another with `server` and `sync_port`"
            ) from error

    @property
    def version(self) -> str:
        """The version that the server reports."""
        return str(self.client.get_server_version().get("version", ""))

    def counted(self, groups: Sequence[int]) -> GroupCounts:
        """Return the frames of these groups so far; a group that is unknown to the server has none."""
        statistics = self._statistics(groups)
        return {
            (group, direction, port, statistics["ver_id"].get(str(group))): int(frames)
            for group in groups
            for direction in (_SENT, _RECEIVED)
            for port, frames in statistics.get("flow_stats", {}).get(group, {}).get(direction, {}).items()
            if port != "total"
        }

    def delay(self, group: int) -> SoftwareDelay:
        """Return the measured delay of a group's frames."""
        of_group = self._statistics([group]).get("latency", {}).get(group, {})
        # Where ports are virtual, one core polls for all frames in software.
        by_software = any(self.client.ports[port].is_virtual() for port in self.client.get_all_ports())
        return delay_of(of_group, self.version, by_software=by_software)

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
                raise TestbedError(f"{effect}: {_brief(error)}") from error

    def close(self) -> None:
        """End the session; unreleased ports keep their owner, and their streams keep sending."""
        with self.turn, suppress(TRexError):  # the server is gone already
            self.client.disconnect(stop_traffic=False)

    def _statistics(self, groups: Sequence[int]) -> Mapping[str, Any]:
        with self.errors_as(f"{self.address} does not report its counts"):
            # Not relative to counts cached in the client: a restart of the server from 0 would make them negative.
            statistics: Mapping[str, Any] = self.client.pgid_stats.get_stats(list(groups), relative=False)
            return statistics


class TrexPort:
    """A port that this process owns until close(); never taken by force from an owner that may be active.

    `halt` ends the sending of a trial. `groups` are those of the last trial. `left_over` is the number of frames that
    the last trial left in the ring of a server that netbench started.
    """

    groups: Groups
    left_over = 0

    def __init__(self, session: TrexSession, number: int, interface: str, server: OwnServer | None) -> None:
        """Acquire the port; MissingError when the server has no such port, or it has another owner.

        The port keeps its settings. The client's `reset()` would take it from any owner, and disable promiscuous mode.
        """
        self._session, self._client, self._number = session, session.client, number
        self._interface, self._server, self.halt = interface, server, Halt()
        self._ports, self._which = [number], {"port_id": number, "profile_id": "*", "block": False}
        ports = self._client.get_all_ports()
        if number not in ports:
            raise MissingError(f"{self} does not exist: the server has {', '.join(map(str, ports))}")
        owner = str(session.call("get_port_status", self._which)["owner"])
        try:
            self._client.acquire(self._ports, force=is_left_behind(owner))
        except TRexError as error:
            raise MissingError(
                f"{self} has another owner: {_brief(error)}. Ask the owner to release it; if it is abandoned, use "
                f"`acquire --force -p {number}` and `release -p {number}` in trex-console"
            ) from error
        try:
            with session.errors_as(f"the streams of {self} cannot be removed"):
                self._clear()  # streams left by a killed netbench may still be sending
        except BaseException:  # Ctrl-C too: no port stays acquired
            self.close()
            raise

    def __str__(self) -> str:
        return f"port {self._number} of {self._session.address}"

    def prepare(self, traffic: Traffic, template: FrameTemplate, delay_fps: float) -> None:
        """Load the streams of the next trial, without starting them."""
        self.halt, self._traffic = Halt(), traffic
        if self._server is not None:
            self._server.require_alive()
            self._out_before = self._server.sent_from(self._interface)
        sizes = traffic.frame_size.sizes
        self.groups = Groups(self._number, sizes, delay_fps, traffic.frame_size.genome[0])
        streams = streams_of(traffic, template, self.groups)
        with self._session.errors_as(f"{self} rejects the streams"):
            self._clear()
            self._client.add_streams(streams, self._ports)
        self._before = self._session.counted(self.groups.all)

    def send(self, at_monotonic_ns: int) -> Sent:
        """Send the prepared trial, and end it here: TRex's own clock stands still while TRex is overloaded."""
        traffic = self._traffic
        self.halt.wait_until(at_monotonic_ns - _BEGINS_LATER_NS)
        if self.halt.is_set():
            return replace(NOTHING_SENT, error=self.halt.reason)
        first_ns, called_ns = time.time_ns() + _BEGINS_LATER_NS, time.monotonic_ns() + _BEGINS_LATER_NS
        with self._session.errors_as(f"{self} does not start"):
            limit_s = BEGINS_LATER_S + traffic.longest_s + _ABANDONED_S
            self._client.start(self._ports, duration=limit_s, core_mask=_ONE_CORE)
        begun_ns = time.monotonic_ns() + _BEGINS_LATER_NS
        sending_ns, ended_ns = self._watch(begun_ns)
        if is_stopped := ended_ns is None:
            # The client's own stop() would make the server ignore frames that are still on their way
            # (remove_rx_filters).
            with self._session.errors_as(f"{self} does not stop"):
                self._stop_streams()
            ended_ns = time.monotonic_ns()
        frames = self._session.at_rest(lambda: sum(self._counted(_SENT, self._number).values()))
        error = self.halt.reason
        if not is_stopped and frames != traffic.frames and not error:
            error = f"TRex ended early, after {frames:,} of {traffic.frames:,} frames: check its port and its link"
        duration_s, slot_s = max(0.0, ended_ns - called_ns) / 1e9, 0.0
        if frames == traffic.frames:
            # TRex ends with its last frame, not with that frame's slot. The slot is added by the intended rate, unless
            # this contradicts the observed times.
            slot_s = 1 / (traffic.later_fps or traffic.fps or 1.0)
            at_least_s = (sending_ns - begun_ns) / 1e9 - _END_NOTICED_S + slot_s
            duration_s = max(at_least_s, min(traffic.duration_s, duration_s + slot_s))
        if self._server is not None:
            self.left_over = max(0, frames - (self._server.sent_from(self._interface) - self._out_before))
            frames -= self.left_over
        return Sent(
            frames=frames,
            errors=0,
            duration_s=duration_s,
            first_ns=first_ns if frames else None,
            last_ns=first_ns + round((duration_s - slot_s) * 1e9) if frames else None,
            max_burst_frames=0,  # unknown
            max_lateness_s=max(0.0, duration_s - traffic.duration_s) if traffic.fps else 0.0,
            error=error,
            stamped=False,
            numbered=not self.groups.delay_fps,
        )

    def received_at(self, port: int) -> dict[int, int]:
        """Return how many frames of each group of the last trial have arrived at a port so far."""
        return self._counted(_RECEIVED, port)

    def close(self) -> None:
        """Stop, remove all streams, release the port; each step is tried even if an earlier one fails."""
        for step in (self._clear, lambda: self._client.release(self._ports)):
            with suppress(TRexError, TestbedError), self._session.turn:  # the next step may still succeed
                step()

    def _counted(self, direction: str, port: int) -> dict[int, int]:
        """Return the frames of each group of the last trial, in one direction at a port."""
        frames = dict.fromkeys(self.groups.all, 0)
        for key, count in self._session.counted(self.groups.all).items():
            if key[1:3] == (direction, port):
                frames[key[0]] += count - self._before.get(key, 0)
        return frames

    def _watch(self, begun_ns: int) -> tuple[int, int | None]:
        """Poll for the end of sending, from shortly before it is due until the longest duration is over.

        Return when the port was last seen sending, and first seen not to (None: never), in ns of CLOCK_MONOTONIC.
        """
        traffic, sending_ns = self._traffic, begun_ns
        longest_s = traffic.duration_s if traffic.fps is None else traffic.longest_s
        last_ns = begun_ns + round(longest_s * 1e9)
        # Polling disturbs the server: not before the end is near.
        self.halt.sleep_until(begun_ns + round((traffic.duration_s - _END_NOTICED_S) * 1e9))
        while not self.halt.is_set() and (now_ns := time.monotonic_ns()) < last_ns:
            if traffic.fps is not None and not self._is_sending():
                return sending_ns, time.monotonic_ns()
            sending_ns = now_ns
            self.halt.sleep_until(min(last_ns, now_ns + round(_POLL_S * 1e9)))
        return sending_ns, None

    def _is_sending(self) -> bool:
        """Return whether streams are still sending; the server updates this every few milliseconds."""
        return str(self._session.call("get_port_status", self._which)["state"]) in ("TX", "PAUSE")

    def _clear(self) -> None:
        self._stop_streams()
        self._client.remove_all_streams(self._ports)

    def _stop_streams(self) -> None:
        # Forced where the server still sends: its event may not have reached the client yet.
        answer = self._client.ports[self._number].stop(force=self._is_sending())
        if not answer:
            raise TRexError(answer.err())


def _brief(error: TRexError) -> str:
    """Return the client's message in one line, without its asterisks."""
    return " ".join(str(error).replace("*", " ").split()).strip(" .")
