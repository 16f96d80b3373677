"""How a topology describes a guest under QEMU."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from netbench.errors import KeyedError
from netbench.model.fields import Memory, Vcpus, as_kind
from netbench.model.topology_specs import Cpus
from netbench.model.virtualisation import NicKind
from netbench.vmm.attachment import ENDING, NETWORKS, refuse_attachment
from netbench.vmm.base import GuestOptions


class Pinning(BaseModel, extra="forbid", frozen=True):
    """CPUs of this machine for the threads of a guest: a list for each vCPU, and one for all other threads."""

    vcpus: tuple[Cpus, ...] = ()
    """CPUs of each vCPU."""
    io: Cpus = ()
    """CPUs of QEMU's other threads."""

    @property
    def cpus(self) -> tuple[int, ...]:
        """All CPUs in the lists."""
        return tuple(cpu for cpus in (*self.vcpus, self.io) for cpu in cpus)


class SshChannel(BaseModel, extra="forbid", frozen=True):
    """The connection to a disk image that runs an SSH server on its first NIC, configured by DHCP.

    `host_key` is the server's public key as in known_hosts(5), without a host name: `ssh-ed25519 AAAA…`.
    """

    kind: Literal["ssh"]
    user: str = "root"
    """Login name."""
    key: str  # path of the private key
    """Private key file."""
    host_key: str
    """The server's public key: ssh-ed25519 AAAA…"""


class GuestAgentChannel(BaseModel, extra="forbid", frozen=True):
    """The connection to a disk image that runs QEMU's guest agent (qemu-ga)."""

    kind: Literal["guest-agent"]


Channel = Annotated[SshChannel | GuestAgentChannel, Field(discriminator="kind")]


def switch(value: object) -> object:
    """Return "on" or "off" for a boolean: YAML parses a bare on or off as one."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


ATTACHED_OTHERWISE = {
    "macvlan": "macvlan needs a container; for a guest under QEMU use macvtap",
}


def attachment_of(value: object, others: Mapping[str, str]) -> object:
    """Return an attachment, `bridge` for `tap` of version 0.1; ValueError, with its reason, for one of `others`."""
    return "bridge" if value == "tap" else refuse_attachment(value, others)


NicModel = Literal["virtio-net-pci", "e1000", "vmxnet3", "rtl8139"]
NIC_KINDS: Mapping[str, NicKind] = {
    "virtio-net-pci": "paravirtual",
    "vmxnet3": "paravirtual",
    "e1000": "emulated",
    "rtl8139": "emulated",
}


class QemuOptions(GuestOptions):
    """A guest that forwards between two virtual NICs per stream.

    `image` is the name of a guest image made by `netbench image build`, or the path (with a `/`) of a disk image, which
    needs a `channel`. Memory is rounded to MiB.
    """

    nic: NicModel = "virtio-net-pci"
    """Model of the virtual NICs."""
    attachment: Annotated[
        Literal["bridge", "macvtap", "nat", "user", "passt"],
        BeforeValidator(partial(attachment_of, others=ATTACHED_OTHERWISE)),
    ] = "bridge"
    """bridge: a tap, bridged. macvtap: a tap over the host's NIC, used by this guest alone. nat, user (SLIRP), passt: a
    private network; it serves only."""
    vhost: Annotated[Literal["auto", "on", "off"], BeforeValidator(switch)] = "auto"
    """Move frames of virtio NICs in the host's kernel; auto: where /dev/vhost-net exists."""
    queues: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    """Queues of each virtio NIC; as many vCPUs are needed."""
    cpus: Vcpus = 1
    """vCPUs."""
    memory: Memory = 256
    """Memory; at least 200M to boot."""
    pin: Pinning = Pinning()
    """CPUs of the threads of the guest."""
    accelerator: Literal["auto", "kvm", "tcg"] = "auto"
    """auto: KVM where a guest answers under it."""
    image: str = "micro"
    """Guest image, or path (with a /) of a disk image."""
    disk_format: Literal["qcow2", "raw", "vmdk", "vdi"] = "qcow2"
    """Format of a disk image."""
    channel: Annotated[Channel | None, BeforeValidator(as_kind)] = None
    """Access to a guest from a disk image: guest-agent, or {kind: ssh, key: …, host_key: …}."""

    @property
    def is_disk(self) -> bool:
        """Whether `image` is a disk image of the user."""
        return "/" in self.image

    @property
    def cpus_known(self) -> bool:
        """Whether `cpus` is the guest's number of CPUs."""
        return True

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.queues > 1 and self.nic != "virtio-net-pci":
            raise KeyedError("queues", f"{self.nic} over a tap has one queue; only virtio-net-pci has more")
        if self.queues > 1 and self.attachment in ("macvtap", *ENDING):
            raise KeyedError("queues", f"with `attachment: {self.attachment}` a guest has one queue; use bridge or nat")
        if self.vhost == "on" and self.attachment in ENDING:
            raise KeyedError("vhost", f"with `attachment: {self.attachment}` a process moves the frames; leave it out")
        if self.attachment in NETWORKS:
            self.refuse_forwarding(self.attachment)
        if self.cpus_known and self.queues > self.cpus:
            raise KeyedError("queues", f"{self.queues} need as many vCPUs to serve them; cpus is {self.cpus}")
        if self.vhost == "on" and self.nic != "virtio-net-pci":
            raise KeyedError("vhost", f"only virtio-net-pci can use it, not {self.nic}")
        if self.cpus_known and len(self.pin.vcpus) > self.cpus:
            raise KeyedError("pin", f"vcpus names CPUs for {len(self.pin.vcpus)} vCPUs; the guest has {self.cpus}")
        if self.is_disk and self.channel is None:
            raise KeyedError("channel", "a disk image needs one: guest-agent, or {kind: ssh, key: …, host_key: …}")
        if not self.is_disk and self.channel is not None:
            raise KeyedError("channel", "netbench's own guest images have theirs; it is for a disk image (a path)")
        return self
