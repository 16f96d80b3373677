"""How a topology describes a guest that libvirt starts."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from netbench.vmm.qemu_options import QemuOptions


class LibvirtOptions(QemuOptions):
    """As of `qemu`, without disk images. `uri` is whose domain it becomes; left out: of a libvirtd of its own."""

    uri: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _boots_a_kernel(self) -> Self:
        if self.is_disk:
            raise ValueError("image: libvirt starts netbench's own guest images only; for a disk image use kind qemu")
        if self.attachment != "tap":
            raise ValueError("attachment: libvirt attaches its guests by taps here; for a macvtap use kind qemu")
        return self
