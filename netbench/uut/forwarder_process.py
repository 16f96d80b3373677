"""The process of a forwarder: `python -m netbench.uut.forwarder_process INGRESS EGRESS IMPAIRMENTS`.

It receives frames from one NIC and sends them by another, with the IMPAIRMENTS (JSON). It answers each line on its
stdin, `reset` or `read`, with one JSON object: its counts since the last reset. A first answer, without a request,
confirms that its sockets are open. It ends when its stdin does.
"""

import contextlib
import errno
import json
import os
import select
import socket
import sys
import time
from array import array
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Generic, Self, TypeVar

from pydantic import BaseModel, Field, model_validator

from netbench.model.fields import Seconds

Frame = TypeVar("Frame")


class Every(BaseModel, extra="forbid", frozen=True):
    """Something that happens at every `every`-th frame."""

    every: int = Field(strict=True, ge=1)
    """Every n-th frame."""

    def of(self, frames: int) -> int:
        """Return how often it happens in the first `frames` frames."""
        return frames // self.every


class Late(Every, frozen=True):
    """Every `every`-th frame is held back until the next `behind` frames have passed it."""

    behind: int = Field(strict=True, ge=1)
    """Number of following frames that overtake it; less than `every`."""

    @model_validator(mode="after")
    def _one_at_a_time(self) -> Self:
        if self.behind >= self.every:
            raise ValueError(f"one frame is held back at a time: behind is less than every, {self.every}")
        return self

    def extents(self, frames: int) -> list[int]:
        """Return the number of frames that overtook each of the late ones among the first `frames`.

        That is the reordering extent (RFC 4737, section 4.2.1): the number of frames since the first that overtook it.
        At the end fewer frames may be left to overtake.
        """
        late = range(self.every - 1, frames, self.every)
        behind = [min(self.behind, frames - 1 - position) for position in late]
        return [extent for extent in behind if extent]


class Impairments(BaseModel, extra="forbid", frozen=True):
    """The impairments of the frames of each stream, counted from the first one of a trial; `delay` in seconds."""

    duplicate: Every | None = None
    """Frames that are sent twice."""
    late: Late | None = None
    """Frames that others overtake."""
    foreign: Every | None = None
    """Frames followed by one between the same addresses that does not belong to the stream."""
    delay: Seconds = 0.0
    """Shortest delay of a frame."""


class Ordering(Generic[Frame]):
    """The frames of one stream one by one, in the order of arrival and in the order of departure."""

    def __init__(self, impairments: Impairments) -> None:
        self._impairments = impairments
        self._taken = 0
        self._late: Frame | None = None
        self._to_pass = 0

    def take(self, frame: Frame) -> list[tuple[Frame, bool]]:
        """Return the frames to send after this one has come, in order, each with whether to make it foreign."""
        impairments = self._impairments
        self._taken += 1
        if impairments.late and self._taken % impairments.late.every == 0:
            self._late, self._to_pass = frame, impairments.late.behind
            return []
        out = [(frame, False)]
        if impairments.duplicate and self._taken % impairments.duplicate.every == 0:
            out.append((frame, False))
        if impairments.foreign and self._taken % impairments.foreign.every == 0:
            out.append((frame, True))
        if self._late is not None:
            self._to_pass -= 1
            if self._to_pass == 0:
                out += self.rest()
        return out

    def rest(self) -> list[tuple[Frame, bool]]:
        """Return the frame that is still held back, to be sent because no more frames seem to come."""
        late, self._late = self._late, None
        return [] if late is None else [(late, False)]


# From linux/if_packet.h and asm-generic/socket.h; missing in the socket module.
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_QDISC_BYPASS = 20
_PACKET_IGNORE_OUTGOING = 23
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_ETH_P_ALL = 3

_RECEIVE_BYTES = 64 << 20
_MOST_BYTES = 16384
_BATCH = 64
# A frame that is held back for others is sent when no frame has come for this time.
_QUIET_S = 0.02
_MAGIC = slice(42, 46)  # of pktgen's header, behind Ethernet, IPv4 and UDP


class _Forwarding:
    def __init__(self, ingress: str, egress: str, impairments: Impairments) -> None:
        self._impairments = impairments
        self._delay_ns = round(impairments.delay * 1e9)
        self._takes = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._takes.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
        self._takes.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._takes.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        self._takes.bind((ingress, _ETH_P_ALL))
        self._takes.setblocking(False)
        self._sends = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._sends.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
        self._sends.bind((egress, 0))
        self._waiting: deque[tuple[int, bytes]] = deque()  # frames to be sent, with their arrival time
        self.reset()

    def fileno(self) -> int:
        """Return the file that is readable when frames have come."""
        return self._takes.fileno()

    def reset(self) -> None:
        """Reset all counts, and discard waiting frames."""
        self._ordering: Ordering[tuple[int, bytes]] = Ordering(self._impairments)
        self._waiting.clear()
        self._statistics()
        self._taken = self._sent = self._dropped = 0
        self._held_ns = array("q")

    def report(self) -> dict[str, object]:
        """Return the counts since the last reset, in frames; how long frames were held, in ns."""
        self._dropped += self._statistics()
        held = [min(self._held_ns), int(median(self._held_ns)), max(self._held_ns)] if self._held_ns else None
        return {"taken": self._taken, "sent": self._sent, "dropped": self._dropped, "held_ns": held}

    def idle_s(self) -> float:
        """Return the time in seconds until the next frame is due, if no more frames come."""
        if not self._waiting:
            return _QUIET_S
        return max(0.0, (self._waiting[0][0] + self._delay_ns - time.time_ns()) / 1e9)

    def take(self) -> None:
        """Receive the waiting frames, and queue them in the order of the impairments."""
        for _ in range(_BATCH):
            try:
                frame, ancillary, _, _ = self._takes.recvmsg(_MOST_BYTES, 64)
            except BlockingIOError:
                return
            self._taken += 1
            self._queue(self._ordering.take((_stamp_ns(ancillary), frame)))

    def idle(self) -> None:
        """Queue the frames that were held back: no frame came for a while to overtake them. Only if no frame waits."""
        if not self._waiting:
            self._queue(self._ordering.rest())

    def send_due(self) -> None:
        """Send the frames whose delay has passed."""
        while self._waiting and time.time_ns() >= self._waiting[0][0] + self._delay_ns:
            came_ns, frame = self._waiting.popleft()
            self._send(frame)
            self._held_ns.append(time.time_ns() - came_ns)

    def _queue(self, frames: list[tuple[tuple[int, bytes], bool]]) -> None:
        for (came_ns, frame), foreign in frames:
            self._waiting.append((came_ns, _without_magic(frame) if foreign else frame))

    def _send(self, frame: bytes) -> None:
        while True:
            try:
                self._sends.send(frame)
            except OSError as error:
                if not isinstance(error, BlockingIOError) and error.errno != errno.ENOBUFS:  # full for a moment
                    raise
                continue
            self._sent += 1
            return

    def _statistics(self) -> int:
        """Return the frames lost to a full socket since the last call (packet(7): reading resets the count)."""
        counted = self._takes.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        return int.from_bytes(counted[4:8], sys.byteorder)


def _stamp_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """Return when the kernel received the frame, CLOCK_REALTIME in ns."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            return int.from_bytes(data[:8], sys.byteorder) * 1_000_000_000 + int.from_bytes(data[8:16], sys.byteorder)
    return time.time_ns()


def _without_magic(frame: bytes) -> bytes:
    return frame[: _MAGIC.start] + b"\0\0\0\0" + frame[_MAGIC.stop :]


def _answer(message: object) -> None:
    with contextlib.suppress(BrokenPipeError):  # the reader has gone: stdin ends too
        os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


def main(arguments: Sequence[str]) -> None:
    """Forward until stdin ends."""
    ingress, egress, impairments = arguments
    forwarder = _Forwarding(ingress, egress, Impairments.model_validate_json(impairments))
    stdin = sys.stdin.fileno()
    _answer(forwarder.report())
    while True:
        ready = select.select([forwarder, stdin], [], [], forwarder.idle_s())[0]
        if stdin in ready:
            request = os.read(stdin, 64)
            if not request:
                return
            if request.strip() == b"reset":
                forwarder.reset()
            _answer(forwarder.report())
        if forwarder in ready:
            forwarder.take()
        elif not ready:
            forwarder.idle()
        forwarder.send_due()


if __name__ == "__main__":
    main(sys.argv[1:])
