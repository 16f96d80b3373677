"""The inventory of an ESXi host, and the changes netbench makes there: switches with a port group, and guests.

A guest is described as in the vSphere Web Services API 6.5 (VirtualMachineConfigSpec).
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeVar

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.linux.changes import Change, MachineState
from netbench.linux.changes.base import not_ours
from netbench.model.paths import PREFIX
from netbench.vmm.esxi.api import Session, Untyped, session
from netbench.vmm.esxi.options import EsxiOptions

R = TypeVar("R")

SHORT_S, _CREATE_S = 60.0, 120.0
_COPY_S = 1800.0  # a clone copies all disks of its template, a copy just one
_PORTS = 128
_LINUX = "other3xLinux64Guest"  # any 64-bit Linux 3 or later; supports all NIC models
_NOTE = "a guest of netbench: removed after its measurement, or by `netbench clean`"
_MARK = "netbench.guest"  # an extra setting that marks netbench's guests
_SHARES_OF_WEIGHT = 10  # of each vCPU: 1000 (SharesInfo, `normal`) for the usual weight of 100
_CONTROLLER, _FIRST_NEW = -1, -10  # new devices have negative keys until they are created
_ADAPTERS = {"e1000": "VirtualE1000", "e1000e": "VirtualE1000e", "vmxnet3": "VirtualVmxnet3"}


@dataclass(frozen=True, slots=True)
class EsxiHost:
    """One ESXi host, in a session with its own API or with that of its vCenter."""

    session: Session
    system: Untyped

    @property
    def network(self) -> Untyped:
        """The API object that adds and removes its switches."""
        return self.system.configManager.networkSystem

    @property
    def datacenter(self) -> Untyped:
        """Its datacenter; a host without a vCenter has one too."""
        entity = self.system
        while not isinstance(entity, self.session.vim.Datacenter):
            entity = entity.parent
        return entity

    @property
    def cpu_mhz(self) -> float:
        """The frequency of its CPUs in MHz: the capacity of one CPU."""
        hz: int = self.system.hardware.cpuInfo.hz
        return hz / 1_000_000

    @property
    def switches(self) -> set[str]:
        """The names of its standard switches."""
        return {switch.name for switch in self.network.networkInfo.vswitch}

    @property
    def port_groups(self) -> dict[str, str]:
        """The names of their port groups, each with the name of its switch."""
        return {group.spec.name: group.spec.vswitchName for group in self.network.networkInfo.portgroup}

    def error(self, message: str) -> TestbedError:
        """Return an error about this host."""
        return TestbedError(f"{self.session.server}: {message}")

    def require_free(self, vmnic: str) -> None:
        """Raise TestbedError for a physical NIC that does not exist, or that already is the uplink of a switch."""
        # The simulator lists NICs only in `config` and current switches only in `networkInfo`; ESXi lists both in both.
        keys = {nic.device: nic.key for nic in self.system.config.network.pnic}
        info = self.network.networkInfo
        if vmnic not in keys:
            raise self.error(f"there is no {vmnic}; {_existing(keys)}")
        for switch in (*info.vswitch, *(info.proxySwitch or ())):
            if keys[vmnic] in (switch.pnic or ()):
                name = getattr(switch, "name", None) or switch.dvsName
                raise self.error(f"{vmnic} is an uplink of {name}, so it cannot be measured: name a free NIC")

    def machine(self, name: str) -> Untyped:
        """Return the virtual machine of this name in netbench's folder; None if there is none."""
        return self.session.content.searchIndex.FindChild(self.datacenter.vmFolder, name)

    def template(self, name: str) -> Untyped:
        """Return the template or virtual machine of this name; TestbedError for none, several, or a running one."""
        vim = self.session.vim
        named = [vm for vm in self.session.objects(vim.VirtualMachine, self.datacenter.vmFolder) if vm.name == name]
        if len(named) != 1:
            number = "no template or VM has" if not named else f"{len(named)} templates and VMs have"
            raise self.error(f"{number} the name {name}")
        if named[0].runtime.powerState != vim.VirtualMachine.PowerState.poweredOff:
            raise self.error(f"{name} is not powered off, so a clone would have an unknown state: power it off")
        return named[0]

    def has_directory(self, path: str) -> bool:
        """Return whether a directory exists; TestbedError, with the existing datastores, for a missing datastore."""
        datastores = {store.name: store for store in self.system.datastore}
        name = path[1:].partition("]")[0]
        if name not in datastores:
            raise self.error(f"the host has no datastore {name!r}; {_existing(datastores)}")
        try:
            self.session.wait(datastores[name].browser.SearchDatastore_Task(path), SHORT_S)
        except self.session.vim.fault.FileNotFound:
            return False
        return True

    def remove_directory(self, path: str) -> None:
        """Remove a directory and its content; harmless when it has gone."""
        with suppress(self.session.vim.fault.FileNotFound):  # removed before
            files = self.session.content.fileManager
            self.session.wait(files.DeleteDatastoreFile_Task(path, self.datacenter), SHORT_S)

    def power_off(self, machine: Untyped) -> None:
        """Power a virtual machine off at once; harmless when it is off."""
        if machine.runtime.powerState != self.session.vim.VirtualMachine.PowerState.poweredOff:
            # It may have powered off by itself meanwhile.
            with suppress(self.session.vim.fault.InvalidPowerState):
                self.session.wait(machine.PowerOffVM_Task(), SHORT_S)


def on_host(options: EsxiOptions, use: Callable[[EsxiHost], R]) -> R:
    """Return the result of `use` for the host of a topology, in its own session.

    Raises the errors of `session`, and TestbedError if no host has its name, or if several exist and `host` is missing.
    """
    with session(options) as connection:
        hosts = {host.name: host for host in connection.objects(connection.vim.HostSystem)}
        name = next(iter(hosts)) if options.host is None and len(hosts) == 1 else options.host
        if name is None or name not in hosts:
            problem = f"there is no host {name!r}" if name else "there are several hosts: name one as `host`"
            raise TestbedError(f"{connection.server}: {problem}; {_existing(hosts)}")
        return use(EsxiHost(connection, hosts[name]))


def _existing(names: Iterable[str]) -> str:
    return f"there are {', '.join(sorted(names)) or 'none'}"


@dataclass(frozen=True, slots=True)
class EsxiChange(Change):
    """A change to one object of netbench, by its name, on the host in `options_json`: EsxiOptions, as JSON.

    The options contain the source of the password, never the password itself: an undo reads that source again.
    """

    options_json: str
    name: str

    @property
    def options(self) -> EsxiOptions:
        """The guest's options in the topology."""
        return EsxiOptions.model_validate_json(self.options_json)

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        """The arguments of the equivalent `govc` commands."""
        raise NotImplementedError

    @property
    def command(self) -> str:
        return " && ".join(shlex.join(("govc", *words)) for words in self._commands)

    def with_former_state(self, state: MachineState) -> Self:
        on_host(self.options, self._refuse)
        return self

    def make(self, host: Host) -> None:
        on_host(self.options, self._make)

    def undo(self, host: Host) -> None:
        if self.name.startswith(PREFIX):
            on_host(self.options, self._remove)

    def _refuse(self, host: EsxiHost) -> None:
        """Raise TestbedError if the object exists already, or cannot be made."""
        raise NotImplementedError

    def _make(self, host: EsxiHost) -> None:
        raise NotImplementedError

    def _remove(self, host: EsxiHost) -> None:
        """Remove the object; harmless when it has gone, or is not netbench's."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AddEsxiNetwork(EsxiChange):
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
        api = host.session.vim.host
        security = api.NetworkPolicy.SecurityPolicy(allowPromiscuous=True, forgedTransmits=True, macChanges=True)
        policy = api.NetworkPolicy(security=security)
        bridge = api.VirtualSwitch.BondBridge(nicDevice=[self.uplink])
        switch = api.VirtualSwitch.Specification(numPorts=_PORTS, bridge=bridge, policy=policy)
        group = api.PortGroup.Specification(name=self.name, vlanId=0, vswitchName=self.name, policy=policy)
        host.network.AddVirtualSwitch(self.name, switch)
        host.network.AddPortGroup(group)

    def _remove(self, host: EsxiHost) -> None:
        if host.port_groups.get(self.name) == self.name:
            host.network.RemovePortGroup(self.name)
        if self.name in host.switches:
            host.network.RemoveVirtualSwitch(self.name)


@dataclass(frozen=True, slots=True)
class AddEsxiGuest(EsxiChange):
    """A virtual machine, not powered on, with a NIC in each of `networks` after its management NIC.

    `weight` and `limit` are CPU shares and a CPU limit on the ESXi host. Undo deletes it with its disks.
    """

    networks: tuple[str, ...]
    macs: tuple[str, ...]
    weight: int | None = None
    limit: float | None = None

    @property
    def _shares(self) -> int | None:
        """CPU shares for a weight; None for the default."""
        return None if self.weight is None else self.weight * _SHARES_OF_WEIGHT * self.options.cpus

    @property
    def _cpu(self) -> dict[str, float]:
        """Its CPU limit and reservation, in CPUs, as far as they are set."""
        cpu = {"limit": self.limit, "reservation": self.options.reservation}
        return {what: cpus for what, cpus in cpu.items() if cpus is not None}

    @property
    def _directory(self) -> str:
        """Its own directory on the datastore of its disk; empty for a clone, whose directory the vCenter chooses."""
        disk = self.options.disk
        return f"{disk.partition(']')[0]}] {self.name}" if disk else ""

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        options = self.options
        size = (f"-c={options.cpus}", f"-m={options.memory}", "-on=false")
        adapter = f"-net.adapter={options.nic}"
        store, _, disk = (options.disk or "")[1:].partition("] ")
        on, copy = f"-ds={store}", f"{self.name}/{self.name}.vmdk"
        devices = (f"-disk={copy}", f"-firmware={options.firmware}", f"-net={options.management}", adapter)
        cloned = [("vm.clone", f"-vm={options.template}", *size, self.name)]
        created = [
            ("datastore.mkdir", on, self.name),
            ("datastore.cp", on, disk, copy),
            ("vm.create", *size, on, *devices, self.name),
        ]
        nics = [
            ("vm.network.add", f"-vm={self.name}", f"-net={network}", adapter, f"-net.address={mac}")
            for network, mac in zip(self.networks, self.macs, strict=True)
        ]
        tuned = [f"-latency={options.latency_sensitivity}"]
        tuned += [f"-cpu.shares={self._shares}"] if self._shares is not None else []
        # In units of MHz: the frequency of the CPUs was not requested yet.
        tuned += [f"-cpu.{what}={cpus:g}*MHZ" for what, cpus in self._cpu.items()]
        tuned += [f"-e=sched.cpu.affinity={','.join(map(str, options.affinity))}"] if options.affinity else []
        return [*(cloned if options.template else created), *nics, ("vm.change", f"-vm={self.name}", *tuned)]

    def _refuse(self, host: EsxiHost) -> None:
        if host.machine(self.name):
            raise not_ours(f"the VM {self.name} of {host.session.server}")
        if self._directory:
            if host.has_directory(self._directory):
                raise not_ours(f"{self._directory} of {host.session.server}")
            if (network := self.options.management) not in host.port_groups:
                raise host.error(f"the host has no port group {network!r}; {_existing(host.port_groups)}")
        elif host.session.content.about.apiType != "VirtualCenter":
            raise host.error("it is an ESXi host, and only a vCenter clones templates: use disk instead")

    def _make(self, host: EsxiHost) -> None:
        options, session, vim, datacenter = self.options, host.session, host.session.vim, host.datacenter
        pool = host.system.parent.resourcePool
        if options.template:
            # The full configuration at once would be simpler, but the simulator accepts only this part.
            marked = vim.vm.ConfigSpec(extraConfig=self._mark(vim))
            place = vim.vm.RelocateSpec(host=host.system, pool=pool)
            clone = vim.vm.CloneSpec(location=place, powerOn=False, template=False, config=marked)
            task = host.template(options.template).CloneVM_Task(datacenter.vmFolder, self.name, clone)
            session.wait(task, _COPY_S)
            session.wait(host.machine(self.name).ReconfigVM_Task(self._config(host, ())), _CREATE_S)
            return
        copy = f"{self._directory}/{self.name}.vmdk"
        session.content.fileManager.MakeDirectory(self._directory, datacenter, createParentDirectories=False)
        disks = session.content.virtualDiskManager
        session.wait(disks.CopyVirtualDisk_Task(options.disk, datacenter, copy, datacenter, None, False), _COPY_S)
        management = _nic(vim, options.nic, options.management, None, _FIRST_NEW)
        spec = self._config(host, [management, *_disk(vim, copy)])
        spec.guestId, spec.firmware = _LINUX, options.firmware
        spec.files = vim.vm.FileInfo(vmPathName=f"{self._directory}/{self.name}.vmx")
        session.wait(datacenter.vmFolder.CreateVM_Task(spec, pool, host.system), _CREATE_S)

    def _remove(self, host: EsxiHost) -> None:
        """Power it off and delete it with its disks; harmless when it has gone, or is not netbench's.

        TestbedError while it is still being created for a netbench that was killed.
        """
        machine = host.machine(self.name)
        if machine:
            if machine.config is None:
                raise host.error(f"{self.name} is still being created: try again when it is complete")
            if not any((setting.key, setting.value) == (_MARK, self.name) for setting in machine.config.extraConfig):
                return
            host.power_off(machine)
            host.session.wait(machine.Destroy_Task(), _CREATE_S)
        if self._directory:
            host.remove_directory(self._directory)

    def _config(self, host: EsxiHost, devices: Sequence[Untyped]) -> Untyped:
        vim, options = host.session.vim, self.options
        mhz = {what: round(cpus * host.cpu_mhz) for what, cpus in self._cpu.items()}
        level = vim.SharesInfo.Level.normal if self._shares is None else vim.SharesInfo.Level.custom
        nics = [
            _nic(vim, options.nic, network, mac, _FIRST_NEW - number)
            for number, (network, mac) in enumerate(zip(self.networks, self.macs, strict=True), start=1)
        ]
        return vim.vm.ConfigSpec(
            name=self.name,
            numCPUs=options.cpus,
            memoryMB=options.memory,
            annotation=_NOTE,
            extraConfig=self._mark(vim),
            deviceChange=[_added(vim, device) for device in (*devices, *nics)],
            cpuAllocation=vim.ResourceAllocationInfo(
                **{"reservation": 0, "limit": -1, **mhz},  # -1: no limit
                shares=vim.SharesInfo(level=level, shares=self._shares or 0),
            ),
            cpuAffinity=vim.vm.AffinityInfo(affinitySet=list(options.affinity)),  # empty: any
            latencySensitivity=vim.LatencySensitivity(level=options.latency_sensitivity),
            # `high` is refused without all of its memory.
            memoryReservationLockedToMax=options.latency_sensitivity == "high",
        )

    def _mark(self, vim: Untyped) -> list[Untyped]:
        return [vim.OptionValue(key=_MARK, value=self.name)]


def _nic(vim: Untyped, model: str, network: str, mac: str | None, key: int) -> Untyped:
    """Return a new NIC in a port group; without a MAC address, one is generated."""
    device = vim.vm.device
    return getattr(device, _ADAPTERS[model])(
        key=key,
        backing=device.VirtualEthernetCard.NetworkBackingInfo(deviceName=network),
        connectable=device.VirtualDevice.ConnectInfo(startConnected=True, connected=True, allowGuestControl=False),
        addressType="manual" if mac else "generated",
        macAddress=mac,
    )


def _disk(vim: Untyped, path: str) -> list[Untyped]:
    """Return an existing disk on a SATA controller, which every Linux has a driver for."""
    device = vim.vm.device
    backing = device.VirtualDisk.FlatVer2BackingInfo(fileName=path, diskMode="persistent")
    disk = device.VirtualDisk(key=_FIRST_NEW + 1, controllerKey=_CONTROLLER, unitNumber=0, backing=backing)
    return [device.VirtualAHCIController(key=_CONTROLLER, busNumber=0), disk]


def _added(vim: Untyped, device: Untyped) -> Untyped:
    change = vim.vm.device.VirtualDeviceSpec
    return change(operation=change.Operation.add, device=device)
