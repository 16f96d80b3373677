"""How a topology describes a guest that libvirt starts."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from netbench.vmm.qemu_options import QemuOptions

# Properties that the domain defines itself, or does not use.
_OF_THE_DOMAIN = ("cpus", "memory", "accelerator", "image", "disk_format", "channel")


class LibvirtOptions(QemuOptions):
    """The options of `qemu`, without disk images. `uri` selects the libvirtd; by default a private one.

    `domain` is the name of a domain defined there; the guest is a copy of it.
    """

    uri: Annotated[str, Field(min_length=1)] | None = None
    """libvirtd to use. Default: one of the guest's own."""
    domain: Annotated[str, Field(min_length=1)] | None = None
    """Domain defined at `uri` of which the guest is a copy."""

    @property
    def cpus_known(self) -> bool:
        return self.domain is None

    @model_validator(mode="before")
    @classmethod
    def _is_that_domain(cls, said: object) -> object:
        if not isinstance(said, Mapping) or said.get("domain") is None:
            return said
        if said.get("uri") is None:
            raise ValueError("uri: say whose domain it is, as qemu:///system; a libvirtd of the guest's own knows none")
        for option in _OF_THE_DOMAIN:
            if option in said:
                also = " by QEMU's guest agent" if option == "channel" else " as the domain has it"
                raise ValueError(f"{option}: leave it out; with `domain` it is{also}")
        return said

    @model_validator(mode="after")
    def _can_be_started(self) -> Self:
        if self.is_disk:
            raise ValueError(
                "image: libvirt starts netbench's own guest images, or a domain that you have defined (`domain`); "
                "for a disk image use kind qemu"
            )
        if self.attachment != "tap":
            raise ValueError("attachment: libvirt attaches its guests by taps here; for a macvtap use kind qemu")
        return self
