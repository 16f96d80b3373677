"""The inventory of an ESXi host: itself, physical NICs, switches, port groups, datastores and virtual machines."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from netbench.errors import TestbedError
from netbench.vmm.esxi_api import Session
from netbench.vmm.esxi_options import EsxiOptions

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
