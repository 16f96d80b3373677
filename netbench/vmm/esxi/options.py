"""The options of a guest of VMware ESXi in a topology."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, model_validator

from netbench.errors import KeyedError
from netbench.model.fields import Memory, StreamName, Vcpus, percent_text
from netbench.model.topology_specs import CpuLimit, Cpus
from netbench.model.virtualisation import NicKind
from netbench.vmm.base import GuestOptions
from netbench.vmm.qemu.options import SshChannel

NicModel = Literal["vmxnet3", "e1000", "e1000e"]
NIC_KINDS: Mapping[str, NicKind] = {"vmxnet3": "paravirtual", "e1000": "emulated", "e1000e": "emulated"}
Vmnic = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,31}$")]
# As ESXi writes them: `[datastore1] images/guest.vmdk`.
DatastorePath = Annotated[str, Field(pattern=r"^\[[^\[\]]+\] [^/\s][^\n]*\.vmdk$")]
HostPort = Annotated[str, Field(pattern=r"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9][A-Za-z0-9.-]*)(:[0-9]{1,5})?$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


def _thumbprint(value: object) -> object:
    return value.replace(":", "").lower() if isinstance(value, str) else value


Thumbprint = Annotated[str, BeforeValidator(_thumbprint), Field(pattern=r"^[0-9a-f]{64}$")]
Reservation = Annotated[CpuLimit | None, PlainSerializer(lambda share: None if share is None else percent_text(share))]


class Uplinks(BaseModel, extra="forbid", frozen=True):
    """The physical NICs of the ESXi host that the cables of one stream lead to."""

    ingress: Vmnic
    """Physical NIC cabled to the source."""
    egress: Vmnic
    """Physical NIC cabled to the sink."""


class EsxiChannel(SshChannel, frozen=True):
    """The connection to the guest: its SSH server, in a network that this machine reaches.

    `address` is the address of the server; by default the one that VMware Tools in the guest report.
    """

    kind: Literal["ssh"] = "ssh"
    address: Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z.:-]*$")] | None = None
    """Address of the guest. Default: as VMware Tools report it."""


class EsxiOptions(GuestOptions):
    """A guest of an ESXi host, through the API of the host or of its vCenter (then `host` is the host's name there).

    The password is in the environment, or in a file that no other user can read. The certificate of the server must be
    signed by an authority that this machine trusts, or by one in `ca_file` (PEM), or have the SHA-256 `thumbprint`.

    The guest is a clone of `template` (a template or a VM that is off; in a vCenter only), or boots a copy of `disk`,
    with a NIC in the port group `management`. Memory is in MiB, `reservation` in CPUs.
    """

    server: HostPort | None = None
    """HOST or HOST:PORT of the API."""
    user: str = "root"
    """Login name."""
    password_env: Variable = "NETBENCH_ESXI_PASSWORD"
    """Environment variable with the password."""
    password_file: str | None = None
    """File with the password instead; mode 600."""
    ca_file: str | None = None
    """Certificates (PEM) that signed the server's."""
    thumbprint: Thumbprint | None = None
    """SHA-256 of the server's certificate instead."""
    host: str | None = None
    """ESXi host, as its vCenter names it."""
    template: str | None = None
    """Template or powered-off VM to clone (vCenter only)."""
    disk: DatastorePath | None = None
    """Disk image on a datastore; the guest boots a copy."""
    management: str = "VM Network"
    """Port group of the guest's management NIC."""
    firmware: Literal["bios", "efi"] = "bios"
    """Firmware of the guest."""
    uplinks: dict[StreamName, Uplinks] = Field(default_factory=dict)
    """Physical NICs of each stream."""
    channel: EsxiChannel | None = None
    """SSH access to the guest."""
    nic: NicModel = "vmxnet3"
    """Model of the virtual NICs."""
    cpus: Vcpus = 1
    """vCPUs."""
    memory: Memory = 1024
    """Memory."""
    affinity: Cpus = ()
    """CPUs of the host."""
    reservation: Reservation = None
    """Reserved CPU time; 100% is one CPU."""
    latency_sensitivity: Literal["low", "normal", "medium", "high"] = "normal"
    """high reserves all memory and needs `reservation`."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.model_fields_set:
            return self  # no options yet: `netbench list`
        if self.server is None:
            raise KeyedError("server", "name the server of the API, as HOST or HOST:PORT")
        if (self.template is None) == (self.disk is None):
            raise ValueError("template, disk: set one of them: the VM to clone, or the disk to boot a copy of")
        if self.ca_file and self.thumbprint:
            raise ValueError("ca_file, thumbprint: use one of them and leave the other out")
        if self.channel is None:
            raise KeyedError("channel", "netbench needs an SSH connection to the guest: {key: …, host_key: …}")
        if self.template and {"firmware", "management"} & self.model_fields_set:
            raise ValueError("firmware, management: a clone has those of its template; leave them out")
        named = Counter(nic for pair in self.uplinks.values() for nic in (pair.ingress, pair.egress))
        if twice := [nic for nic, times in named.items() if times > 1]:
            raise KeyedError("uplinks", f"{twice[0]} is named twice, but a NIC has only one cable")
        return self
