"""How a guest's NICs are attached to the host: each bridged to its own NIC of the host, through a tap."""

from collections.abc import Iterator, Mapping, Sequence

from netbench.errors import TestbedError
from netbench.linux.changes import (
    AddBridge,
    AddForwardingEntry,
    AddTap,
    Change,
    Enslave,
    SetSysctl,
    SetUp,
)
from netbench.linux.kernel import Kernel
from netbench.model.names import PREFIX
from netbench.model.paths import Nic, Place, StreamPath
from netbench.model.points import HopPoint, HopReading
from netbench.uut.forwarding import forwards, inside_nics, no_bridge_netfilter

_ROLES = ("ingress", "egress")


def tap_name(path: StreamPath, role: str) -> str:
    """The tap behind a stream's `ingress` or `egress` NIC."""
    return f"{PREFIX}t{role[0]}-{path.name}"


def tap_changes(paths: Sequence[StreamPath], queues: int, towards: dict[str, str]) -> Iterator[Change]:
    """A tap and a bridge for each NIC; `towards` is the MAC address that each stream's frames come in with."""
    yield from no_bridge_netfilter(paths)
    for path in paths:
        ingress, egress = inside_nics(path)
        yield from _attach(path, "ingress", ingress, queues)
        yield AddForwardingEntry(ingress.netns, tap_name(path, "ingress"), towards[path.name])
        yield from _attach(path, "egress", egress, queues)
        yield AddForwardingEntry(egress.netns, egress.interface, path.sink.mac)


def tap_places(paths: Sequence[StreamPath]) -> list[Place]:
    """Where the taps are."""
    return [_tap_place(path, role) for path in paths for role in _ROLES]


def host_places(paths: Sequence[StreamPath]) -> list[Place]:
    """All NICs of the host between which a guest forwards: its own, and the taps."""
    return [*(nic.place for path in paths for nic in inside_nics(path)), *tap_places(paths)]


def bridges(kernel: Kernel, paths: Sequence[StreamPath]) -> dict[Place, int]:
    """The index of the bridge that each NIC of the host is a port of."""
    return {place: nic.master for place, nic in kernel.read_nics(host_places(paths)).items()}


def read_taps(
    kernel: Kernel, paths: Sequence[StreamPath], attached: Mapping[Place, int], guest: str
) -> list[HopReading]:
    """What the taps of a guest have counted.

    TestbedError when a tap is gone, and when anything is not `attached` to its bridge, or not up, any more.
    """
    counted = kernel.read_nics(host_places(paths))
    for place in tap_places(paths):
        if place not in counted:
            raise TestbedError(f"{guest}: its tap {place.interface} is gone")
    for place, nic in counted.items():
        if nic.master != attached.get(place):
            raise TestbedError(f"{guest}: {place.interface} is not attached to its bridge any more")
        if not forwards(nic):
            raise TestbedError(f"{guest}: {place.interface} is down")
    found = []
    for path in paths:
        for role in _ROLES:
            place = _tap_place(path, role)
            # What the host sends into a tap, the guest receives.
            direction = "tx" if role == "ingress" else "rx"
            for counter, kind in ((direction, "passed"), (f"{direction}_dropped", "dropped")):
                found.append(HopReading(path.name, f"{role} tap", counter, kind, getattr(counted[place], counter)))
    return found


def tap_points(paths: Sequence[StreamPath]) -> tuple[HopPoint, ...]:
    """The taps as hops: what the host sends into one, the guest receives."""
    return tuple(
        HopPoint(path.name, f"{role} tap", _tap_place(path, role), "tx" if role == "ingress" else "rx")
        for path in paths
        for role in _ROLES
    )


def _tap_place(path: StreamPath, role: str) -> Place:
    nic = inside_nics(path)[_ROLES.index(role)]
    return nic.place._replace(interface=tap_name(path, role))


def _attach(path: StreamPath, role: str, nic: Nic, queues: int) -> Iterator[Change]:
    bridge, tap = f"{PREFIX}b{role[0]}-{path.name}", tap_name(path, role)
    yield AddTap(nic.netns, tap, queues)
    yield AddBridge(nic.netns, bridge)
    if nic.netns is None:
        # In a namespace of ours IPv6 is off for all; here both would speak up among our frames.
        for interface in (bridge, tap):
            yield SetSysctl(None, f"net.ipv6.conf.{interface}.disable_ipv6", "1", optional=True)
    yield Enslave(nic.netns, nic.interface, bridge)
    yield Enslave(nic.netns, tap, bridge)
    yield SetUp(nic.netns, tap)
    yield SetUp(nic.netns, bridge)
