"""The topology of a testbed: hosts, NICs, links, streams and units under test; and its consistency checks."""

import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from netbench.model.fields import NIC_NAME, KeyPath, Name, NicName, located_error
from netbench.model.host_spec import HostSpec, PortSpec, SshSpec, VmSpec
from netbench.model.paths import PREFIX, host_of, split_endpoint
from netbench.model.scenario import VICTIM, Activity, Idle, Network, Scenario
from netbench.model.suggestions import choices
from netbench.model.topology_specs import (
    LinkSpec,
    NeighbourSpec,
    StreamSpec,
    StrictModel,
    UutSpec,
    with_reverse_streams,
)
from netbench.model.units import format_bit_rate

MAX_STREAMS = 250
# The suffix of a UUT's name for the other version that it is measured against in the same campaign.
_BASE = ".base"


def version_name(uut: str) -> str:
    """Return the name of the version that a UUT is measured against."""
    return uut + _BASE


def measured_pairs(uuts: Collection[str]) -> dict[str, str]:
    """Return the UUTs that are measured against another version, by name, with the name of that version."""
    return {uut: version_name(uut) for uut in uuts if version_name(uut) in uuts}


class VmNic(NamedTuple):
    """A NIC of a VM that is a host, by the names of VM and NIC."""

    vm: str
    nic: str


class Topology(StrictModel):
    """Hosts, links between their NICs, the streams over them, and the UUTs to measure."""

    name: Name
    """Part of the names of namespaces: nb-NAME-HOST. Default: the name of the file."""
    description: str = ""
    """One line for `netbench list`."""
    hosts: Annotated[dict[NicName, HostSpec], Field(min_length=1)]
    """Hosts that have the NICs, by name."""
    links: Annotated[tuple[LinkSpec, ...], Field(min_length=1)]
    """Links between NICs."""
    streams: Annotated[
        tuple[StreamSpec, ...], Field(min_length=1, max_length=MAX_STREAMS), BeforeValidator(with_reverse_streams)
    ]
    """Paths of frames from source to sink."""
    uuts: Annotated[tuple[UutSpec, ...], Field(min_length=1)]
    """Units under test, measured in turn."""
    neighbours: tuple[NeighbourSpec, ...] = ()
    """Other guests on the UUT's host."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for path, message in topology_problems(self):
            raise located_error(path, message)
        return self

    def uut(self, name: str) -> UutSpec:
        """Return the UUT of that name; KeyError when there is none."""
        return {uut.name: uut for uut in self.uuts}[name]

    def on(self, machine: str | None) -> "Topology":
        """Return the testbed of the UUTs that are `on` a VM, or (None) on none: those UUTs and their hosts."""
        other_machines = {uut.on for uut in self.uuts} - {machine, None} - {host.on for host in self.hosts.values()}
        hosts = {
            name: host.model_copy(update={"on": host.on or machine}) if host.kind == "netns" else host
            for name, host in self.hosts.items()
            if name not in other_machines
        }
        return self.model_copy(update={"hosts": hosts, "uuts": tuple(uut for uut in self.uuts if uut.on == machine)})

    @property
    def places(self) -> tuple[str | None, ...]:
        """The VMs of all UUTs, each once, with None for UUTs that are on no VM."""
        return tuple(dict.fromkeys(uut.on for uut in self.uuts))

    def is_port(self, end: str) -> bool:
        """Return whether an end is a port that the machine already has."""
        host, nic = split_endpoint(end)
        return nic in self.hosts[host].ports or self.vm_nic(end) is not None

    def interface(self, end: str) -> str:
        """Return the interface name of an end in the kernel."""
        host, nic = split_endpoint(end)
        port = self.hosts[host].ports.get(nic)
        return port.nic if port else nic if self.vm_nic(end) else PREFIX + nic

    def vm_nic(self, end: str) -> VmNic | None:
        """Return the NIC of a VM that an end is, or is the port of; None if it is no such NIC."""
        host, nic = split_endpoint(end)
        port, machine = self.hosts[host].ports.get(nic), self.machine(host)
        if machine not in self.vms or (self.netns(host) and port is None):
            return None
        name = port.nic if port else nic
        return VmNic(machine, name) if name in self.vms[machine].nics else None

    def ports(self, machine: str | None = None) -> list[PortSpec]:
        """Return the ports that the topology borrows from this machine, or from another."""
        hosts = [host for name, host in self.hosts.items() if self.machine(name) == machine]
        return [port for host in hosts for port in host.ports.values()]

    def port_mtus(self, machine: str | None = None) -> dict[str, int]:
        """Return the MTU that each of these ports must have, by name."""
        ends = [(end, link.mtu_bytes) for link in self.links for end in link.ends if self.is_port(end)]
        return {self.interface(end): mtu for end, mtu in ends if self.machine(host_of(end)) == machine}

    @property
    def own_streams(self) -> tuple[StreamSpec, ...]:
        """The streams that run through the UUT itself."""
        taken = {stream for neighbour in self.neighbours for stream in neighbour.streams}
        return tuple(stream for stream in self.streams if stream.name not in taken)

    def activity(self, scenario: Scenario, name: str) -> Activity:
        """Return the activity of a neighbour in a scenario; without streams it is idle where all should forward."""
        activity = scenario.of(name)
        silent = any(neighbour.name == name and not neighbour.streams for neighbour in self.neighbours)
        return Idle() if isinstance(activity, Network) and silent and name not in scenario.neighbours else activity

    def stream_link(self, stream: StreamSpec) -> LinkSpec:
        """Return the link that a stream's source sends on; a share of line rate refers to its rate."""
        return next(link for link in self.links if stream.source in link.ends)

    def links_of(self, stream: StreamSpec) -> tuple[LinkSpec, ...]:
        """Return the links of a stream."""
        return tuple(link for link in self.links if set(link.ends) & set(stream.nics))

    def machine(self, host: str) -> str | None:
        """Return the VM or SSH host that a host is, or is on; None for this machine."""
        return host if self.hosts[host].kind in ("vm", "ssh") else self.hosts[host].on

    @property
    def uut_machine(self) -> str | None:
        """The machine of the UUT's NICs; None for this one, and for a UUT that netbench does not control."""
        return next((self.machine(host_of(stream.ingress)) for stream in self.streams if stream.ingress), None)

    @property
    def uut_host(self) -> str:
        """The host of the UUT's NICs; empty for a UUT that netbench does not control."""
        return next((host_of(stream.ingress) for stream in self.own_streams if stream.ingress), "")

    @property
    def vms(self) -> dict[str, VmSpec]:
        """The hosts that are virtual machines."""
        return {name: vm for name, host in self.hosts.items() if (vm := host.vm)}

    @property
    def ssh_hosts(self) -> dict[str, SshSpec]:
        """The hosts that are reached by SSH."""
        return {name: ssh for name, host in self.hosts.items() if (ssh := host.ssh)}

    def netns(self, host: str) -> str | None:
        """Return the name of a host's network namespace; None for a machine itself."""
        return f"{PREFIX}{self.name}-{host}" if self.hosts[host].kind == "netns" else None


class Cable(NamedTuple):
    """A link between NICs of two VMs: its number among all links, from 1, and its ends in the order of the file."""

    number: int
    ends: tuple[str, str]


class DevicePath(NamedTuple):
    """The path of a stream through a device under test: the link ends that are its NICs there."""

    stream: "StreamSpec"
    ingress: str
    egress: str


def cables(topology: Topology) -> list[Cable]:
    """Return the links that netbench makes between NICs of VMs."""
    return [
        Cable(number, (link.ends[0], link.ends[1]))
        for number, link in enumerate(topology.links, start=1)
        if len(link.ends) == 2 and topology.vm_nic(link.ends[0])
    ]


def devices(topology: Topology) -> dict[str, list[DevicePath]]:
    """Return the VMs that are devices under test, each with the paths of streams through it."""
    across = {end: far for cable in cables(topology) for end, far in (cable.ends, cable.ends[::-1])}
    paths_of: dict[str, list[DevicePath]] = {name: [] for name, vm in topology.vms.items() if vm.forward}
    for stream in topology.streams:
        if stream.ingress is None and stream.source in across and stream.sink in across:
            path = DevicePath(stream, across[stream.source], across[stream.sink])
            ingress, egress = topology.vm_nic(path.ingress), topology.vm_nic(path.egress)
            if ingress and egress and ingress.vm == egress.vm in paths_of:
                paths_of[ingress.vm].append(path)
    return paths_of


Problem = tuple[KeyPath, str]  # a contradiction in words, with the path of the value to change


def topology_problems(topology: Topology) -> Iterator[Problem]:
    """Yield the contradictions and impossible parts of a topology; nothing if it is valid."""
    yield from _end_problems(topology)
    yield from _host_problems(topology)
    yield from _link_problems(topology)
    yield from _stream_problems(topology)
    yield from _repeated(
        _names("streams", (stream.name for stream in topology.streams)), "stream {!r} is defined twice"
    )
    yield from _repeated(_names("uuts", (uut.name for uut in topology.uuts)), "UUT {!r} is defined twice")
    yield from _neighbour_problems(topology)


def _repeated(values: Mapping[KeyPath, Hashable], message: str) -> Iterator[Problem]:
    """Yield a problem for each value that equals an earlier one."""
    seen: set[Hashable] = set()
    for path, value in values.items():
        if value in seen:
            yield path, message.format(value)
        seen.add(value)


def _names(key: str, names: Iterable[str]) -> dict[KeyPath, Hashable]:
    return {(key, index, "name"): name for index, name in enumerate(names)}


def _ends(topology: Topology) -> dict[KeyPath, str]:
    return {
        ("links", number, "ends", position): end
        for number, link in enumerate(topology.links)
        for position, end in enumerate(link.ends)
    }


def _end_problems(topology: Topology) -> Iterator[Problem]:
    yield from _repeated(_ends(topology), "NIC {} is an end of more than one link")
    for path, end in _ends(topology).items():
        host, nic = split_endpoint(end)
        if host not in topology.hosts:
            yield path, f"link end {end}: there is no host {host!r}; {choices(host, topology.hosts, 'hosts')}"
        elif nic not in topology.hosts[host].ports and not re.fullmatch(NIC_NAME, nic):
            yield path, f"link end {end}: a NIC name is a-z, 0-9 and -, starts with a letter, at most 12 long"
        elif stream := _stream_with(topology, topology.interface(end)):
            name = topology.interface(end)
            yield (
                path,
                f"link end {end}: netbench itself makes an interface named {name} for stream {stream}; "
                "choose another name",
            )


def _stream_with(topology: Topology, interface: str) -> str:
    """Return the stream for which netbench may make an interface of this name beside its NICs; empty for none.

    That is its bridge, or the attachment of a guest: the first letters of a kind and of `ingress` or `egress`.
    """
    names = (stream.name for stream in topology.streams)
    return next((name for name in names if re.fullmatch(f"{PREFIX}(br|[a-z][ie])-{name}", interface)), "")


def _host_problems(topology: Topology) -> Iterator[Problem]:
    hosts_at: dict[tuple[str, int | None], list[str]] = {}
    for name, host in topology.hosts.items():
        machines = topology.vms | topology.ssh_hosts
        if host.on is not None and host.on not in machines:
            known = choices(host.on, machines, "VMs and SSH hosts") if machines else "there is none"
            yield ("hosts", name, "on"), f"host {name}: on: {host.on!r} is not a host of kind vm or ssh; {known}"
        if vm := topology.vms.get(host.on or ""):
            for port, spec in host.ports.items():
                if spec.nic not in vm.nics:
                    path = ("hosts", name, "ports", port)
                    yield path, f"host {name}: ports: VM {host.on} has no NIC {spec.nic}; name it under its nics"
        if ssh := host.ssh:
            hosts_at.setdefault((ssh.address, ssh.ssh_port), []).append(name)
    for (address, _), names in hosts_at.items():
        if len(names) > 1:
            text = f"hosts {', '.join(names)}: {address} is one machine; define one host with all of its ports"
            yield ("hosts", names[-1], "address"), text
    yield from _cable_problems(topology)
    yield from _problems_of_vms_of_uuts(topology)
    outside: dict[KeyPath, Hashable] = {
        path: f"{topology.interface(end)} would be on {topology.machine(host_of(end)) or 'this machine'} twice"
        for path, end in _ends(topology).items()
        if not topology.netns(host_of(end))
    }
    yield from _repeated(outside, "interface {}")
    ports: dict[KeyPath, Hashable] = {
        ("hosts", name, "ports", key): (port.nic, topology.machine(name))
        for name, host in topology.hosts.items()
        for key, port in host.ports.items()
    }
    yield from _repeated(ports, "port {0[0]} is given to more than one NIC")


def _problems_of_vms_of_uuts(topology: Topology) -> Iterator[Problem]:
    fixed = [name for name, host in topology.hosts.items() if host.kind in ("local", "ssh") or host.ports or host.nics]
    for index, uut in enumerate(topology.uuts):
        if uut.on is None:
            continue
        path = ("uuts", index, "on")
        if uut.on not in topology.vms:
            known = choices(uut.on, topology.vms, "VMs") if topology.vms else "there is none"
            yield path, f"UUT {uut.name}: on: {uut.on!r} is not a host of kind vm; {known}"
        elif fixed:
            yield path, f"UUT {uut.name}: on: host {fixed[0]} cannot be in a VM; it is a machine, or has ports of one"
        else:
            yield from ((path, f"UUT {uut.name}: on: {text}") for _, text in _links_apart(topology.on(uut.on)))


def _cable_problems(topology: Topology) -> Iterator[Problem]:
    """Yield the problems of NICs of VMs."""
    ends: dict[VmNic, str] = {}
    for number, link in enumerate(topology.links):
        yield from _cable_end_problems(topology, number, link)
        for position, end in enumerate(link.ends):
            nic = topology.vm_nic(end)
            if nic and (earlier := ends.setdefault(nic, end)) != end:
                path = ("links", number, "ends", position)
                yield path, f"link end {end}: NIC {nic.nic} of VM {nic.vm} is {earlier} already"
    for nic in (VmNic(name, nic) for name, vm in topology.vms.items() for nic in vm.nics):
        if nic not in ends:
            yield ("hosts", nic.vm, "nics", nic.nic), f"host {nic.vm}: nics: {nic.nic} is the end of no link"
    for name, paths in devices(topology).items():
        if not paths:
            yield (
                ("hosts", name, "forward"),
                f"host {name}: forward: no stream has both its source and its sink cabled to it",
            )


def _cable_end_problems(topology: Topology, number: int, link: LinkSpec) -> Iterator[Problem]:
    ends = [topology.vm_nic(end) for end in link.ends]
    if not any(ends):
        return
    if len(ends) != 2 or not all(ends) or len({end.vm for end in ends if end}) != 2:
        yield (
            ("links", number),
            f"{link.title}: netbench cables NICs of two VMs (`nics` under hosts) with each other, with nothing else",
        )
    if link.mtu is not None:
        path = ("links", number, "mtu")
        yield path, f"{link.title}: mtu: a cable between VMs is for frames of the usual size; leave it out"


def _link_problems(topology: Topology) -> Iterator[Problem]:
    for number, link in enumerate(topology.links):
        kinds = {topology.is_port(end) for end in link.ends}
        if len(kinds) == 2:
            yield ("links", number), f"{link.title}: one end is a port and the other is not; cable two ports or none"
        if link.receive != "inline" and True in kinds:
            path = ("links", number, "receive")
            yield path, f"{link.title}: receive: a port takes frames in as its driver does; leave it out"
        if len(link.ends) == 1 and kinds == {False}:
            yield ("links", number, "ends"), f"{link.title}: a link with one end needs a port; name it under hosts"
    yield from _links_apart(topology)


def _links_apart(topology: Topology) -> Iterator[Problem]:
    for number, link in enumerate(topology.links):
        apart = len({topology.machine(host_of(end)) for end in link.ends}) == 2
        if apart and not topology.is_port(link.ends[0]):
            yield (
                ("links", number),
                f"{link.title}: its ends are on different machines; only ports are cabled from one to another",
            )


def _stream_problems(topology: Topology) -> Iterator[Problem]:
    nics: dict[KeyPath, str] = {
        ("streams", index, role): nic
        for index, stream in enumerate(topology.streams)
        if not stream.reverse
        for role, nic in stream.nics_by_role.items()
    }
    yield from _repeated(
        nics, "NIC {} is used by more than one stream; only a stream and its reverse stream share NICs"
    )
    ends = _ends(topology).values()
    for path, nic in nics.items():
        if nic not in ends:
            yield path, f"NIC {nic} is used by a stream but is the end of no link"
    for index, stream in enumerate(topology.streams):
        for text in _problems_of_stream(topology, stream):
            yield ("streams", index), f"stream {stream.name}: {text}"
    if len({topology.machine(host_of(stream.ingress)) for stream in topology.streams if stream.ingress}) > 1:
        yield ("streams",), "streams: the UUT's NICs are all on one machine; here they are on several"


def _problems_of_stream(topology: Topology, stream: StreamSpec) -> Iterator[str]:
    if (stream.ingress is None) != (stream.egress is None):
        yield "give both ingress and egress, or neither"
    for outer, inner in ((stream.source, stream.ingress), (stream.sink, stream.egress)):
        if inner is not None and not any(set(link.ends) == {outer, inner} for link in topology.links):
            yield f"there is no link between {outer} and {inner}"
    if stream.ingress and stream.egress and host_of(stream.ingress) != host_of(stream.egress):
        yield "ingress and egress must be NICs of the same host, the UUT"
    rates = {link.rate for link in topology.links if {stream.source, stream.sink} & set(link.ends)}
    if stream.reverse and len(rates) > 1:
        different = " and ".join(map(format_bit_rate, sorted(rates)))
        yield (
            f"both ways are sent at the same rate, and the links of {stream.reverse} have {different}; "
            "give both the lower one"
        )


def _neighbour_problems(topology: Topology) -> Iterator[Problem]:
    names = [neighbour.name for neighbour in topology.neighbours]
    yield from _repeated(_names("neighbours", names), "neighbour {!r} is defined twice")
    known = [stream.name for stream in topology.streams]
    neighbour_of: dict[str, str] = {}
    for index, neighbour in enumerate(topology.neighbours):
        for position, name in enumerate(neighbour.streams):
            path: KeyPath = ("neighbours", index, "streams", position)
            title = f"neighbour {neighbour.name}"
            if name not in known:
                yield path, f"{title}: there is no stream {name!r}; {choices(name, known, 'streams')}"
            elif name in neighbour.streams[:position]:
                yield path, f"{title}: stream {name!r} is defined twice"
            elif name in neighbour_of:
                yield path, f"stream {name} runs through more than one neighbour"
            neighbour_of[name] = neighbour.name
        if neighbour.name == VICTIM:
            path = ("neighbours", index, "name")
            yield path, f"neighbours: {VICTIM} is the name of the guest beside them; choose another name"
    for stream in topology.streams:
        if stream.reverse and neighbour_of.get(stream.name) != neighbour_of.get(stream.reverse):
            yield (
                ("neighbours",),
                f"neighbours: stream {stream.name} is the reverse of {stream.reverse}: both must run through "
                "the same neighbour",
            )
    if known and not topology.own_streams:
        yield ("neighbours",), "neighbours: every stream runs through one of them; leave at least one to the UUT"
    for index, uut in enumerate(topology.uuts):
        for name, changes in uut.neighbours.items():
            path, title = ("uuts", index, "neighbours", name), f"UUT {uut.name}: neighbours"
            if name not in names:
                hint = choices(name, names, "neighbours") if names else "the topology has none"
                yield path, f"{title}: there is no {name!r}; {hint}"
            for key in sorted({"name", "streams"} & set(changes)):
                yield (*path, key), f"{title}: {name}: {key} is the same beside every UUT; change it above"
