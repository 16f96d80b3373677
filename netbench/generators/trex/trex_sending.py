"""Sending from one port of a TRex server: the streams of a trial, its real duration, and the frames sent."""

import time
from dataclasses import dataclass, field, replace

from netbench.generators.trex.client_package import BEGINS_LATER_S
from netbench.generators.trex.own_server import OwnServer
from netbench.generators.trex.packet_groups import GroupCount, Groups
from netbench.generators.trex.trex_port import TrexPort
from netbench.generators.trex.trex_session import TrexSession
from netbench.generators.trex.trex_streams import streams_of
from netbench.generators.worker_process import Halt
from netbench.model.frame_mix import genome_of, sizes_in
from netbench.model.traffic import NOTHING_SENT, Sent, Traffic

# The server checks for ports that have ended every 10 ms (CGlobalTRex::run_in_master), and is polled as often.
_TOLD_LATE_S = 0.02
_ASK_S = 0.005
# A server whose client is gone stops by itself this long after a trial's longest duration, by its own clock.
_LEFT_ALONE_S = 10.0
_BEGINS_LATER_NS = round(BEGINS_LATER_S * 1e9)


@dataclass(frozen=True, slots=True)
class _Seen:
    """When the port was last seen sending, and first seen not to (None: never), in ns of CLOCK_MONOTONIC."""

    sending_ns: int
    ended_ns: int | None


@dataclass(frozen=True, slots=True)
class _Trial:
    """The traffic of a trial, the groups that count it, and their counts before."""

    traffic: Traffic
    groups: Groups
    before: dict[int, GroupCount]
    out_before: int | None  # frames that had left the interface before; None where not read


@dataclass(slots=True)
class PortSending:
    """A port owned by the worker, and the server if netbench started it; `halt` ends the sending of a trial."""

    session: TrexSession
    port: TrexPort
    server: OwnServer | None
    interface: str
    halt: Halt = field(default_factory=Halt)
    left_over: int = 0  # frames left in the ring of a server that netbench started
    _trial: _Trial | None = None

    def prepare(self, traffic: Traffic, delay_fps: float) -> None:
        """Load the streams of the next trial."""
        self.halt = Halt()
        out_before = None
        if self.server is not None:
            self.server.require_life()
            out_before = self.server.out_of(self.interface)
        groups = Groups(self.port.number, sizes_in(traffic.frame_size), delay_fps, genome_of(traffic.frame_size)[0])
        self.port.load(streams_of(traffic, groups))
        self._trial = _Trial(traffic, groups, self.session.counted(groups.all), out_before)

    def send(self, at_monotonic_ns: int) -> Sent:
        """Send the prepared trial, and end it here: TRex's own clock stands still while TRex is overloaded."""
        traffic, port = self._prepared.traffic, self.port
        self.halt.wait_until(at_monotonic_ns - _BEGINS_LATER_NS)
        if self.halt.is_set():
            return replace(NOTHING_SENT, error=self.halt.reason)
        first_ns, called_ns = time.time_ns() + _BEGINS_LATER_NS, time.monotonic_ns() + _BEGINS_LATER_NS
        port.start(BEGINS_LATER_S + traffic.longest_s + _LEFT_ALONE_S)
        begun_ns = time.monotonic_ns() + _BEGINS_LATER_NS
        seen = self._watch(begun_ns)
        if seen.ended_ns is None:
            port.stop()
        ended_ns = time.monotonic_ns() if seen.ended_ns is None else seen.ended_ns
        frames, error = self.session.at_rest(self._sent_frames), self.halt.reason
        if seen.ended_ns is not None and frames != traffic.frames and not error:
            error = f"TRex ended by itself after {frames:,} of {traffic.frames:,} frames: look at its port and its link"
        duration_s, slot_s = max(0.0, ended_ns - called_ns) / 1e9, 0.0
        if frames == traffic.frames:
            # TRex ends with its last frame, not with that frame's slot. The slot is added by the intended rate, unless
            # this contradicts the observed times.
            slot_s = 1 / (traffic.later_fps or traffic.fps or 1.0)
            at_least_s = (seen.sending_ns - begun_ns) / 1e9 - _TOLD_LATE_S + slot_s
            duration_s = max(at_least_s, min(traffic.duration_s, duration_s + slot_s))
        if self.server is not None and self._prepared.out_before is not None:
            gone_out = self.server.out_of(self.interface) - self._prepared.out_before
            self.left_over = max(0, frames - gone_out)
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

    @property
    def groups(self) -> Groups:
        """The groups of the last trial."""
        return self._prepared.groups

    def received_at(self, port: int) -> dict[int, int]:
        """Return how many frames of each group of the last trial have arrived at a port so far."""
        before, counted = self._prepared.before, self.session.counted(self.groups.all)
        return {group: count.received_since(before[group], port) for group, count in counted.items()}

    def close(self) -> None:
        """Clear and release the port."""
        self.port.close()

    def _sent_frames(self) -> int:
        before, counted = self._prepared.before, self.session.counted(self.groups.all)
        return sum(count.sent_since(before[group], self.port.number) for group, count in counted.items())

    def _watch(self, begun_ns: int) -> _Seen:
        """Poll for the end of sending, from shortly before it is due until the longest duration is over."""
        traffic, sending_ns = self._prepared.traffic, begun_ns
        longest_s = traffic.duration_s if traffic.fps is None else traffic.longest_s
        last_ns = begun_ns + round(longest_s * 1e9)
        # Polling disturbs the server: not before the end is near.
        self.halt.sleep_until(begun_ns + round((traffic.duration_s - _TOLD_LATE_S) * 1e9))
        while not self.halt.is_set() and (now_ns := time.monotonic_ns()) < last_ns:
            if traffic.fps is not None and not self.port.is_sending():
                return _Seen(sending_ns, time.monotonic_ns())
            sending_ns = now_ns
            self.halt.sleep_until(min(last_ns, now_ns + round(_ASK_S * 1e9)))
        return _Seen(sending_ns, None)

    @property
    def _prepared(self) -> _Trial:
        assert self._trial is not None, "prepare() comes first"
        return self._trial
