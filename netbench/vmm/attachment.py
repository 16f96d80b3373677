"""How a guest's NIC is attached to its machine: the changes that create the machine's end, for every VMM.

Also the private networks of guests that serve only: their addresses, and the port of the machine that leads to them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from netbench.linux.changes import AddMacvlan, AddMacvtap, AddTap, AddVeth, Change
from netbench.linux.requirements import IN_NETNS, Feature, Probes
from netbench.model.paths import StreamPath, server_port
from netbench.model.traffic import PREFIX_LENGTH

PrivateNetworkKind = Literal["nat", "user", "passt"]
# Values of the option `attachment` with which a guest is in a private network: it serves, and forwards no frames.
NETWORKS: Mapping[str, str] = {
    "nat": "NAT",
    "user": "user networking (SLIRP)",
    "passt": "user networking (passt)",
}
# Of these, the ones with which a process of the machine ends all connections of clients.
ENDING = ("user", "passt")
MASQUERADE = Feature(
    "masquerade",
    "guests with `attachment: nat`",
    (*IN_NETNS, "nft"),
    "CONFIG_NFT_MASQ and CONFIG_NFT_NAT",
    "nft_masq",
    Probes.masquerade,
    optional=True,
)


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
    # Whether the machine has an interface for the guest's NIC; otherwise nothing is counted between NIC and guest.
    has_interface: bool = True


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


def macvlan(guest_netns: str) -> Attachment:
    """Return a virtual NIC with a separate MAC address, in the named network namespace of the guest.

    It is made on a NIC of the machine (mode bridge) and receives only frames to its MAC address, and broadcasts.
    """
    return Attachment(
        "macvlan",
        frozenset({"macvlan"}),
        lambda netns, interface, mac, nic: [AddMacvlan(netns, interface, nic, guest_netns, mac)],
        on_nic=True,
        has_interface=False,
    )


def user_networking(network: str) -> Attachment:
    """Return the end of a guest's NIC in a process of the machine, which has no interface for it."""
    return Attachment(NETWORKS[network], frozenset(), lambda netns, interface, mac, nic: [], has_interface=False)


def veth(guest_netns: str) -> Attachment:
    """Return a pair of virtual Ethernet interfaces: the guest's end is in the named network namespace of the guest."""

    def changes(netns: str | None, interface: str, mac: str, nic: str) -> Iterable[Change]:
        yield AddVeth(netns, interface, host_mac(mac), guest_netns, interface, mac)

    return Attachment("veth", frozenset({"veth"}), changes)


def host_mac(mac: str) -> str:
    """Return the MAC address of the machine's end of a pair: locally administered; guests' begin with 02:6e:67."""
    return f"02:6e:68{mac[8:]}"


@dataclass(frozen=True, slots=True)
class PrivateNetwork:
    """The IPv4 network of a guest's NIC: its `address` and the `gateway` to all others, each with PREFIX_LENGTH.

    Clients connect to `port` of `machine_address`, on the machine's NIC `nic`, and reach the same port of the guest.
    """

    nic: str
    machine_address: str
    port: int
    address: str
    gateway: str

    @classmethod
    def of(cls, path: StreamPath) -> "PrivateNetwork":
        """Return the network of a stream: 10.118.NUMBER.0, whose guest has .2 and whose gateway .1."""
        assert path.ingress is not None, "Guest.check() requires it"
        prefix = f"10.118.{path.number}"
        nic, port = path.ingress.interface, server_port(path.number)
        return cls(nic, path.ingress_ip, port, f"{prefix}.2", f"{prefix}.1")

    @property
    def range(self) -> str:
        """All its addresses, in CIDR notation."""
        return f"{self.gateway.rpartition('.')[0]}.0/{PREFIX_LENGTH}"


def refuse_attachment(value: object, others: Mapping[str, str]) -> object:
    """Return a value of the option `attachment`; ValueError, with the reason, for one that `others` has."""
    if isinstance(value, str) and value in others:
        raise ValueError(others[value])
    return value
