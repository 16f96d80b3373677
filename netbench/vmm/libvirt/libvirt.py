"""VMM `libvirt`: guests under QEMU as domains of libvirt."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from netbench.errors import KeyedError, MissingError
from netbench.hosts.base import Host
from netbench.hosts.guest_agent.channel import AgentChannel
from netbench.hosts.guest_agent.host import AgentHost
from netbench.hosts.host_wrappers import outside
from netbench.linux.changes import AddRunDirectory, Change
from netbench.linux.requirements import Command, Facility
from netbench.vmm.base import GuestOptions, GuestSpec, RunningGuest
from netbench.vmm.connected_guest import stopped_on_error
from netbench.vmm.libvirt.api import BINDINGS, AddLibvirtDomain
from netbench.vmm.libvirt.domain import LibvirtGuest, PrivateDaemon, domain_name, domain_xml, driver_sign, find_libvirtd
from netbench.vmm.libvirt.domain_copy import CopySettings, ExistingDomain, LibvirtAgent
from netbench.vmm.qemu.acceleration import choose
from netbench.vmm.qemu.command import RunFiles, VirtualMachine, qemu_program
from netbench.vmm.qemu.options import ATTACHED_OTHERWISE, QemuOptions, attachment_of
from netbench.vmm.qemu.qemu import Qemu, qemu_version
from netbench.vmm.qemu.qmp import GuestAgentHost

# Properties that the domain defines itself, or does not use.
_ATTACHED_OTHERWISE = {
    **ATTACHED_OTHERWISE,
    **{
        value: f"libvirt attaches its guests by bridge or nat; for {value} use kind qemu"
        for value in ("macvtap", "user", "passt")
    },
}
_OF_THE_DOMAIN = ("cpus", "memory", "accelerator", "image", "disk_format", "channel")


class LibvirtOptions(QemuOptions):
    """The options of `qemu`, without disk images, and those of the domain."""

    uri: Annotated[str, Field(min_length=1)] | None = None
    """URI of the libvirtd. Default: a private one."""
    attachment: Annotated[
        Literal["bridge", "nat"], BeforeValidator(partial(attachment_of, others=_ATTACHED_OTHERWISE))
    ] = "bridge"
    """bridge: a tap, bridged. nat: a private network; it serves only."""
    domain: Annotated[str, Field(min_length=1)] | None = None
    """Name of a domain defined there; the guest is a copy of it."""

    @property
    def cpus_known(self) -> bool:
        return self.domain is None

    @model_validator(mode="before")
    @classmethod
    def _is_that_domain(cls, data: object) -> object:
        if not isinstance(data, Mapping) or data.get("domain") is None:
            return data
        if data.get("uri") is None:
            raise KeyedError(
                "uri", "name the libvirtd of the domain, for example qemu:///system; a private libvirtd has no domains"
            )
        for option in _OF_THE_DOMAIN:
            if option in data:
                also = " by QEMU's guest agent" if option == "channel" else " as the domain has it"
                raise KeyedError(option, f"leave it out; with `domain` it is{also}")
        return data

    @model_validator(mode="after")
    def _can_be_started(self) -> Self:
        if self.is_disk:
            raise KeyedError(
                "image",
                "libvirt starts guest images of netbench, or a domain that you have defined (`domain`); "
                "for a disk image use kind qemu",
            )
        return self


_PACKAGES = ("libvirt-daemon", "libvirt-daemon-driver-qemu")
# Prints the paths of QEMU and of a libvirtd with its driver for QEMU.
_LOOK = """
command -v "$0"
for driver in /usr/lib*/libvirt/connection-driver /usr/lib/*/libvirt/connection-driver; do
    if [ -e "$driver/libvirt_driver_qemu.so" ]; then command -v libvirtd; fi
done
"""


class Libvirt(Qemu):
    """A guest under QEMU as a domain of libvirt: one of netbench's own, or the copy of one that you have defined.

    Its daemon runs already, or is started for it.

    Its entitlement applies to all threads of QEMU; the option `pin` overrides the CPUs of the threads it names.
    """

    options: LibvirtOptions
    Options: ClassVar[type[GuestOptions]] = LibvirtOptions
    runs_hosts: ClassVar[bool] = False
    supports = replace(
        Qemu.supports,
        attachments=("tap", "tap behind NAT"),
        counters=("attachment (as domifstat counts)", "NICs, queue and IP layer inside"),
    )
    may_need = (
        *Qemu.may_need,
        BINDINGS,
        Facility(
            "libvirtd",
            "guests of libvirt with a daemon of their own (no `uri`)",
            f"apt-get install {' '.join(_PACKAGES)}",
            partial(find_libvirtd, "qemu", (), "libvirtd, or its driver for QEMU"),
            signs=("libvirtd", driver_sign("qemu")),
            packages=_PACKAGES,
        ),
    )

    def needs(self) -> frozenset[str]:
        if self.options.domain is not None:  # the user provides QEMU and the disks
            return frozenset({BINDINGS.name} | ({"vhost"} if self.options.vhost == "on" else set()))
        return super().needs() | {BINDINGS.name} | ({"libvirtd"} if self.options.uri is None else set())

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddRunDirectory(str(spec.directory))
        if self.options.uri is not None:
            yield AddLibvirtDomain(self.options.uri, domain_name(spec))

    def command(self, spec: GuestSpec) -> str:
        if self.options.domain is not None:
            return self._domain_to_copy(spec, self.options.domain).planned(self.options.uri or "")
        daemon = PrivateDaemon(spec)
        xml = self._xml(spec, self._machine(spec, self.options.accelerator, self._boot(0)), "RUN")
        first = f"{shlex.join(daemon.command())} &\n" if self.options.uri is None else ""
        return f"{first}virsh -c {shlex.quote(self.options.uri or daemon.uri)} create /dev/stdin <<'END'\n{xml}\nEND"

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        if self.options.domain is not None:
            return self._start_copy(spec, host, self.options.domain)
        options, emulator = self.options, self._emulator(host)
        acceleration = choose(options.accelerator, host, spec.directory, options.image)
        machine = self._machine(spec, acceleration.accelerator, self._boot(0, host), host)
        guest = LibvirtGuest(spec, self.options.uri, host)
        with stopped_on_error(guest):
            guest.start(lambda _, run_id: self._xml(spec, machine, run_id, emulator))
            connection = AgentHost(spec.name, AgentChannel(spec.title, guest.channel()))
            facts = self._facts(spec, host, acceleration, machine.confinement)
            guest.connect_by(connection, facts | self._facts_of_libvirt(guest))
        return guest

    def _start_copy(self, spec: GuestSpec, host: Host, name: str) -> RunningGuest:
        existing = self._domain_to_copy(spec, name, host)
        guest = LibvirtGuest(spec, self.options.uri, host)
        with stopped_on_error(guest):
            guest.start(existing.define)
            facts = {"domain": name, **existing.copy.facts(), **self._facts_of_nics(spec, host)}
            facts["qemu"] = qemu_version(host, existing.copy.emulator or qemu_program())
            connection = GuestAgentHost(spec.name, spec.title, lambda: LibvirtAgent(guest))
            guest.connect_by(connection, facts | self._facts_of_libvirt(guest))
        return guest

    def _domain_to_copy(self, spec: GuestSpec, name: str, host: Host | None = None) -> ExistingDomain:
        """Return the domain to copy, with the copy's own settings; `host` is None in a plan."""
        own = domain_name(spec), self._nics(spec, host), RunFiles(spec.directory), spec.host_cpus, self.options.pin
        return ExistingDomain(name, CopySettings(*own), host)

    def _xml(self, spec: GuestSpec, machine: VirtualMachine, run_id: str, emulator: str = "") -> str:
        return domain_xml(domain_name(spec), machine, RunFiles(spec.directory), self.options.pin, run_id, emulator)

    def _emulator(self, host: Host) -> str:
        """Return the path of QEMU on a host; MissingError without QEMU, or without the libvirtd to be started."""
        found = {Path(path).name: path for path in host.run(["sh", "-c", _LOOK, qemu_program()]).stdout.split()}
        packages = {need.name: need.package for need in self.may_need if isinstance(need, Command)}
        wanted = {qemu_program(): packages[qemu_program()]}
        wanted |= {} if self.options.uri else {"libvirtd": " ".join(_PACKAGES)}
        if lacking := [name for name in wanted if name not in found]:
            missing = ", ".join(wanted[name] for name in lacking)
            raise MissingError(
                f"{outside(host)} has no {', '.join(lacking)} for guests of libvirt: install {missing} there"
            )
        return found[qemu_program()]

    def _facts_of_libvirt(self, guest: LibvirtGuest) -> dict[str, str]:
        daemon = f"at {self.options.uri}" if self.options.uri else "a separate daemon"
        return {"libvirt": f"{guest.version()}, {daemon}", "confined": "by libvirt"}
