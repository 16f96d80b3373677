"""A guest that is the copy of a user-defined domain: the domain itself stays unchanged, and shut off."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netbench.errors import TestbedError
from netbench.hosts.base import Host, exists, run_checked
from netbench.hosts.host_wrappers import outside
from netbench.vmm.libvirt_api import LibvirtConnection
from netbench.vmm.libvirt_copy_xml import Connected, DomainCopy, copy_of, planned_copy
from netbench.vmm.libvirt_domain import LibvirtDomain

_ANSWER_S = 10.0


class ExistingDomain:
    """The domain `name`, and its copy once that is defined, on a host; `host` is None in a plan."""

    def __init__(self, name: str, own: Connected, host: Host | None = None) -> None:
        self.name = name
        self._host = host
        self._own = own
        self._copy: DomainCopy | None = None

    @property
    def copy(self) -> DomainCopy:
        """The copy that define() made."""
        assert self._copy is not None, "define() comes first"
        return self._copy

    def define(self, libvirt: LibvirtConnection, run_id: str) -> str:
        """Return the XML of its copy; TestbedError if the domain is running, missing or not copyable."""
        defined = libvirt.defined(self.name)
        try:
            self._copy = copy_of(defined, self._own, run_id)
            self._make_ready(self._copy.nvram)
        except TestbedError as error:
            raise TestbedError(f"{libvirt.whose}: domain {self.name} cannot be copied: {error}") from error
        return self._copy.xml

    def planned(self, uri: str) -> str:
        """Return the commands for `--dry-run`; the domain itself is not queried."""
        virsh = ["virsh", "-c", uri]
        file = self._own.files.directory / "domain.xml"
        return (
            f"{shlex.join([*virsh, 'dumpxml', '--inactive', self.name])} >{shlex.quote(str(file))}\n"
            f"# {self.name} must be shut off, and stays as it is. Its copy has another uuid, what it may write to is\n"
            "# <transient/>, and in place of its NICs, serial ports, channels and screens it has what follows.\n"
            f"{shlex.join([*virsh, 'create', '/dev/stdin'])} <<'END'\n{planned_copy(self._own)}\nEND"
        )

    def _make_ready(self, nvram: Path | None) -> None:
        """Copy its UEFI variables, which determine what it boots. Without them, libvirt copies those of a template."""
        assert self._host is not None, "it is no plan any more"
        files, machine = self._own.files, outside(self._host)
        run_checked(machine, ["chmod", "711", str(files.directory)])  # QEMU opens files in it as another user
        if nvram is not None and exists(machine, str(nvram)):
            run_checked(machine, ["cp", "--", str(nvram), str(files.nvram)])


class LibvirtAgent:
    """A connection to QEMU's guest agent in a domain through libvirt, which is the agent's only client."""

    def __init__(self, domain: LibvirtDomain) -> None:
        self._domain = domain

    def command(self, name: str, arguments: Mapping[str, object] = {}, timeout_s: float = _ANSWER_S) -> Any:  # noqa: ANN401 - each command has its own type
        """Return the result of a command, in QMP's types."""
        request = {"execute": name, **({"arguments": dict(arguments)} if arguments else {})}
        return json.loads(self._domain.ask_agent(json.dumps(request), timeout_s))["return"]

    def close(self) -> None:
        """Do nothing: the connection belongs to libvirt."""
