"""What an interface is, beside what it counts. Asked by netlink, in the namespace of the calling thread.

Formats: linux/rtnetlink.h and linux/if_link.h; of features linux/ethtool_netlink.h, and "FEATURES_GET" and "Bit sets"
of the kernel's Documentation/networking/ethtool-netlink.rst.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from netbench.linux.netlink import Generic, ask, attribute, attributes, each_attribute, nested, number, route_socket

_RTM_GETLINK = 18
_LINK = struct.Struct("=16x")  # ifinfomsg: any
_IFLA_IFNAME, _IFLA_MTU, _IFLA_LINKINFO, _IFLA_INFO_KIND = 3, 4, 18, 1
_FEATURES_GET, _FEATURES_HEADER, _HEADER_DEV_NAME, _FEATURES_ACTIVE = 11, 1, 2, 4
_BITSET_BITS, _BIT_NAME = 3, 2
_NESTED = 0x8000


@dataclass(frozen=True, slots=True)
class NicFacts:
    """`kind` is that of the kernel (`veth`, `bridge`, …), None for a NIC; `mtu` is in bytes.

    `features` are those that are on, by the kernel's names (`ethtool -k` groups some of them), None where it does not
    tell: before Linux 5.6.
    """

    kind: str | None
    mtu: int
    features: list[str] | None


def nic_facts(interface: str) -> NicFacts | None:
    """Of the interface of a name; None when there is none."""
    name = interface.encode() + b"\0"
    try:
        with route_socket() as asked:
            (answer,) = ask(asked, _RTM_GETLINK, _LINK.pack() + attribute(_IFLA_IFNAME, name))
    except OSError:
        return None
    found = attributes(answer[_LINK.size :])
    kind = nested(found, _IFLA_LINKINFO, _IFLA_INFO_KIND).rstrip(b"\0").decode()
    return NicFacts(kind or None, number(found[_IFLA_MTU]), _features(name))


def _features(name: bytes) -> list[str] | None:
    about = attribute(_FEATURES_HEADER | _NESTED, attribute(_HEADER_DEV_NAME, name))
    try:
        with Generic("ethtool") as ethtool:
            answer = ethtool.ask(_FEATURES_GET, about)
    except OSError:
        return None
    bits = each_attribute(nested(answer, _FEATURES_ACTIVE, _BITSET_BITS))
    return sorted(attributes(bit)[_BIT_NAME].rstrip(b"\0").decode() for _, bit in bits)


def driver_of(name: str) -> str | None:
    """The driver of an interface of netbench's own namespace; None where /sys does not tell."""
    try:
        return Path("/sys/class/net", name, "device/driver").readlink().name
    except OSError:
        return None


def speed_mbps_of(name: str) -> int | None:
    """Its speed, likewise."""
    try:
        speed = int(Path("/sys/class/net", name, "speed").read_text())
    except (OSError, ValueError):
        return None
    return speed if speed > 0 else None
