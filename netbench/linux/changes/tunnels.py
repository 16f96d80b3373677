"""Virtual interfaces that add or remove a header, made by iproute2, and the VLANs that a port of a bridge carries."""

from dataclasses import dataclass
from typing import ClassVar

from netbench.linux.changes.base import RequestInNamespace
from netbench.linux.changes.links import AddLink
from netbench.model.packet import TUNNEL_PORTS

_PORTS = {kind: f"dstport {port}" for kind, port in TUNNEL_PORTS.items()}
_HOPS = 64  # as in VXLAN and GENEVE (net.ipv4.ip_default_ttl)


@dataclass(frozen=True, slots=True)
class AddVlanInterface(AddLink):
    """The interface of one VLAN (802.1Q) on a NIC: it receives without the tag, and adds it to sent frames."""

    REQUEST: ClassVar[str] = "link add link {0.nic} name {0.interface} type vlan protocol 802.1Q id {0.vlan}"
    nic: str
    vlan: int


@dataclass(frozen=True, slots=True)
class AddTunnel(AddLink):
    """A VXLAN, GENEVE or GRE interface with the address `mac`; `id` is the VNI, or the key of GRE (None: no key).

    `kind` is vxlan, geneve, gretap (GRE with Ethernet inside) or gre (GRE with IP inside, without a MAC address). With
    `remote` it sends there from the address `local`; otherwise it receives from any address. The kernel accepts GENEVE
    from any address only if it accepts any VNI as well (geneve.c, collect metadata). `mtu` 0 is the kernel's choice.
    """

    kind: str
    id: int | None
    mac: str = ""
    local: str = ""
    remote: str = ""
    mtu: int = 0

    @property
    def line(self) -> tuple[str, ...]:
        mac = f"{'address {0.mac}' if self.mac else ''} {'mtu {0.mtu}' if self.mtu else ''}"
        ends = f"{'local {0.local}' if self.local else ''} {'remote {0.remote}' if self.remote else ''}"
        match self.kind:
            case "vxlan":
                of_kind = f"id {{0.id}} {ends} {_PORTS['vxlan']} nolearning noudpcsum"
            case "geneve":
                receives = f"external {_PORTS['geneve']}"
                of_kind = f"id {{0.id}} remote {{0.remote}} {_PORTS['geneve']} noudpcsum" if self.remote else receives
            case _:
                # By default, the outer header has the TTL of the inner one (ip_tunnel_xmit).
                ttl = f"ttl {_HOPS}" if self.remote else ""
                of_kind = f"{ends} {ttl} {'' if self.id is None else 'key {0.id}'}"
        return self._words(f"link add name {{0.interface}} {mac} type {{0.kind}} {of_kind}")


@dataclass(frozen=True, slots=True)
class AddVlan(RequestInNamespace):
    """Let a port of a bridge that filters VLANs carry one; it is removed with the bridge."""

    PROGRAM: ClassVar[str] = "bridge"
    REQUEST: ClassVar[str] = "vlan add dev {0.interface} vid {0.vlan}"
    interface: str
    vlan: int
