"""Pushes captured frames out of the kernel: `python -m netbench.sinks.flush INTERFACE`.

The kernel passes captured frames to tcpdump a block at a time (TPACKET_V3, 256 KiB with libpcap 1.10). A block that is
not full waits up to a second, and is lost if tcpdump is stopped before. Therefore, once all traffic has ended, frames
that fill the block are sent out of the sink's own NIC, where tcpdump captures them as outgoing. They go to a MAC
address that no bridge forwards (IEEE 802.1Q, table 8-1), by which the analysis recognises them. Each contains the time
before it was sent, and the time when the sending of the previous one returned. From these times the analysis derives
which clock stamps the capture.

It is started once and receives one line per request in every trial, until stdin ends:

    → FRAMES SECONDS CAPTURE   ← "seen" once the file CAPTURE ends with one of them, "unseen" if not within SECONDS
    → FRAMES 0                 ← "unseen" once they are sent
    → learn FRAME,FRAME…       ← "unseen" once these learning frames, in hexadecimal, are sent
                               ← "failed: why"

It also runs alone in guests: it needs nothing of netbench, and only the smallest standard library of Python.
"""

import socket
import struct
import sys
import time

FLUSH_MAC = "01:80:c2:00:00:0f"

LEARN = "learn"
SEEN, UNSEEN, FAILED = "seen", "unseen", "failed"

_STAMP_AT = 14
_STAMP = struct.Struct(">8sIQQ")  # mark, number, and the two times: ns since 1970, 0 for the first one's
_STAMPED = b"nb-flush"

_FLUSH_BYTES = bytes.fromhex(FLUSH_MAC.replace(":", ""))
_TAIL_BYTES = 1 << 15
_POLL_S = 0.002
_QUEUE_FULL_RETRIES = 1000
_ENOBUFS = 105  # the NIC's queue is briefly full; importing errno would cost a guest more
_FRAME_BYTES = 60
# Learning frames are sent in small groups with pauses, at most 10,000 frames/s, so that no short queue overflows.
_GROUP_FRAMES, _PAUSE_S = 10, 0.001


def flush_frame(src_mac: str, dst_mac: str = FLUSH_MAC) -> bytes:
    """Return a 60-byte frame to FLUSH_MAC or another address, of the experimental EtherType 0x88b5 (IEEE 802)."""
    return padded(bytes.fromhex((dst_mac + src_mac).replace(":", "")))


def padded(header: bytes) -> bytes:
    """Return a 60-byte frame with this header (MAC addresses and tags), of the experimental EtherType 0x88b5."""
    return (header + struct.pack(">H", 0x88B5)).ljust(_FRAME_BYTES, b"\0")


def send_paced(sender: socket.socket, frames: list[bytes]) -> None:
    """Send frames with pauses; OSError if that is impossible."""
    for number, frame in enumerate(frames):
        if number and number % _GROUP_FRAMES == 0:
            time.sleep(_PAUSE_S)
        _send(sender, frame)


def _send(sender: socket.socket, frame: bytes) -> bool:
    """Send a frame, again while the NIC's queue is full; return False if that takes too long."""
    for _ in range(_QUEUE_FULL_RETRIES):
        try:
            sender.send(frame)
            return True
        except BlockingIOError:
            continue
        except OSError as error:
            if error.errno != _ENOBUFS:
                raise
    return False


def main() -> None:
    """Execute the lines of stdin until it ends."""
    interface = sys.argv[1]
    sender = FlushSender(interface)
    for line in sys.stdin:
        count, word, *capture = line.split(maxsplit=2)
        try:
            if count == LEARN:
                sender.send_learning([bytes.fromhex(frame) for frame in word.strip().split(",")])
            else:
                sender.send(int(count))
        except OSError as error:
            print(f"{FAILED}: {interface}: {error.strerror}", flush=True)
            continue
        seen = bool(capture) and _appears(capture[0].rstrip("\n"), float(word))
        print(SEEN if seen else UNSEEN, flush=True)


class FlushSender:
    """A sender on one NIC with one socket, which stays open because closing takes the kernel 15 ms (RCU)."""

    def __init__(self, interface: str) -> None:
        self._interface = interface
        self._socket: socket.socket | None = None

    def send(self, count: int) -> None:
        """Send so many flush frames; OSError if that is impossible."""
        sender = self._bound()
        frame = bytearray(flush_frame(sender.getsockname()[4].hex(":")))
        returned_ns = 0
        for number in range(count):
            _STAMP.pack_into(frame, _STAMP_AT, _STAMPED, number, time.time_ns(), returned_ns)
            if _send(sender, bytes(frame)):
                returned_ns = time.time_ns()

    def send_learning(self, frames: list[bytes]) -> None:
        """Send learning frames; OSError if that is impossible."""
        send_paced(self._bound(), frames)

    def _bound(self) -> socket.socket:
        """Return the socket, bound to the NIC again: another interface of the same name may have replaced it."""
        sender = self._socket = self._socket or socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sender.bind((self._interface, 0))
        return sender


def _appears(capture: str, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while not (seen := _ends_flushed(capture)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return seen


def _ends_flushed(capture: str) -> bool:
    try:
        with open(capture, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            return _FLUSH_BYTES in file.read()
    except OSError:
        return False  # not written yet


if __name__ == "__main__":
    main()
