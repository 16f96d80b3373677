"""VMM `esxi`: guests of VMware ESXi. API only, tested against a simulator: no frame ever went through one.

It uses the vSphere Web Services API as served by govmomi's simulator vcsim, whose guests do not run.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.hosts.base import Host
from netbench.hosts.clock import wait_until
from netbench.hosts.ssh import SSH_PORT, SshGuest
from netbench.linux.changes import AddRunDirectory, Change
from netbench.linux.requirements import Command, Facility
from netbench.model.documents import plain_text
from netbench.model.paths import PREFIX, StreamPath
from netbench.model.virtualisation import DurationEstimate, Virtualisation
from netbench.vmm.attachment import Attachment
from netbench.vmm.base import GuestNic, GuestOptions, GuestSpec, RunningGuest, Vmm
from netbench.vmm.connected_guest import ConnectedGuest
from netbench.vmm.esxi.api import REMEDY, password, vsphere_module
from netbench.vmm.esxi.machine import SHORT_S, AddEsxiGuest, AddEsxiNetwork, EsxiHost, on_host
from netbench.vmm.esxi.options import NIC_KINDS, EsxiOptions

SIMULATED = "API only, against a simulator"
_POLL_S = 2.0
_RUN_ID = 12  # length of the part of a guest's directory name that distinguishes runs


def find_bindings(_: str) -> str:
    """Return the version of the installed bindings of the vSphere API; MissingError when there are none."""
    vsphere_module()
    return version("pyvmomi")


class Esxi(Vmm):
    """A guest of VMware ESXi: API only, against a simulator; no frame ever went through one.

    Its weight and limit become CPU shares and a CPU limit on the ESXi host. Its CPU cost is unknown: the performance
    counters of the host are averages over 20 s, and the simulator invents them.
    """

    options: EsxiOptions
    Options: ClassVar[type[GuestOptions]] = EsxiOptions
    kinds = (Virtualisation.HARDWARE,)
    nic_models = NIC_KINDS
    supports = replace(
        Vmm.supports,
        attachments=("vswitch",),
        shares=("weight", "limit", "reservation"),
        counters=("NICs, queue and IP layer inside",),
    )
    unproven = SIMULATED
    elsewhere: ClassVar[bool] = True
    applies_cpu_shares: bool = True
    pace: ClassVar[DurationEstimate] = DurationEstimate(bring_up_s=60.0, trial_s=1.0)  # a guess
    may_need = (
        Facility("pyvmomi", "guests of VMware ESXi: the bindings of its API", REMEDY, find_bindings),
        Command("ssh", "openssh-client", "guests that are reached over SSH", optional=True),
    )

    def check(self, paths: Sequence[StreamPath]) -> None:
        """Raise UsageError for NICs between source and sink, a stream without uplinks, or a file that is missing.

        MissingError if the password file cannot be read, or if other users may read it.
        """
        options = self.options
        if options.server is None or options.channel is None:
            raise UsageError("server: name the server of the API, as HOST or HOST:PORT")
        for path in paths:
            if path.ingress:
                raise UsageError(
                    f"stream {path.name}: a guest of ESXi is on another machine, and the cables of source and sink "
                    "lead there: leave ingress and egress out"
                )
            if path.nics_of.name not in options.uplinks:
                raise UsageError(
                    f"stream {path.name}: uplinks must name the NICs of the ESXi host that its cables lead to: "
                    f"uplinks: {{{path.nics_of.name}: {{ingress: vmnic2, egress: vmnic3}}}}"
                )
        for key, file in (("channel: key", options.channel.key), ("ca_file", options.ca_file)):
            if file is not None and not Path(file).is_file():
                raise UsageError(f"{key}: there is no file {file}")
        if options.password_file is not None:
            password(options)

    def needs(self) -> frozenset[str]:
        options = self.options
        in_environment = options.server is not None and options.password_file is None
        return frozenset({"pyvmomi", "ssh"} | ({f"variable:{options.password_env}"} if in_environment else set()))

    def attachment(self, spec: GuestSpec) -> Attachment:
        """Return a switch on the ESXi host, with the NIC that a cable leads to: it is made with the guest."""
        return Attachment("vswitch", frozenset(), lambda *_: ())

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        """Return the changes that add its switches and the guest itself, which is not powered on yet.

        UsageError for CPUs of this machine, because it does not run here.
        """
        if spec.host_cpus:
            raise UsageError(f"{spec.title} runs on CPUs of the ESXi host: use affinity, not host_cpus or placement")
        yield AddRunDirectory(str(spec.directory))
        options = plain_text(self.options, exclude_unset=True)
        networks = tuple(_network(spec, nic) for nic in spec.nics)
        for name, nic in zip(networks, spec.nics, strict=True):
            uplinks = self.options.uplinks.get(nic.stream)
            yield AddEsxiNetwork(options, name, (getattr(uplinks, nic.role) if uplinks else ""))
        macs = tuple(nic.mac for nic in spec.nics)
        yield AddEsxiGuest(options, spec.own_netns, networks, macs, spec.weight, spec.limit)

    def command(self, spec: GuestSpec) -> str:
        return shlex.join(["govc", "vm.power", "-on", spec.own_netns])

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        guest = EsxiGuest(spec, host, self.options)
        guest.power_on()
        return guest


class EsxiGuest(ConnectedGuest):
    """A virtual machine of netbench on an ESXi host, and the SSH connection to it from `host`."""

    def __init__(self, spec: GuestSpec, host: Host, options: EsxiOptions) -> None:
        super().__init__(spec, host)
        self._options = options
        self._vm = f"{spec.title}: its VM {spec.own_netns}"

    def power_on(self) -> None:
        """Power it on; TestbedError with the message of the API."""

        def switch_on(host: EsxiHost) -> None:
            machine = host.machine(self.spec.own_netns)
            if machine is None:
                raise TestbedError(f"{self._vm} is gone")
            host.session.wait(machine.PowerOnVM_Task(), SHORT_S)

        on_host(self._options, switch_on)

    def await_answer(self, limit_s: float) -> None:
        """Return once it accepts an SSH connection; TestbedError when it does not, or is powered off."""
        channel = self._options.channel
        assert channel is not None, "check() comes first"
        address = channel.address or self._reported_address(limit_s)
        login = (self._host, self.spec.directory, SSH_PORT, channel.user, Path(channel.key), channel.host_key, address)
        self.connect_by(SshGuest(self.spec.name, self.spec.title, *login), {})
        super().await_answer(limit_s)

    def death(self) -> str:
        return on_host(self._options, self._death)

    def end_just_now(self) -> str:
        return self.death()

    def cpu_s(self) -> None:
        """Return None: unknown."""

    def memory_bytes(self) -> None:
        """Return None: unknown."""

    def facts(self) -> dict[str, str]:
        options = self._options
        return {
            "esxi": on_host(options, lambda host: str(host.session.content.about.fullName)),
            "driver": SIMULATED,
            "nic": options.nic,
            **({"template": options.template} if options.template else {"disk": options.disk or ""}),
            "cpus": str(options.cpus),
            "memory": f"{options.memory} MiB",
            "latency_sensitivity": options.latency_sensitivity,
            **({"affinity": ",".join(map(str, options.affinity))} if options.affinity else {}),
        }

    def stop(self) -> None:
        """Power it off if it still exists and is on."""
        with suppress(TestbedError):  # the guest does not answer
            super().stop()

        def switch_off(host: EsxiHost) -> None:
            if machine := host.machine(self.spec.own_netns):
                host.power_off(machine)

        with suppress(TestbedError, MissingError):  # undoing AddEsxiGuest ends it too, or reports why it cannot
            on_host(self._options, switch_off)

    def _death(self, host: EsxiHost) -> str:
        machine = host.machine(self.spec.own_netns)
        if machine is None:
            return f"{self._vm} is gone"
        on = machine.runtime.powerState == host.session.vim.VirtualMachine.PowerState.poweredOn
        return "" if on else f"{self._vm} is not powered on any more"

    def _reported_address(self, limit_s: float) -> str:
        """Return its SSH address as soon as VMware Tools report it."""

        def query(host: EsxiHost) -> str:
            if death := self._death(host):
                raise TestbedError(death)
            return host.machine(self.spec.own_netns).guest.ipAddress or ""

        address = ""

        def is_reported() -> bool:
            nonlocal address
            address = on_host(self._options, query)
            return bool(address)

        if not wait_until(is_reported, limit_s, _POLL_S):
            raise TestbedError(
                f"{self.spec.title}: VMware Tools reported no address within {limit_s:g} s of its start: install "
                "open-vm-tools in it, or set channel: address"
            )
        return address


def _network(spec: GuestSpec, nic: GuestNic) -> str:
    """Return the name of the switch of a NIC and of its port group: at most 31 characters, unique to the run."""
    return f"{PREFIX}{spec.directory.name[:_RUN_ID]}-{nic.interface.removeprefix(PREFIX)}"
