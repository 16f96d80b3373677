"""How a topology describes a guest under VirtualBox."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from netbench.images.library import DEFAULT_IMAGE
from netbench.model.fields import Memory, Vcpus
from netbench.model.virtualisation import NicKind
from netbench.vmm.base import GuestOptions
from netbench.vmm.qemu_options import switch

NIC_KINDS: Mapping[str, NicKind] = {"virtio": "paravirtual", "82540EM": "emulated"}


class VirtualBoxOptions(GuestOptions):
    """A guest that forwards between two virtual NICs per stream.

    `cpu_cap` is the part of a CPU that each vCPU may use, in percent. With `auto`, `nested_paging` is off and
    `paravirt_provider` is `none` if QEMU emulates the CPU of its machine, because a guest would hang otherwise.
    Elsewhere they are `on` and `default`, VirtualBox's own. `image` is the name of a guest image made by `netbench
    image build`. Memory is rounded to MiB.
    """

    nic: Literal["virtio", "82540EM"] = "virtio"
    """virtio, or an emulated Intel PRO/1000."""
    cpus: Vcpus = 1
    """vCPUs."""
    memory: Memory = 256
    """Memory."""
    cpu_cap: Annotated[int, Field(strict=True, ge=1, le=100)] = 100
    """Percent of a CPU for each vCPU (`--cpu-execution-cap`)."""
    nested_paging: Annotated[Literal["auto", "on", "off"], BeforeValidator(switch)] = "auto"
    """auto: off on an emulated CPU, else on."""
    paravirt_provider: Literal["auto", "none", "default", "legacy", "minimal", "hyperv", "kvm"] = "auto"
    """auto: none on an emulated CPU, else VirtualBox's default."""
    image: Annotated[str, Field(pattern=r"^[^/]+$")] = DEFAULT_IMAGE
    """Guest image."""
