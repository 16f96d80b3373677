"""Test whether a guest receives frames: `python -m netbench.uut.reception_probe INTERFACE MAC` sends it one frame.

A NIC may have a carrier and still receive nothing: QEMU's e1000 pauses a second whenever its receiver is set up
(`set_rx_control` in its hw/net/e1000.c). The frame has the experimental EtherType 0x88b5 (IEEE 802), which no
kernel forwards. A host without netbench receives the text of this module: it imports nothing of netbench.
"""

import socket
import struct
import sys


def probe_frame(src_mac: str, dst_mac: str) -> bytes:
    """Return the frame, 60 bytes."""
    macs = bytes.fromhex((dst_mac + src_mac).replace(":", ""))
    return (macs + struct.pack(">H", 0x88B5)).ljust(60, b"\0")


def main() -> None:
    """Send the frame."""
    interface, dst_mac = sys.argv[1:]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.bind((interface, 0))
        sender.send(probe_frame(sender.getsockname()[4].hex(":"), dst_mac))


if __name__ == "__main__":
    main()
