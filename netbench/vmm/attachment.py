"""How a guest's NIC is attached to its machine: the changes that create the machine's end, for every VMM."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from netbench.linux.changes import AddMacvtap, AddTap, AddVeth, Change


class Attachment(Protocol):
    """One way to attach a guest's NIC: an interface of the machine whose other end is in the guest.

    A bridge joins it to a NIC of the machine. With `on_nic` it is created on top of that NIC and uses it exclusively.
    """

    kind: ClassVar[str]  # part of the names of its counting points: `ingress tap`
    needs: ClassVar[frozenset[str]]  # what it requires of the machine, as `netbench doctor` names it
    on_nic: ClassVar[bool] = False
    # Which counter of the machine counts frames to the guest: sent into the interface (tx), or received by it (rx).
    to_guest: ClassVar[Literal["rx", "tx"]] = "tx"
    # Fields of NicCounters that count dropped frames to the guest, in addition to the drops in that direction.
    dropped_too: ClassVar[tuple[str, ...]] = ()

    def changes(self, netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
        """Return the changes that create `interface` in that namespace of the machine, for its NIC `nic`.

        `mac` is the address of the guest's end. No changes where the guest's VMM creates the interface.
        """


@dataclass(frozen=True, slots=True)
class Tap(Attachment):
    """A tap: the guest's end is a virtual NIC that its VMM emulates."""

    kind: ClassVar[str] = "tap"
    needs: ClassVar[frozenset[str]] = frozenset({"tun"})

    queues: int = 1

    def changes(self, netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
        yield AddTap(netns, interface, self.queues)


@dataclass(frozen=True, slots=True)
class Macvtap(Attachment):
    """A tap on a NIC of the machine that only the guest uses: it receives all frames of the NIC, without a bridge.

    Its rx counter counts the frames to the guest, including those dropped for lack of room (macvlan.c, tap.c).
    """

    kind: ClassVar[str] = "macvtap"
    needs: ClassVar[frozenset[str]] = frozenset({"macvtap"})
    on_nic: ClassVar[bool] = True
    to_guest: ClassVar[Literal["rx", "tx"]] = "rx"

    def changes(self, netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
        yield AddMacvtap(netns, interface, nic)


@dataclass(frozen=True, slots=True)
class Veth(Attachment):
    """A pair of virtual Ethernet interfaces: the guest's end is in the named network namespace of the guest."""

    kind: ClassVar[str] = "veth"
    needs: ClassVar[frozenset[str]] = frozenset({"veth"})

    guest_netns: str

    def changes(self, netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
        yield AddVeth(netns, interface, host_mac(mac), self.guest_netns, interface, mac)


def host_mac(mac: str) -> str:
    """Return the MAC address of the machine's end of a pair: locally administered; guests' begin with 02:6e:67."""
    return f"02:6e:68{mac[8:]}"
