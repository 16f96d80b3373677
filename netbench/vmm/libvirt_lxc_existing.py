"""A container that is the copy of a domain that a user has defined at libvirt: that stays as it is, and shut off."""

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
    """The copy of the domain `name` at `uri`, which only shows it: a libvirtd of netbench's own has the copy."""

    needs: ClassVar[frozenset[str]] = LibvirtLxc.needs | {BINDINGS.name}

    def __init__(self, name: str, uri: str | None) -> None:
        super().__init__()
        self._name = name
        self._uri = uri or SYSTEM
        self._copy: ContainerCopy | None = None
        self._defined = ""

    def prepare(self, spec: GuestSpec, machine: Host, run_id: str) -> None:
        """Look at the domain; TestbedError when it runs, is not there or is none that can be copied."""
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
        machine.write(str(spec.directory / _OVERLAID), "".join(f"{one}\n" for one in self._copy.directories))

    def facts(self) -> dict[str, str]:
        memory = {"memory": f"{self._copy.memory_mib} MiB"} if self._copy else {}
        return {"domain": self._name, **memory}

    def _domain(self, spec: GuestSpec, root: Root, init: Sequence[str]) -> str:
        """Its XML; before it was looked at, in words, as nobody is asked for a plan."""
        if self._copy is None:
            show = shlex.join(["virsh", "-c", self._uri, "dumpxml", "--inactive", self._name])
            return f"the domain that `{show}` shows, without its NICs and devices, and with overlays where it writes"
        return copy_of_container(self._defined, spec, init).xml
