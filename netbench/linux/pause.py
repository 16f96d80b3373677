"""Pause frames (IEEE 802.3, annex 31B), by which an overloaded NIC makes its link partner wait.

Formats: linux/ethtool_netlink.h and the kernel's Documentation/networking/ethtool-netlink.rst,
"PAUSE_GET". Only hardware NICs count them (Documentation/networking/statistics.rst).
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from netbench.linux.netlink import Generic, attribute, attributes
from netbench.model.foreign_text import encoded

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
    """Return pause frames by interface; without interfaces that do not count them."""
    try:
        with Generic("ethtool") as ethtool:
            return {name: counted for name in interfaces for counted in _pause_frames(ethtool, name)}
    except OSError:
        return {}  # a kernel without ethtool by netlink: before 5.6


def _pause_frames(ethtool: Generic, interface: str) -> Iterator[PauseFrames]:
    flags = struct.pack("=I", _FLAG_STATS)
    about = attribute(_HEADER_DEV_NAME, encoded(interface) + b"\0") + attribute(_HEADER_FLAGS, flags)
    try:
        answer = ethtool.ask(_ETHTOOL_MSG_PAUSE_GET, attribute(_PAUSE_HEADER | _NESTED, about))
    except OSError:
        return  # its driver does not support pause frames
    stats = attributes(answer.get(_PAUSE_STATS, b""))
    if _RX_FRAMES in stats and _TX_FRAMES in stats:
        yield PauseFrames(*(struct.unpack("=Q", stats[kind])[0] for kind in (_RX_FRAMES, _TX_FRAMES)))
