"""How a NIC of a guest meets its machine: what makes the machine's end of it, whoever runs the guest."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from netbench.linux.changes import AddTap, AddVeth, Change


class Attachment(Protocol):
    """One way to attach a guest's NIC: an interface of the machine, whose other end the guest has."""

    kind: ClassVar[str]  # in the names of the places where it counts frames: `ingress tap`
    needs: ClassVar[frozenset[str]]  # what the machine must be able to do for it, in the words of `netbench doctor`

    def changes(self, netns: str | None, interface: str, mac: str) -> Iterator[Change]:
        """What makes `interface` in that namespace of the machine; `mac` is that of the guest's end.

        Nothing where the guest's VMM makes it.
        """


@dataclass(frozen=True, slots=True)
class Tap:
    """A tap: the guest's end is a virtual NIC that its VMM emulates."""

    kind: ClassVar[str] = "tap"
    needs: ClassVar[frozenset[str]] = frozenset({"tun"})

    queues: int = 1

    def changes(self, netns: str | None, interface: str, mac: str) -> Iterator[Change]:
        yield AddTap(netns, interface, self.queues)


@dataclass(frozen=True, slots=True)
class Veth:
    """A pair of virtual Ethernet interfaces: the guest's end is in a named network namespace, that of the guest."""

    kind: ClassVar[str] = "veth"
    needs: ClassVar[frozenset[str]] = frozenset({"veth"})

    guest_netns: str

    def changes(self, netns: str | None, interface: str, mac: str) -> Iterator[Change]:
        yield AddVeth(netns, interface, host_mac(mac), self.guest_netns, interface, mac)


def host_mac(mac: str) -> str:
    """The address of the machine's end of a pair: locally administered, and no guest's, which begin with 02:6e:67."""
    return f"02:6e:68{mac[8:]}"
