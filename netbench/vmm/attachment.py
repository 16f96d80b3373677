"""How a guest's NIC is attached to its machine: the changes that create the machine's end, for every VMM."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from netbench.linux.changes import AddMacvtap, AddTap, AddVeth, Change


@dataclass(frozen=True, slots=True)
class Attachment:
    """One way to attach a guest's NIC: an interface of the machine whose other end is in the guest.

    A bridge joins it to a NIC of the machine. With `on_nic` it is created on top of that NIC and uses it exclusively.
    """

    kind: str  # part of the names of its counting points: `ingress tap`
    needs: frozenset[str]  # what it requires of the machine, as `netbench doctor` names it
    # The changes that create an interface in a namespace of the machine (None: outside all): that namespace, the
    # interface, the MAC address of the guest's end, the machine's NIC. None where the guest's VMM creates it.
    changes: Callable[[str | None, str, str, str], Iterable[Change]]
    on_nic: bool = False
    # Which counter of the machine counts frames to the guest: sent into the interface (tx), or received by it (rx).
    to_guest: Literal["rx", "tx"] = "tx"
    # Fields of NicCounters that count dropped frames to the guest, in addition to the drops in that direction.
    dropped_too: tuple[str, ...] = ()


def tap(queues: int = 1) -> Attachment:
    """Return a tap: the guest's end is a virtual NIC that its VMM emulates."""
    return Attachment("tap", frozenset({"tun"}), lambda netns, interface, mac, nic: [AddTap(netns, interface, queues)])


def macvtap() -> Attachment:
    """Return a tap on a NIC that only the guest uses: it receives all frames of the NIC, without a bridge.

    Its rx counter counts the frames to the guest, including those dropped for lack of room (macvlan.c, tap.c).
    """
    return Attachment(
        "macvtap",
        frozenset({"macvtap"}),
        lambda netns, interface, mac, nic: [AddMacvtap(netns, interface, nic)],
        on_nic=True,
        to_guest="rx",
    )


def veth(guest_netns: str) -> Attachment:
    """Return a pair of virtual Ethernet interfaces: the guest's end is in the named network namespace of the guest."""

    def changes(netns: str | None, interface: str, mac: str, nic: str) -> Iterable[Change]:
        yield AddVeth(netns, interface, host_mac(mac), guest_netns, interface, mac)

    return Attachment("veth", frozenset({"veth"}), changes)


def host_mac(mac: str) -> str:
    """Return the MAC address of the machine's end of a pair: locally administered; guests' begin with 02:6e:67."""
    return f"02:6e:68{mac[8:]}"
