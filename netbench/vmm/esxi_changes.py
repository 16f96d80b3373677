"""The changes that netbench makes on an ESXi host: switches with a port group, and guests."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.linux.changes import Change, MachineState
from netbench.linux.changes.base import not_ours
from netbench.model.interfaces import PREFIX
from netbench.vmm.esxi_api import Session, asked
from netbench.vmm.esxi_inventory import EsxiHost, host_of
from netbench.vmm.esxi_machine import EsxiMachine
from netbench.vmm.esxi_options import EsxiOptions

_PORTS = 128


@dataclass(frozen=True, slots=True)
class OfEsxi(Change):
    """A change to one object of netbench, by its name, on the host described by `told`: EsxiOptions, as JSON.

    The options contain the source of the password, never the password itself: an undo reads that source again.
    """

    told: str
    name: str

    @property
    def options(self) -> EsxiOptions:
        """The guest's options in the topology."""
        return EsxiOptions.model_validate_json(self.told)

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        """The arguments of the equivalent `govc` commands."""
        raise NotImplementedError

    @property
    def command(self) -> str:
        return " && ".join(shlex.join(("govc", *words)) for words in self._commands)

    def found(self, look: MachineState) -> Self:
        self._ask(self._refuse)
        return self

    def make(self, host: Host) -> None:
        self._ask(self._make)

    def undo(self, host: Host) -> None:
        if self.name.startswith(PREFIX):
            self._ask(self._undo)

    def _refuse(self, host: EsxiHost) -> None:
        raise NotImplementedError

    def _make(self, host: EsxiHost) -> None:
        raise NotImplementedError

    def _undo(self, host: EsxiHost) -> None:
        raise NotImplementedError

    def _ask(self, does: Callable[[EsxiHost], None]) -> None:
        options = self.options

        def at(session: Session) -> None:
            does(host_of(session, options))

        asked(options, at)


@dataclass(frozen=True, slots=True)
class AddEsxiNetwork(OfEsxi):
    """A standard switch with one physical NIC, and a port group of the same name with all restrictions lifted.

    Forwarding requires that: a bridge's NICs receive frames to other addresses and send frames from other addresses.
    """

    uplink: str

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        everything = ("-allow-promiscuous=true", "-forged-transmits=true", "-mac-changes=true")
        return [
            ("host.vswitch.add", f"-nic={self.uplink}", self.name),
            ("host.portgroup.add", f"-vswitch={self.name}", self.name),
            ("host.portgroup.change", *everything, self.name),
        ]

    def _refuse(self, host: EsxiHost) -> None:
        for what, names in (("switch", host.switches), ("port group", host.port_groups)):
            if self.name in names:
                raise not_ours(f"the {what} {self.name} of {host.session.server}")
        host.require_free(self.uplink)

    def _make(self, host: EsxiHost) -> None:
        vim = host.session.vim
        security = vim.host.NetworkPolicy.SecurityPolicy(allowPromiscuous=True, forgedTransmits=True, macChanges=True)
        policy, bridge = vim.host.NetworkPolicy(security=security), vim.host.VirtualSwitch.BondBridge
        host.network.AddVirtualSwitch(
            self.name,
            vim.host.VirtualSwitch.Specification(
                numPorts=_PORTS, bridge=bridge(nicDevice=[self.uplink]), policy=policy
            ),
        )
        host.network.AddPortGroup(
            vim.host.PortGroup.Specification(name=self.name, vlanId=0, vswitchName=self.name, policy=policy)
        )

    def _undo(self, host: EsxiHost) -> None:
        if host.port_groups.get(self.name) == self.name:
            host.network.RemovePortGroup(self.name)
        if self.name in host.switches:
            host.network.RemoveVirtualSwitch(self.name)


@dataclass(frozen=True, slots=True)
class AddEsxiGuest(OfEsxi):
    """A virtual machine, not powered on, with a NIC in each of `networks`; undo deletes it with its disks."""

    networks: tuple[str, ...]
    macs: tuple[str, ...]
    weight: int | None = None
    limit: float | None = None

    @property
    def _machine(self) -> EsxiMachine:
        return EsxiMachine(self.options, self.name, self.networks, self.macs, self.weight, self.limit)

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        options, machine = self.options, self._machine
        size = (f"-c={options.cpus}", f"-m={options.memory}", "-on=false")
        if options.template:
            made: list[Sequence[str]] = [("vm.clone", f"-vm={options.template}", *size, self.name)]
        else:
            store, _, disk = (options.disk or "")[1:].partition("] ")
            on, copy = f"-ds={store}", f"{self.name}/{self.name}.vmdk"
            management = (f"-net={options.management}", f"-net.adapter={options.nic}")
            made = [
                ("datastore.mkdir", on, self.name),
                ("datastore.cp", on, disk, copy),
                ("vm.create", *size, on, f"-disk={copy}", f"-firmware={options.firmware}", *management, self.name),
            ]
        adapter = f"-net.adapter={options.nic}"
        for network, mac in zip(self.networks, self.macs, strict=True):
            made.append(("vm.network.add", f"-vm={self.name}", f"-net={network}", adapter, f"-net.address={mac}"))
        tuned = [f"-latency={options.latency_sensitivity}"]
        tuned += [f"-cpu.shares={machine.shares}"] if machine.shares is not None else []
        # In units of MHz: the frequency of the CPUs was not requested yet.
        shared = {"limit": self.limit, "reservation": options.reservation}
        tuned += [f"-cpu.{what}={cpus:g}*MHZ" for what, cpus in shared.items() if cpus is not None]
        tuned += [f"-e=sched.cpu.affinity={','.join(map(str, options.affinity))}"] if options.affinity else []
        return [*made, ("vm.change", f"-vm={self.name}", *tuned)]

    def _refuse(self, host: EsxiHost) -> None:
        if host.machine(self.name):
            raise not_ours(f"the VM {self.name} of {host.session.server}")
        directory = self._machine.directory
        if directory and host.has_directory(directory):
            raise not_ours(f"{directory} of {host.session.server}")
        if directory:
            host.require_port_group(self.options.management)
        elif not host.clones:
            raise TestbedError(
                f"{host.session.server}: it is an ESXi host, and only a vCenter clones templates: say disk instead"
            )

    def _make(self, host: EsxiHost) -> None:
        self._machine.make(host)

    def _undo(self, host: EsxiHost) -> None:
        self._machine.remove(host)
