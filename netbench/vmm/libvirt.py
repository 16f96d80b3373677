"""VMM `libvirt`: guests under QEMU as domains of libvirt."""

import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from netbench.errors import MissingError
from netbench.hosts.agent.channel import AgentChannel
from netbench.hosts.agent.host import AgentHost
from netbench.hosts.base import Host
from netbench.hosts.local import search_path
from netbench.linux.changes import AddRunDirectory, Change
from netbench.linux.needs import Facility
from netbench.model.paths import StreamPath
from netbench.vmm.acceleration import choose
from netbench.vmm.base import GuestOptions, GuestSpec, RunningGuest, refuse_nics_of_vms
from netbench.vmm.libvirt_api import REMEDY, libvirt_module
from netbench.vmm.libvirt_daemon import PrivateDaemon
from netbench.vmm.libvirt_domain import LibvirtDomain
from netbench.vmm.libvirt_options import LibvirtOptions
from netbench.vmm.qemu import Qemu, QemuGuest

_LIBRARIES = Path("/usr/lib")


def look_for_bindings(_: str) -> str:
    """Which libvirt they are for; MissingError when they are not there."""
    version = libvirt_module().getVersion()
    return f"of libvirt {version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"


def look_for_daemon(_: str) -> str:
    """The daemon and its driver of QEMU; MissingError when one is not there."""
    daemon = shutil.which("libvirtd", path=search_path())
    if daemon is None or not any(_LIBRARIES.glob("*/libvirt/connection-driver/libvirt_driver_qemu.so")):
        raise MissingError("libvirtd, or its driver for QEMU, is not on this host")
    return daemon


class Libvirt(Qemu):
    """A guest under QEMU as a domain of libvirt, of a daemon that runs already or of one started for it.

    Its entitlement binds all threads of QEMU; those that the option `pin` names run where that says.
    """

    Options: ClassVar[type[GuestOptions]] = LibvirtOptions
    runs_hosts: ClassVar[bool] = False
    supports = replace(Qemu.supports, attachments=("tap",))
    may_need = (
        *Qemu.may_need,
        Facility("libvirt-python", "guests of libvirt: its Python bindings", REMEDY, look_for_bindings),
        Facility(
            "libvirtd",
            "guests of libvirt with a daemon of their own (no `uri`)",
            "apt-get install libvirt-daemon libvirt-daemon-driver-qemu",
            look_for_daemon,
        ),
    )

    def __init__(self, options: LibvirtOptions) -> None:
        super().__init__(options)
        self._uri = options.uri

    def check(self, paths: Sequence[StreamPath]) -> None:
        refuse_nics_of_vms(paths, "a domain of libvirt")
        super().check(paths)

    def needs(self) -> frozenset[str]:
        return super().needs() | {"libvirt-python"} | ({"libvirtd"} if self._uri is None else set())

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddRunDirectory(str(spec.directory))

    def command(self, spec: GuestSpec) -> str:
        daemon = PrivateDaemon(spec)
        machine = self._machine(spec, self._options.accelerator, self._boot(0))
        xml = LibvirtDomain(spec, machine, self._options.pin, self._uri).xml("RUN")
        first = f"{shlex.join(daemon.command)} &\n" if self._uri is None else ""
        return f"{first}virsh -c {shlex.quote(self._uri or daemon.uri)} create /dev/stdin <<'END'\n{xml}\nEND"

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        options = self._options
        acceleration = choose(options.accelerator, host, spec.directory, options.image)
        machine = self._machine(spec, acceleration.accelerator, self._boot(0, host), host)
        domain = LibvirtDomain(spec, machine, options.pin, self._uri)
        try:
            domain.start(host)
            connection = AgentHost(spec.name, AgentChannel(spec.title, domain.connect()))
            facts = self._facts(spec, host, acceleration, machine.confinement)
            daemon = f"at {self._uri}" if self._uri else "a daemon of its own"
            own = {"libvirt": f"{domain.version()}, {daemon}", "confined": "by libvirt"}
            return QemuGuest(spec, domain, connection, facts | own)
        except BaseException:  # Ctrl-C too: neither domain nor daemon must stay
            domain.stop()
            raise
