"""How a NIC of a guest meets its machine: what makes the machine's end of it, whoever runs the guest."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from netbench.linux.changes import AddMacvtap, AddTap, AddVeth, Change


class Attachment(Protocol):
    """One way to attach a guest's NIC: an interface of the machine, whose other end the guest has.

    A bridge joins it to a NIC of the machine, unless it is `on_nic`: made over that NIC, which is its own then.
    """

    kind: ClassVar[str]  # in the names of the places where it counts frames: `ingress tap`
    needs: ClassVar[frozenset[str]]  # what the machine must be able to do for it, in the words of `netbench doctor`
    on_nic: ClassVar[bool] = False
    # What the machine counts of frames to the guest: those that it sends into the interface (tx), or takes in by it.
    to_guest: ClassVar[Literal["rx", "tx"]] = "tx"
    # What else of NicCounters counts frames to the guest that were dropped, beside those dropped that way.
    dropped_too: ClassVar[tuple[str, ...]] = ()

    def changes(self, netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
        """What makes `interface` in that namespace of the machine for its NIC `nic`; `mac` is that of the guest's end.

        Nothing where the guest's VMM makes it.
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
    """A tap over the machine's NIC, which is the guest's alone: all its frames go there, and no bridge is passed.

    Frames to the guest are received by it, and those that it has no room for are among them (macvlan.c, tap.c).
    """

    kind: ClassVar[str] = "macvtap"
    needs: ClassVar[frozenset[str]] = frozenset({"macvtap"})
    on_nic: ClassVar[bool] = True
    to_guest: ClassVar[Literal["rx", "tx"]] = "rx"

    def changes(self, netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
        yield AddMacvtap(netns, interface, nic)


@dataclass(frozen=True, slots=True)
class Veth(Attachment):
    """A pair of virtual Ethernet interfaces: the guest's end is in a named network namespace, that of the guest."""

    kind: ClassVar[str] = "veth"
    needs: ClassVar[frozenset[str]] = frozenset({"veth"})

    guest_netns: str

    def changes(self, netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
        yield AddVeth(netns, interface, host_mac(mac), self.guest_netns, interface, mac)


def host_mac(mac: str) -> str:
    """The address of the machine's end of a pair: locally administered, and no guest's, which begin with 02:6e:67."""
    return f"02:6e:68{mac[8:]}"
