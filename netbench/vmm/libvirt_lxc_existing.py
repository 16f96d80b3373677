"""A container that is the copy of a user-defined libvirt domain; the domain itself stays unchanged, and shut off."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.vmm.base import GuestSpec
from netbench.vmm.container_root import Root
from netbench.vmm.libvirt_api import BINDINGS, LibvirtConnection
from netbench.vmm.libvirt_lxc import LibvirtLxc
from netbench.vmm.libvirt_lxc_copy_xml import ContainerCopy, copy_of_container

SYSTEM = "lxc:///system"
_OVERLAID = "overlaid"  # the file that libvirt_lxc.sh reads


class ExistingLxc(LibvirtLxc):
    """The copy of the domain `name` at `uri`; a private libvirtd runs the copy."""

    needs: ClassVar[frozenset[str]] = LibvirtLxc.needs | {BINDINGS.name}

    def __init__(self, name: str, uri: str | None) -> None:
        super().__init__()
        self._name = name
        self._uri = uri or SYSTEM
        self._copy: ContainerCopy | None = None
        self._defined = ""

    def prepare(self, spec: GuestSpec, machine: Host, run_id: str) -> None:
        """Copy the domain; TestbedError if it is running, missing or not copyable."""
        super().prepare(spec, machine, run_id)
        libvirt = LibvirtConnection(spec.title, self._uri, machine)
        try:
            self._defined = libvirt.defined(self._name)
        finally:
            libvirt.close()
        try:
            self._copy = copy_of_container(self._defined, spec, ())
            for directory in self._copy.directories:
                where = machine.run(["readlink", "-e", "--", directory]).stdout.strip()
                if not where or machine.run(["test", "-d", where]).exit_code != 0:
                    raise TestbedError(f"there is no directory {directory}, of which it has its files")
                if Path(where).is_relative_to("/run"):
                    raise TestbedError(f"{directory} is below /run, of which its libvirtd has its own: move it")
        except TestbedError as error:
            raise TestbedError(f"{spec.title}: domain {self._name} cannot be copied: {error}") from error
        machine.write(str(spec.directory / _OVERLAID), "".join(f"{path}\n" for path in self._copy.directories))

    def facts(self) -> dict[str, str]:
        memory = {"memory": f"{self._copy.memory_mib} MiB"} if self._copy else {}
        return {"domain": self._name, **memory}

    def _domain(self, spec: GuestSpec, root: Root, init: Sequence[str]) -> str:
        """Return its XML; in a plan, which does not query the domain, a description."""
        if self._copy is None:
            show = shlex.join(["virsh", "-c", self._uri, "dumpxml", "--inactive", self._name])
            return f"the domain that `{show}` shows, without its NICs and devices, and with overlays where it writes"
        return copy_of_container(self._defined, spec, init).xml
