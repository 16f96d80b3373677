"""What is attached to interfaces so that it may drop frames or hand them over: XDP programs, bridges' own settings.

Asked from inside their namespace. Formats: linux/rtnetlink.h, linux/if_link.h. Not by pyroute2, which asks for an
acknowledgement beside the answer and keeps it in its queue for ever: some 15 kB of memory with what lies around it.
"""

import socket
import struct
import sys
from typing import NamedTuple

from netbench.linux.netlink import ask, attributes

_RTM_GETLINK = 18
_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
_IFLA_MASTER, _IFLA_LINKINFO, _IFLA_XDP = 10, 18, 43
_IFLA_INFO_DATA, _IFLA_XDP_ATTACHED, _IFLA_BR_NF_CALL_IPTABLES = 2, 2, 36


class Attached(NamedTuple):
    """Which of some interfaces have an XDP program, and whether a bridge of theirs asks for br_netfilter by itself.

    The latter is `nf_call_iptables` of ip-link(8).
    """

    xdp: frozenset[str]
    bridged_ip: bool


def read_attached(indices: dict[str, int]) -> Attached:
    """What is attached to interfaces, given by name and index; one that is gone has nothing attached."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
        links = {name: _link(asked, index) for name, index in indices.items()}
        bridges = {_number(link.get(_IFLA_MASTER, b"")) for link in links.values()} - {0}
        return Attached(
            xdp=frozenset(
                name for name, link in links.items() if _number(_nested(link, _IFLA_XDP, _IFLA_XDP_ATTACHED))
            ),
            bridged_ip=any(_calls_iptables(_link(asked, index)) for index in bridges),
        )


def _link(asked: socket.socket, index: int) -> dict[int, bytes]:
    try:
        (answer,) = ask(asked, _RTM_GETLINK, _LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0))
    except OSError:
        return {}  # it is gone
    return attributes(answer[_LINK.size :])


def _calls_iptables(bridge: dict[int, bytes]) -> bool:
    return _number(_nested(bridge, _IFLA_LINKINFO, _IFLA_INFO_DATA, _IFLA_BR_NF_CALL_IPTABLES)) != 0


def _nested(link: dict[int, bytes], *path: int) -> bytes:
    content = link.get(path[0], b"")
    for kind in path[1:]:
        content = attributes(content).get(kind, b"")
    return content


def _number(content: bytes) -> int:
    return int.from_bytes(content, sys.byteorder)
