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
    → learn MAC                ← "unseen" once a learning frame is sent to MAC, from which bridges learn the NIC's port
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


def flush_frame(src_mac: str, dst_mac: str = FLUSH_MAC) -> bytes:
    """Return a 60-byte frame to FLUSH_MAC or another address, of the experimental EtherType 0x88b5 (IEEE 802)."""
    macs = bytes.fromhex((dst_mac + src_mac).replace(":", ""))
    return (macs + struct.pack(">H", 0x88B5)).ljust(60, b"\0")


def main() -> None:
    """Execute the lines of stdin until it ends."""
    interface = sys.argv[1]
    sender = FlushSender(interface)
    for line in sys.stdin:
        count, word, *capture = line.split(maxsplit=2)
        try:
            if count == LEARN:
                sender.send(1, word)
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

    def send(self, count: int, dst_mac: str = FLUSH_MAC) -> None:
        """Send so many frames; OSError if that is impossible."""
        sender = self._socket = self._socket or socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sender.bind((self._interface, 0))  # again: another interface of the same name may have replaced it
        frame = bytearray(flush_frame(sender.getsockname()[4].hex(":"), dst_mac))
        returned_ns = 0
        for number in range(count):
            _STAMP.pack_into(frame, _STAMP_AT, _STAMPED, number, time.time_ns(), returned_ns)
            for _ in range(_QUEUE_FULL_RETRIES):
                try:
                    sender.send(frame)
                    returned_ns = time.time_ns()
                    break
                except BlockingIOError:
                    continue
                except OSError as error:
                    if error.errno != _ENOBUFS:
                        raise


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
