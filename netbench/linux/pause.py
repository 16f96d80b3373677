"""Pause frames (IEEE 802.3, annex 31B), by which a NIC that cannot keep up makes its link partner wait.

Formats: linux/genetlink.h, linux/ethtool_netlink.h and the kernel's Documentation/networking/ethtool-netlink.rst,
"PAUSE_GET". Only NICs with hardware of their own count them (Documentation/networking/statistics.rst).
"""

import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from netbench.linux.netlink import ask, attribute, attributes

_NETLINK_GENERIC = 16
_GENERIC = struct.Struct("=BBH")  # genlmsghdr: command, version, reserved
_GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, _CTRL_ATTR_FAMILY_ID, _CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2
_ETHTOOL_MSG_PAUSE_GET = 21
_PAUSE_HEADER, _PAUSE_STATS = 1, 5
_HEADER_DEV_NAME, _HEADER_FLAGS = 2, 3
_NESTED, _FLAG_STATS = 0x8000, 1 << 2
_TX_FRAMES, _RX_FRAMES = 2, 3


class PauseFrames(NamedTuple):
    """Pause frames that a NIC has received and sent."""

    rx: int
    tx: int


def read_pause_frames(interfaces: Iterable[str]) -> dict[str, PauseFrames]:
    """By interface; one that does not count them is left out."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC) as asked:
            family = _family(asked)
            return {name: counted for name in interfaces for counted in _pause_frames(asked, family, name)}
    except OSError:
        return {}  # a kernel that does not speak of ethtool by netlink: before 5.6


def _family(asked: socket.socket) -> int:
    name = attribute(_CTRL_ATTR_FAMILY_NAME, b"ethtool\0")
    (answer,) = ask(asked, _GENL_ID_CTRL, _GENERIC.pack(_CTRL_CMD_GETFAMILY, 1, 0) + name)
    return int.from_bytes(attributes(answer[_GENERIC.size :])[_CTRL_ATTR_FAMILY_ID], sys.byteorder)


def _pause_frames(asked: socket.socket, family: int, interface: str) -> Iterator[PauseFrames]:
    flags = struct.pack("=I", _FLAG_STATS)
    about = attribute(_HEADER_DEV_NAME, interface.encode() + b"\0") + attribute(_HEADER_FLAGS, flags)
    request = _GENERIC.pack(_ETHTOOL_MSG_PAUSE_GET, 1, 0) + attribute(_PAUSE_HEADER | _NESTED, about)
    try:
        (answer,) = ask(asked, family, request)
    except OSError:
        return  # its driver knows nothing of pause frames
    stats = attributes(attributes(answer[_GENERIC.size :]).get(_PAUSE_STATS, b""))
    if _RX_FRAMES in stats and _TX_FRAMES in stats:
        yield PauseFrames(*(struct.unpack("=Q", stats[kind])[0] for kind in (_RX_FRAMES, _TX_FRAMES)))
