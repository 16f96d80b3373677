"""A guest that is the copy of a domain that a user has defined: it stays as it is, and shut off."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netbench.errors import TestbedError
from netbench.hosts.base import Host, exists, run_checked
from netbench.hosts.composed import outside
from netbench.vmm.libvirt_api import LibvirtConnection
from netbench.vmm.libvirt_copy_xml import Connected, DomainCopy, copy_of, planned_copy
from netbench.vmm.libvirt_domain import LibvirtDomain

_ANSWER_S = 10.0


class ExistingDomain:
    """The domain `name`, and its copy once that is defined, on a host: None while that is a plan."""

    def __init__(self, name: str, own: Connected, host: Host | None = None) -> None:
        self.name = name
        self._host = host
        self._own = own
        self._copy: DomainCopy | None = None

    @property
    def copy(self) -> DomainCopy:
        """What define() made."""
        assert self._copy is not None, "define() comes first"
        return self._copy

    def define(self, libvirt: LibvirtConnection, run_id: str) -> str:
        """The XML of its copy; TestbedError when it runs, is not there or is none that can be copied."""
        defined = libvirt.defined(self.name)
        try:
            self._copy = copy_of(defined, self._own, run_id)
            self._make_ready(self._copy.nvram)
        except TestbedError as error:
            raise TestbedError(f"{libvirt.whose}: domain {self.name} cannot be copied: {error}") from error
        return self._copy.xml

    def planned(self, uri: str) -> str:
        """What is done, as commands, for `--dry-run`: nobody is asked what the domain is."""
        virsh = ["virsh", "-c", uri]
        file = self._own.files.directory / "domain.xml"
        return (
            f"{shlex.join([*virsh, 'dumpxml', '--inactive', self.name])} >{shlex.quote(str(file))}\n"
            f"# {self.name} must be shut off, and stays as it is. Its copy has another uuid, what it may write to is\n"
            "# <transient/>, and in place of its NICs, serial ports, channels and screens it has what follows.\n"
            f"{shlex.join([*virsh, 'create', '/dev/stdin'])} <<'END'\n{planned_copy(self._own)}\nEND"
        )

    def _make_ready(self, nvram: Path | None) -> None:
        """Its UEFI variables say what it boots. Without that file libvirt makes one of its template."""
        assert self._host is not None, "it is no plan any more"
        files, machine = self._own.files, outside(self._host)
        run_checked(machine, ["chmod", "711", str(files.directory)])  # QEMU opens what is in it, as a user of its own
        if nvram is not None and exists(machine, str(nvram)):
            run_checked(machine, ["cp", "--", str(nvram), str(files.nvram)])


class LibvirtAgent:
    """A conversation with QEMU's guest agent in a domain through libvirt, which has the only connection to it."""

    def __init__(self, domain: LibvirtDomain) -> None:
        self._domain = domain

    def command(self, name: str, arguments: Mapping[str, object] = {}, timeout_s: float = _ANSWER_S) -> Any:  # noqa: ANN401 - each command has its own type
        """What a command returns, in QMP's own types."""
        asked = {"execute": name, **({"arguments": dict(arguments)} if arguments else {})}
        return json.loads(self._domain.ask_agent(json.dumps(asked), timeout_s))["return"]

    def close(self) -> None:
        """Nothing: the connection is libvirt's."""
