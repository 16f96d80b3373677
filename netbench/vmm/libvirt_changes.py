"""The change that netbench makes at a libvirtd it did not start: a domain of its own exists for a while."""

import shlex
import uuid
from dataclasses import dataclass
from typing import Self

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host
from netbench.linux.changes import Change, MachineState
from netbench.linux.changes.base import not_ours
from netbench.model.interfaces import PREFIX
from netbench.vmm.libvirt_api import LibvirtConnection, is_of_libvirt

_NAMES = uuid.UUID("5f0c7f0e-6c1b-4d43-9b1e-0a4a3f2f6b5d")  # namespace of the domains' UUIDs: arbitrary, but fixed


def own_uuid(name: str) -> str:
    """Return the UUID of netbench's domain `name`: it distinguishes the domain from others of the same name."""
    return str(uuid.uuid5(_NAMES, name))


@dataclass(frozen=True, slots=True)
class OwnDomain(Change):
    """Reserves the name `name` at `uri` for a domain of netbench, identified by its UUID; undo ends the domain.

    Starting the guest creates the domain. libvirt itself ends it once the netbench that created it has gone. This
    change covers the cases in which libvirt does not notice that.
    """

    uri: str
    name: str

    @property
    def command(self) -> str:
        """A command that succeeds if no domain has that name."""
        return f"! {shlex.join(['virsh', '-c', self.uri, 'domuuid', self.name])}"

    def found(self, look: MachineState) -> Self:
        libvirt = self._connection(look.host)
        try:
            if libvirt.has(self.name):
                raise not_ours(f"the domain {self.name} at {self.uri}")
        finally:
            libvirt.close()
        return self

    def make(self, host: Host) -> None:
        """Do nothing: the domain needs NICs that do not exist yet."""

    def undo(self, host: Host) -> None:
        if not self.name.startswith(PREFIX):
            return
        try:
            libvirt = self._connection(host)
        except MissingError:
            return  # an SSH host that undoes the change alone: QEMU bears the mark of the run and was ended by that
        except TestbedError as error:
            if is_of_libvirt(error):
                return  # no daemon that could start it; a QEMU that is left bears the mark of the run
            raise
        try:
            libvirt.destroy_own(own_uuid(self.name))
        finally:
            libvirt.close()

    def _connection(self, host: Host) -> LibvirtConnection:
        return LibvirtConnection(f"domain {self.name}", self.uri, host)
