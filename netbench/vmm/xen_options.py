"""How a topology describes a guest of Xen."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import model_validator

from netbench.images.library import DEFAULT_IMAGE
from netbench.model.entitlement import Cpus
from netbench.model.fields import Memory, Vcpus
from netbench.model.virtualisation import NicKind
from netbench.vmm.base import GuestOptions

Mode = Literal["pv", "pvh", "hvm"]
NIC_KINDS: Mapping[str, NicKind] = {"vif": "paravirtual", "e1000": "emulated", "rtl8139": "emulated"}


class XenOptions(GuestOptions):
    """A domain of Xen that forwards between two virtual NICs per stream.

    `mode` is the kind of domain. NICs other than `vif` are emulated by a QEMU in domain 0; only hvm supports them.
    `pin` has a list of the machine's CPUs for each vCPU. `image` is the name of a guest image made by `netbench image
    build`. Memory is rounded to MiB.
    """

    mode: Mode = "pv"
    """Kind of domain."""
    nic: Literal["vif", "e1000", "rtl8139"] = "vif"
    """vif, or with hvm an emulated NIC."""
    cpus: Vcpus = 1
    """vCPUs."""
    memory: Memory = 256
    """Memory."""
    pin: tuple[Cpus, ...] = ()
    """CPUs of each vCPU."""
    image: str = DEFAULT_IMAGE
    """Guest image."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.nic != "vif" and self.mode != "hvm":
            raise ValueError(f"nic: a domain of mode {self.mode} has only vif; {self.nic} needs mode: hvm")
        if len(self.pin) > self.cpus:
            raise ValueError(f"pin: names CPUs for {len(self.pin)} vCPUs; the guest has {self.cpus}")
        if "/" in self.image:
            raise ValueError("image: name a guest image that `netbench image build` made, no path")
        return self
