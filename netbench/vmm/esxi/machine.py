"""A guest as described to the vSphere API (vSphere Web Services API 6.5, VirtualMachineConfigSpec)."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.linux.changes import Change, MachineState
from netbench.linux.changes.base import not_ours
from netbench.model.interfaces import PREFIX
from netbench.vmm.esxi.api import Session, asked
from netbench.vmm.esxi.options import EsxiOptions

_A_MOMENT_S = 60.0
_MHZ = 1_000_000


@dataclass(frozen=True, slots=True)
class EsxiHost:
    """One ESXi host, in a session with its own API or with that of its vCenter. pyvmomi has no types."""

    session: Session
    system: Any

    @property
    def network(self) -> Any:  # noqa: ANN401 - as above
        """The API object that adds and removes its switches."""
        return self.system.configManager.networkSystem

    @property
    def compute(self) -> Any:  # noqa: ANN401 - as above
        """Its compute resource, or the cluster that it belongs to."""
        return self.system.parent

    @property
    def datacenter(self) -> Any:  # noqa: ANN401 - as above
        """Its datacenter; a host without a vCenter has one too."""
        entity = self.system
        while not isinstance(entity, self.session.vim.Datacenter):
            entity = entity.parent
        return entity

    @property
    def cpu_mhz(self) -> float:
        """The frequency of its CPUs in MHz: the capacity of one CPU."""
        hz: int = self.system.hardware.cpuInfo.hz
        return hz / _MHZ

    @property
    def switches(self) -> set[str]:
        """The names of its standard switches."""
        return {switch.name for switch in self.network.networkInfo.vswitch}

    @property
    def port_groups(self) -> dict[str, str]:
        """The names of their port groups, each with the name of its switch."""
        return {group.spec.name: group.spec.vswitchName for group in self.network.networkInfo.portgroup}

    @property
    def clones(self) -> bool:
        """Whether it can make clones: only a vCenter can."""
        return bool(self.session.content.about.apiType == "VirtualCenter")

    def require_free(self, vmnic: str) -> None:
        """Raise TestbedError for a physical NIC that does not exist, or that already is the uplink of a switch."""
        # The simulator lists NICs only in `config` and current switches only in `networkInfo`; ESXi lists both in both.
        found = {nic.device: nic.key for nic in self.system.config.network.pnic}
        info = self.network.networkInfo
        if vmnic not in found:
            raise TestbedError(f"{self.session.server}: there is no {vmnic}; {_named(found)}")
        for switch in (*info.vswitch, *(info.proxySwitch or ())):
            if found[vmnic] in (switch.pnic or ()):
                name = getattr(switch, "name", None) or switch.dvsName
                raise TestbedError(f"{self.session.server}: {vmnic} is an uplink of {name} and not free to be measured")

    def machine(self, name: str) -> Any:  # noqa: ANN401 - as above
        """Return the virtual machine of this name in netbench's folder; None if there is none."""
        return self.session.content.searchIndex.FindChild(self.datacenter.vmFolder, name)

    def template(self, name: str) -> Any:  # noqa: ANN401 - as above
        """Return the template or virtual machine of this name in the datacenter; TestbedError for none or several."""
        views, kind = self.session.content.viewManager, self.session.vim.VirtualMachine
        view = views.CreateContainerView(self.datacenter.vmFolder, [kind], True)
        try:
            named = [machine for machine in view.view if machine.name == name]
        finally:
            view.Destroy()
        if len(named) != 1:
            many = "no template or VM is" if not named else f"{len(named)} templates and VMs are"
            raise TestbedError(f"{self.session.server}: {many} called {name}")
        return named[0]

    def require_port_group(self, name: str) -> None:
        """Raise TestbedError if none of its standard switches has a port group of this name."""
        if name not in self.port_groups:
            raise TestbedError(
                f"{self.session.server}: the host has no port group {name!r}; {_named(self.port_groups)}"
            )

    def has_directory(self, path: str) -> bool:
        """Return whether a directory exists; TestbedError, with the existing datastores, for a missing datastore."""
        datastores = {store.name: store for store in self.system.datastore}
        name = path[1:].partition("]")[0]
        if name not in datastores:
            raise TestbedError(f"{self.session.server}: the host has no datastore {name!r}; {_named(datastores)}")
        try:
            self.session.wait(datastores[name].browser.SearchDatastore_Task(path), _A_MOMENT_S)
        except self.session.vim.fault.FileNotFound:
            return False
        return True

    def make_directory(self, path: str) -> None:
        """Create a directory on a datastore."""
        self.session.content.fileManager.MakeDirectory(path, self.datacenter, createParentDirectories=False)

    def remove_directory(self, path: str) -> None:
        """Remove a directory and its content; harmless when it has gone."""
        with suppress(self.session.vim.fault.FileNotFound):  # removed before
            files = self.session.content.fileManager
            self.session.wait(files.DeleteDatastoreFile_Task(path, self.datacenter), _A_MOMENT_S)


def hosts_of(session: Session) -> dict[str, Any]:
    """Return all ESXi hosts in a session, by name."""
    view = session.content.viewManager.CreateContainerView(session.content.rootFolder, [session.vim.HostSystem], True)
    try:
        return {host.name: host for host in view.view}
    finally:
        view.Destroy()


def host_of(session: Session, options: EsxiOptions) -> EsxiHost:
    """Return the host of a topology; TestbedError if none has this name, or if several exist and `host` is missing."""
    found = hosts_of(session)
    if options.host is None and len(found) == 1:
        return EsxiHost(session, next(iter(found.values())))
    if options.host not in found:
        wrong = f"there is no host {options.host!r}" if options.host else "there are several hosts: say which as `host`"
        raise TestbedError(f"{session.server}: {wrong}; {_named(found)}")
    return EsxiHost(session, found[options.host])


def power_off(session: Session, machine: Any) -> None:  # noqa: ANN401 - pyvmomi has no types
    """Power a virtual machine off at once; harmless when it is off."""
    if machine.runtime.powerState != session.vim.VirtualMachine.PowerState.poweredOff:
        # It may have powered off by itself meanwhile.
        with suppress(session.vim.fault.InvalidPowerState):
            session.wait(machine.PowerOffVM_Task(), _A_MOMENT_S)


def power_on(session: Session, machine: Any) -> None:  # noqa: ANN401 - as above
    """Power a virtual machine on."""
    session.wait(machine.PowerOnVM_Task(), _A_MOMENT_S)


def _named(names: Iterable[str]) -> str:
    return f"there are {', '.join(sorted(names)) or 'none'}"


# A clone copies all disks of its template, a copy just one.
_COPY_S = 1800.0
_CREATE_S = 120.0
_LINUX = "other3xLinux64Guest"  # any 64-bit Linux 3 or later; supports all NIC models
_NOTE = "a guest of netbench's: it goes when its measurement is over, or by `netbench clean`"
_MARK = "netbench.guest"  # an extra setting that marks netbench's guests
_USUAL_SHARES = 1000  # of each vCPU (SharesInfo, `normal`)
_USUAL_WEIGHT = 100
_CONTROLLER, _FIRST_NEW = -1, -10  # new devices have negative keys until they are created


@dataclass(frozen=True, slots=True)
class EsxiMachine:
    """The guest `name`, created but not powered on, with a NIC in each of `networks` after its management NIC.

    `weight` and `limit` are as in an Entitlement, of CPUs of the ESXi host.
    """

    options: EsxiOptions
    name: str
    networks: Sequence[str]
    macs: Sequence[str]
    weight: int | None
    limit: float | None

    @property
    def shares(self) -> int | None:
        """CPU shares for a weight, 100 being `normal`; None for the default."""
        if self.weight is None:
            return None
        return round(self.weight * _USUAL_SHARES / _USUAL_WEIGHT) * self.options.cpus

    @property
    def directory(self) -> str:
        """Its own directory on the datastore of its disk; empty for a clone, whose directory the vCenter chooses."""
        disk = self.options.disk
        return f"{disk.partition(']')[0]}] {self.name}" if disk else ""

    def make(self, host: EsxiHost) -> None:
        """Create the guest."""
        if self.options.template:
            self._clone(host, self.options.template)
        else:
            self._create(host)

    def remove(self, host: EsxiHost) -> None:
        """Power it off and delete it with its disks; harmless when it has gone, or is not netbench's.

        TestbedError while it is still being created for a netbench that was killed.
        """
        machine = host.machine(self.name)
        if machine and machine.config is None:
            raise TestbedError(f"{host.session.server}: {self.name} is still being made; try again when it is")
        if machine:
            if not any((setting.key, setting.value) == (_MARK, self.name) for setting in machine.config.extraConfig):
                return
            power_off(host.session, machine)
            host.session.wait(machine.Destroy_Task(), _CREATE_S)
        if self.directory:
            host.remove_directory(self.directory)

    def _clone(self, host: EsxiHost, template: str) -> None:
        vim, session = host.session.vim, host.session
        original = host.template(template)
        if original.runtime.powerState != vim.VirtualMachine.PowerState.poweredOff:
            raise TestbedError(f"{session.server}: {template} is not powered off: nobody knows what a clone would hold")
        place = vim.vm.RelocateSpec(host=host.system, pool=host.compute.resourcePool)
        # The full configuration at once would be simpler, but the simulator accepts only this part.
        marked = vim.vm.ConfigSpec(extraConfig=self._mark(vim))
        spec = vim.vm.CloneSpec(location=place, powerOn=False, template=False, config=marked)
        session.wait(original.CloneVM_Task(host.datacenter.vmFolder, self.name, spec), _COPY_S)
        session.wait(host.machine(self.name).ReconfigVM_Task(self._config(host, ())), _CREATE_S)

    def _create(self, host: EsxiHost) -> None:
        session, options = host.session, self.options
        copy = f"{self.directory}/{self.name}.vmdk"
        way_in = _nic(host, options.nic, options.management, None, _FIRST_NEW)
        host.make_directory(self.directory)
        disks, datacenter = session.content.virtualDiskManager, host.datacenter
        session.wait(disks.CopyVirtualDisk_Task(options.disk, datacenter, copy, datacenter, None, False), _COPY_S)
        spec = self._config(host, (way_in, *_disk(host, copy)))
        spec.guestId, spec.firmware = _LINUX, options.firmware
        spec.files = session.vim.vm.FileInfo(vmPathName=f"{self.directory}/{self.name}.vmx")
        made = datacenter.vmFolder.CreateVM_Task(spec, host.compute.resourcePool, host.system)
        session.wait(made, _CREATE_S)

    def _config(self, host: EsxiHost, devices: Sequence[Any]) -> Any:  # noqa: ANN401 - pyvmomi has no types
        vim, options = host.session.vim, self.options
        spec = vim.vm.ConfigSpec(name=self.name, numCPUs=options.cpus, memoryMB=options.memory)
        spec.annotation, spec.extraConfig = _NOTE, self._mark(vim)
        spec.deviceChange = [*devices, *self._nics(host)]
        spec.cpuAllocation = vim.ResourceAllocationInfo(
            reservation=_mhz(options.reservation, host) or 0,
            limit=_mhz(self.limit, host) or -1,  # none
            shares=self._shares(vim),
        )
        spec.cpuAffinity = vim.vm.AffinityInfo(affinitySet=list(options.affinity))  # empty: any
        spec.latencySensitivity = vim.LatencySensitivity(level=options.latency_sensitivity)
        # `high` is refused without all of its memory.
        spec.memoryReservationLockedToMax = options.latency_sensitivity == "high"
        return spec

    def _mark(self, vim: Any) -> list[Any]:  # noqa: ANN401 - as above
        return [vim.OptionValue(key=_MARK, value=self.name)]

    def _shares(self, vim: Any) -> Any:  # noqa: ANN401 - as above
        level = vim.SharesInfo.Level
        return vim.SharesInfo(level=level.normal if self.shares is None else level.custom, shares=self.shares or 0)

    def _nics(self, host: EsxiHost) -> Iterator[Any]:
        for number, (name, mac) in enumerate(zip(self.networks, self.macs, strict=True), start=1):
            yield _nic(host, self.options.nic, name, mac, _FIRST_NEW - number)


def _mhz(cpus: float | None, host: EsxiHost) -> int | None:
    return None if cpus is None else round(cpus * host.cpu_mhz)


def _nic(host: EsxiHost, model: str, network: str, mac: str | None, key: int) -> Any:  # noqa: ANN401 - as above
    """Return a new NIC in a port group; without a MAC address, one is generated."""
    vim = host.session.vim
    kinds = {"e1000": "VirtualE1000", "e1000e": "VirtualE1000e", "vmxnet3": "VirtualVmxnet3"}
    nic = getattr(vim.vm.device, kinds[model])(key=key)
    nic.backing = vim.vm.device.VirtualEthernetCard.NetworkBackingInfo(deviceName=network)
    nic.connectable = vim.vm.device.VirtualDevice.ConnectInfo(
        startConnected=True, connected=True, allowGuestControl=False
    )
    nic.addressType, nic.macAddress = ("manual", mac) if mac else ("generated", None)
    return _added(vim, nic)


def _disk(host: EsxiHost, path: str) -> Iterator[Any]:
    """Return an existing disk on a SATA controller, which every Linux has a driver for."""
    vim, device = host.session.vim, host.session.vim.vm.device
    backing = device.VirtualDisk.FlatVer2BackingInfo(fileName=path, diskMode="persistent")
    disk = device.VirtualDisk(key=_FIRST_NEW + 1, controllerKey=_CONTROLLER, unitNumber=0, backing=backing)
    yield _added(vim, device.VirtualAHCIController(key=_CONTROLLER, busNumber=0))
    yield _added(vim, disk)


def _added(vim: Any, device: Any) -> Any:  # noqa: ANN401 - as above
    change = vim.vm.device.VirtualDeviceSpec
    return change(operation=change.Operation.add, device=device)


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
