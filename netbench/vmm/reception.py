"""Whether a guest takes frames: `python -m netbench.vmm.reception INTERFACE MAC` sends one to it.

A NIC may have a carrier and still take nothing: QEMU's e1000 waits a second whenever its receiver is set up
(`set_rx_control` in its hw/net/e1000.c). The frame is of the experimental EtherType 0x88b5 (IEEE 802), which no
kernel forwards. A host that has no netbench is given the text of this module: it imports nothing of netbench.
"""

import socket
import struct
import sys


def probe_frame(src_mac: str, dst_mac: str) -> bytes:
    """The 60 bytes of it."""
    macs = bytes.fromhex((dst_mac + src_mac).replace(":", ""))
    return (macs + struct.pack(">H", 0x88B5)).ljust(60, b"\0")


def main() -> None:
    """Send it."""
    interface, dst_mac = sys.argv[1:]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.bind((interface, 0))
        sender.send(probe_frame(sender.getsockname()[4].hex(":"), dst_mac))


if __name__ == "__main__":
    main()
