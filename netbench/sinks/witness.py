"""Prints frames as they arrive at an interface, with tags: `python -m netbench.sinks.witness INTERFACE PATTERN…`.

A pattern is a sequence of bytes in hexadecimal. A line is printed for each incoming frame with a pattern in its first
bytes, until stdin ends. It contains the length in bytes without FCS, the tag that the kernel removed (TPID and TCI in
hexadecimal, or `-`), and the first bytes in hexadecimal. The first line is `listens`.

It also runs alone in guests: it needs nothing of netbench, and only the smallest standard library of Python.
"""

import select
import socket
import struct
import sys

LISTENS = "listens"

_FIRST_BYTES = 128
_MOST_FRAMES = 32
_EXTRA_BYTES = 256
# linux/if_packet.h, linux/if_ether.h
_SOL_PACKET, _PACKET_AUXDATA, _PACKET_OUTGOING, _ETH_P_ALL = 263, 8, 4, 3
_AUXDATA = struct.Struct("=IIIHHHH")  # status, length, captured, link layer, network layer, TCI, TPID
_VLAN_VALID, _VLAN_TPID_VALID = 1 << 4, 1 << 6
_DOT1Q = 0x8100


def main() -> None:
    """Print matching incoming frames until stdin ends."""
    interface, *patterns = sys.argv[1:]
    wanted = [bytes.fromhex(pattern) for pattern in patterns]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as opened:
        opened.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        opened.bind((interface, _ETH_P_ALL))
        print(LISTENS, flush=True)
        shown = 0
        while True:
            readable = select.select([opened, sys.stdin], [], [])[0]
            if opened not in readable:  # all frames were read before
                return
            data, extras, _, address = opened.recvmsg(_FIRST_BYTES, _EXTRA_BYTES)
            if address[2] != _PACKET_OUTGOING and shown < _MOST_FRAMES and any(pattern in data for pattern in wanted):
                (extra,) = (value for level, kind, value in extras if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA))
                length, tag = length_and_tag(extra)
                print(length, tag, data.hex(), flush=True)
                shown += 1


def length_and_tag(auxdata: bytes) -> tuple[int, str]:
    """Return the length of a frame, and the tag that the kernel removed from it, from its tpacket_auxdata."""
    status, length, _, _, _, tci, tpid = _AUXDATA.unpack_from(auxdata)
    if not status & _VLAN_VALID:
        return length, "-"
    return length, f"{tpid if status & _VLAN_TPID_VALID else _DOT1Q:04x}{tci:04x}"


if __name__ == "__main__":
    main()
