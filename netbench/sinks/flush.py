"""Pushes captured frames out of the kernel: `python -m netbench.sinks.flush INTERFACE FRAMES CAPTURE SECONDS`.

The kernel hands captured frames to tcpdump a block at a time (TPACKET_V3, 256 KiB with libpcap 1.10): a
block that is not full waits up to a second, and is lost when tcpdump is stopped before. So once all
traffic has ended, frames that fill the block are sent out of the sink's own NIC, where tcpdump sees them
leave. They go to a MAC address that no bridge forwards (IEEE 802.1Q, table 8-1), and analysis knows them by it.

Ends with exit code 0 once CAPTURE ends with one of them, and with 3 when it does not within SECONDS. Runs in guests
too, by itself: of netbench it needs nothing, of Python the smallest standard library.
"""

import socket
import struct
import sys
import time

FLUSH_MAC = "01:80:c2:00:00:0f"

NOT_SEEN = 3

_FLUSH_BYTES = bytes.fromhex(FLUSH_MAC.replace(":", ""))
_TAIL_BYTES = 1 << 15
_POLL_S = 0.005
_QUEUE_FULL_RETRIES = 1000


def flush_frame(src_mac: str) -> bytes:
    """A 60-byte frame to FLUSH_MAC of the experimental EtherType 0x88b5 (IEEE 802)."""
    macs = _FLUSH_BYTES + bytes.fromhex(src_mac.replace(":", ""))
    return (macs + struct.pack(">H", 0x88B5)).ljust(60, b"\0")


def main() -> int:
    """Send the frames and wait for them; the exit code."""
    interface, count, capture, wait_s = sys.argv[1:]
    _send(interface, int(count))
    deadline = time.monotonic() + float(wait_s)
    while not _seen(capture):
        if time.monotonic() > deadline:
            return NOT_SEEN
        time.sleep(_POLL_S)
    return 0


def _send(interface: str, count: int) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.bind((interface, 0))
        frame = flush_frame(sender.getsockname()[4].hex(":"))
        for _ in range(count):
            for _ in range(_QUEUE_FULL_RETRIES):
                try:
                    sender.send(frame)
                    break
                except BlockingIOError:
                    continue
                except OSError as error:
                    if error.errno != 105:  # ENOBUFS: the NIC's queue is full for a moment
                        raise SystemExit(f"{interface}: {error.strerror}") from error


def _seen(capture: str) -> bool:
    try:
        with open(capture, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            return _FLUSH_BYTES in file.read()
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
