"""Two versions of the same UUTs in one topology, so that one campaign measures them in turn."""

from collections.abc import Iterable, Mapping

from netbench.errors import UsageError
from netbench.model.documents import plain
from netbench.model.host_spec import HostSpec
from netbench.model.topology import Topology, version_name
from netbench.model.topology_specs import UutSpec

_VM_NAME = 7  # characters of a VM's name that leave enough for the suffix, see NicName


def with_base_versions(new: Topology, base: Topology) -> Topology:
    """Return `new` with the UUTs of `base` beside its own: NAME is followed by NAME.base.

    UUTs without a namesake are left out. If a VM differs, both versions are in the result. UsageError where anything
    except UUTs, their VMs and the CPUs of these VMs differs, and where the topologies have no UUT in common.
    """
    new, base = _with_uuts_on_vms(new), _with_uuts_on_vms(base)
    renamed = _vms_to_rename(new, base)
    for part in ("links", "streams", "neighbours"):
        if getattr(new, part) != getattr(base, part):
            raise UsageError(
                f"--against: topologies {new.name} and {base.name} differ in `{part}`; only UUTs may differ"
            )
    if _other_hosts(new, renamed) != _other_hosts(base, renamed):
        raise UsageError(
            f"--against: topologies {new.name} and {base.name} differ in `hosts`; only UUTs and the VMs they run on may"
        )
    pairs = [(uut, base.uut(uut.name)) for uut in new.uuts if any(uut.name == base_uut.name for base_uut in base.uuts)]
    if not pairs:
        raise UsageError(f"--against: topologies {new.name} and {base.name} have no UUT of the same name")
    uuts = [version for uut, base_uut in pairs for version in (uut, _as_base(base_uut, renamed))]
    if taken := {uut.name for uut in new.uuts} & {version_name(uut.name) for uut, _ in pairs}:
        raise UsageError(f"--against: topology {new.name} has a UUT named {min(taken)}; rename it")
    vms = {name: base.hosts[vm] for vm, name in renamed.items()}
    document = new.model_copy(update={"hosts": {**new.hosts, **vms}, "uuts": tuple(uuts)})
    return Topology.model_validate(plain(document, exclude_none=True))


def _with_uuts_on_vms(topology: Topology) -> Topology:
    """Return the same testbed with the VM named by the UUTs instead of the network namespaces."""
    namespaces = [host for host in topology.hosts.values() if host.kind == "netns"]
    machines = {host.on for host in namespaces}
    if len(machines) != 1 or None in machines:
        return topology
    (machine,) = machines
    hosts = {
        name: host.model_copy(update={"on": None}) if host.kind == "netns" else host
        for name, host in topology.hosts.items()
    }
    uuts = tuple(uut.model_copy(update={"on": machine}) for uut in topology.uuts)
    return topology.model_copy(update={"hosts": hosts, "uuts": uuts})


def _vms_to_rename(new: Topology, base: Topology) -> dict[str, str]:
    """Return the VMs with UUTs that differ between the two, with their new names for the base version."""
    machines = {uut.on for uut in base.uuts if uut.on is not None}
    return {
        name: f"{name[:_VM_NAME]}-base"
        for name in base.vms
        if name in machines and name in new.hosts and base.hosts[name] != new.hosts[name]
    }


def _other_hosts(topology: Topology, renamed: Iterable[str]) -> Mapping[str, HostSpec]:
    return {name: host for name, host in topology.hosts.items() if name not in renamed}


def _as_base(uut: UutSpec, renamed: Mapping[str, str]) -> UutSpec:
    on = None if uut.on is None else renamed.get(uut.on, uut.on)
    return uut.model_copy(update={"name": version_name(uut.name), "on": on})
