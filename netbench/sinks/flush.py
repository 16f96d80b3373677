"""Pushes captured frames out of the kernel: `python -m netbench.sinks.flush INTERFACE FRAMES`.

The kernel hands captured frames to tcpdump a block at a time (TPACKET_V3, 256 KiB with libpcap 1.10): a
block that is not full waits up to a second, and is lost when tcpdump is stopped before. So once all
traffic has ended, frames that fill the block are sent out of the sink's own NIC, where tcpdump sees them
leave. They go to a MAC address that no bridge forwards (IEEE 802.1Q, table 8-1), and analysis knows them by it.
"""

import socket
import struct
import sys

FLUSH_MAC = "01:80:c2:00:00:0f"

_QUEUE_FULL_RETRIES = 1000


def flush_frame(src_mac: str) -> bytes:
    """A 60-byte frame to FLUSH_MAC of the experimental EtherType 0x88b5 (IEEE 802)."""
    macs = bytes.fromhex((FLUSH_MAC + src_mac).replace(":", ""))
    return (macs + struct.pack(">H", 0x88B5)).ljust(60, b"\0")


def main() -> None:
    """Send the frames."""
    interface, count = sys.argv[1], int(sys.argv[2])
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


if __name__ == "__main__":
    main()
