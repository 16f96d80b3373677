"""What interfaces support for XDP programs, read by netlink in the namespace of the calling thread.

Formats: linux/netdev.h (Linux 6.3 and newer), linux/rtnetlink.h and linux/if_link.h.
"""

import struct
from dataclasses import dataclass

from netbench.linux.netlink import attribute, generic_netlink, nested, number, request_links, route_socket, text
from netbench.linux.proc import driver_of

_NETDEV_CMD_DEV_GET, _NETDEV_IFINDEX, _NETDEV_XDP_FEATURES = 1, 1, 3
_RUNS_PROGRAMS, _TAKES_FRAMES = 1 << 0, 1 << 2  # NETDEV_XDP_ACT_BASIC, NETDEV_XDP_ACT_NDO_XMIT
_IFLA_MTU, _IFLA_LINKINFO, _IFLA_INFO_KIND = 4, 18, 1
_IFLA_XDP, _IFLA_XDP_ATTACHED, _XDP_ATTACHED_DRV = 43, 2, 1
# Drivers in kernels before 6.3, which do not report features: the first accepts frames while a program is attached
# (virtnet_xdp_xmit of drivers/net/virtio_net.c), the others do not support XDP.
_WITH_PROGRAM, _WITHOUT_XDP = ("virtio_net",), ("e1000", "e1000e", "vmxnet3")


@dataclass(frozen=True, slots=True)
class XdpDevice:
    """An interface. `kind` is the kernel's kind of virtual ones (`veth`, `dummy`), else its driver, empty if unknown.

    `takes_frames`: whether it sends the frames that a program redirects to it (ndo_xdp_xmit). `runs_programs`: whether
    its driver runs programs. Both are None where the kernel does not report it. `alters_frames`: its driver puts a
    header in front of a live frame, which a kernel before 6.3 does not remove when it reuses the frame (test_run.c of
    its net/bpf).
    """

    index: int
    mtu: int
    up: bool  # and its link is up
    kind: str
    takes_frames: bool | None
    runs_programs: bool | None
    alters_frames: bool = False


def xdp_device(interface: str) -> XdpDevice:
    """Return an interface by name; OSError (ENODEV) when there is none."""
    with route_socket() as netlink:
        (link,) = request_links(netlink, name=interface)
    contents = link.attributes
    kind = text(nested(contents, _IFLA_LINKINFO, _IFLA_INFO_KIND)) or driver_of(interface) or ""
    reported = _features(link.index)
    features = reported
    if reported is None:
        features = _features_by_driver(kind, nested(contents, _IFLA_XDP, _IFLA_XDP_ATTACHED))
    return XdpDevice(
        link.index,
        number(contents[_IFLA_MTU]),
        link.is_up,
        kind,
        None if features is None else bool(features & _TAKES_FRAMES),
        None if features is None else bool(features & _RUNS_PROGRAMS),
        alters_frames=reported is None and kind in _WITH_PROGRAM,
    )


def _features_by_driver(driver: str, attached: bytes) -> int | None:
    """Return the features of a known driver; `attached` is nonzero while it runs a program."""
    if driver in _WITHOUT_XDP:
        return 0
    if driver in _WITH_PROGRAM:
        return _RUNS_PROGRAMS | (_TAKES_FRAMES if number(attached) == _XDP_ATTACHED_DRV else 0)
    return None


def _features(index: int) -> int | None:
    try:
        with generic_netlink("netdev") as netdev:
            answer = netdev(_NETDEV_CMD_DEV_GET, attribute(_NETDEV_IFINDEX, struct.pack("=I", index)))
    except OSError:
        return None
    return number(answer[_NETDEV_XDP_FEATURES])
