"""A guest as described to the vSphere API (vSphere Web Services API 6.5, VirtualMachineConfigSpec)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from netbench.errors import TestbedError
from netbench.vmm.esxi_inventory import EsxiHost, power_off
from netbench.vmm.esxi_options import EsxiOptions

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

    `weight` and `limit` are as in CpuShares, of CPUs of the ESXi host.
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
