"""What netbench changes at a libvirtd that it has not started: a domain of its own is there for a while."""

import shlex
import uuid
from dataclasses import dataclass
from typing import Self

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host
from netbench.linux.changes import Change, Look
from netbench.linux.changes.base import not_ours
from netbench.model.interfaces import PREFIX
from netbench.vmm.libvirt_api import LibvirtConnection, is_of_libvirt

_NAMES = uuid.UUID("5f0c7f0e-6c1b-4d43-9b1e-0a4a3f2f6b5d")  # of netbench's domains: any, once and for all


def own_uuid(name: str) -> str:
    """That of netbench's domain `name`: by it, it is known from one of somebody else's that is called so."""
    return str(uuid.uuid5(_NAMES, name))


@dataclass(frozen=True, slots=True)
class OwnDomain(Change):
    """The domain that is going to be called `name` at `uri` is netbench's, by its UUID; undone, it has ended.

    It is put there by who starts the guest. libvirt itself ends it once the netbench that asked for it has gone; this
    is for where it did not come to know of that.
    """

    uri: str
    name: str

    @property
    def command(self) -> str:
        """What tells that there is none of that name."""
        return f"! {shlex.join(['virsh', '-c', self.uri, 'domuuid', self.name])}"

    def found(self, look: Look) -> Self:
        libvirt = self._connection(look.host)
        try:
            if libvirt.has(self.name):
                raise not_ours(f"the domain {self.name} at {self.uri}")
        finally:
            libvirt.close()
        return self

    def make(self, host: Host) -> None:
        """Nothing: the domain needs NICs that are not there yet."""

    def undo(self, host: Host) -> None:
        if not self.name.startswith(PREFIX):
            return
        try:
            libvirt = self._connection(host)
        except MissingError:
            return  # a host over SSH that undoes it alone: its QEMU, which bears the mark of the run, has been ended
        except TestbedError as error:
            if is_of_libvirt(error):
                return  # nobody is there who would start it; its QEMU, if there is one, bears the mark of the run
            raise
        try:
            libvirt.destroy_own(own_uuid(self.name))
        finally:
            libvirt.close()

    def _connection(self, host: Host) -> LibvirtConnection:
        return LibvirtConnection(f"domain {self.name}", self.uri, host)
