"""Options of UUTs about the headers of packets: VLANs that pass, encapsulations removed and added, and NAT."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from netbench.errors import KeyedError

Encapsulation = Literal["vlan", "vxlan", "geneve", "gre"]
VlanId = Annotated[int, Field(ge=1, le=4094)]
Vni = Annotated[int, Field(ge=0, le=2**24 - 1)]
GreKey = Annotated[int, Field(ge=0, le=2**32 - 1)]
# The option that has the id of each encapsulation. GRE needs none.
_ID_OPTIONS = {"vlan": "vlan", "vxlan": "vni", "geneve": "vni", "gre": "key"}
# Options that only some kinds of UUTs have, and these kinds.
_KINDS = {"retag": "kind ovs", "nat": "kind raw and of guests"}
# Why the other ways to forward do not change encapsulations.
_UNCHANGED = {
    "tc": "tc redirects frames as they are",
    "xdp": "xdp redirects frames as they are",
    "flowtable": "a flowtable contains NICs only, no VLAN or tunnel interfaces",
}
_ROUTING, _CHANGING = ("route", "flowtable"), ("bridge", "route")


class HeaderOptions(BaseModel):
    """What a UUT does to VLANs and encapsulations.

    `vlans` are the VLANs that a bridge carries: it drops frames of others, and those without a tag. `terminate` is the
    encapsulation that it removes at the ingress, `originate` the one that it adds at the egress. `vlan`, `vni` and
    `key` are its id. A tunnel that originates leads from the UUT's address at the egress to the sink's. For a reverse
    stream, the UUT adds what it terminates, and removes what it originates.
    """

    model_config = ConfigDict(frozen=True)

    vlans: tuple[VlanId, ...] = ()
    """VLANs that pass a bridge. Default: all frames pass."""
    terminate: Encapsulation | None = None
    """Encapsulation removed at the ingress."""
    originate: Encapsulation | None = None
    """Encapsulation added at the egress."""
    vlan: VlanId | None = None
    """terminate or originate: vlan: VLAN id."""
    vni: Vni | None = None
    """terminate or originate: vxlan or geneve: network id."""
    key: GreKey | None = None
    """terminate or originate: gre: key. Default: none."""

    @model_validator(mode="before")
    @classmethod
    def _suits_kind(cls, options: object) -> object:
        for option, kinds in _KINDS.items():
            if isinstance(options, Mapping) and option in options and option not in cls.model_fields:
                raise KeyedError(option, f"is an option of UUTs of {kinds} only; remove it, or use another kind")
        return options

    @model_validator(mode="after")
    def _changes_once(self) -> Self:
        if self.vlans and (self.terminate or self.originate):
            raise KeyedError("vlans", "leave it out with terminate or originate, which are about one VLAN or tunnel")
        if self.terminate and self.terminate == self.originate:
            raise KeyedError("originate", f"{self.originate} is terminated already: choose another encapsulation")
        if {self.terminate, self.originate} == {"vxlan", "geneve"}:
            raise KeyedError("originate", "VXLAN and GENEVE would share `vni`: choose another encapsulation")
        return self

    @model_validator(mode="after")
    def _has_ids(self) -> Self:
        kinds = [kind for kind in (self.terminate, self.originate) if kind]
        for kind in kinds:
            if kind != "gre" and self.id_of(kind) is None:
                option = _ID_OPTIONS[kind]
                key = "terminate" if kind == self.terminate else "originate"
                title = "VLAN ID" if option == "vlan" else "VNI"
                raise KeyedError(key, f"{kind} needs the {title}; add {option}: 100")
        for option in ("vlan", "vni", "key"):
            if getattr(self, option) is not None and option not in (_ID_OPTIONS[kind] for kind in kinds):
                named = " or ".join(kind for kind, id_option in _ID_OPTIONS.items() if id_option == option)
                raise KeyedError(option, f"it is for terminate or originate: {named}")
        return self

    @property
    def reversed(self) -> Self:
        """The options for the other direction: the same UUT removes headers that it adds, and adds those it removes."""
        return self.model_copy(update={"terminate": self.originate, "originate": self.terminate})

    def id_of(self, kind: Encapsulation) -> int | None:
        """Return the id of an encapsulation."""
        number: int | None = getattr(self, _ID_OPTIONS[kind])
        return number


class PacketOptions(HeaderOptions):
    """What a kernel does to the headers of packets, in addition to forwarding them: as HeaderOptions, and NAT.

    `nat` translates addresses one to one: `source` replaces 198.18.x.y by 10.18.x.y and `destination` replaces
    198.19.x.y by 10.19.x.y. Addresses of a reverse stream are translated back.

    A router that terminates also routes packets without the encapsulation; a bridge drops them. Without a reverse
    stream, the kernel terminates GENEVE with any VNI.
    """

    nat: Literal["source", "destination"] | None = None
    """Address translation (nftables), one to one."""

    @model_validator(mode="after")
    def _suits_forwarding(self) -> Self:
        forward = getattr(self, "forward", "bridge")
        if self.vlans and forward != "bridge":
            raise KeyedError("vlans", f"a bridge filters VLANs: set forward: bridge instead of {forward}")
        if self.nat and forward not in _ROUTING:
            raise KeyedError("nat", f"a router translates addresses: set forward: route instead of {forward}")
        for option in ("terminate", "originate"):
            if getattr(self, option) and forward not in _CHANGING:
                raise KeyedError(option, f"{_UNCHANGED[forward]}; set forward: route or bridge")
        return self


NO_CHANGES = PacketOptions()
