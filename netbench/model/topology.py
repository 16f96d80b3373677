"""The topology of a testbed: hosts, NICs, links, streams and units under test."""

from collections.abc import Collection
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from netbench.model.cables import VmNic
from netbench.model.documents import plain
from netbench.model.entitlement import CpuLimit, Cpus, CpuWeight, Entitlement, Placement
from netbench.model.fields import listed, percent_text
from netbench.model.host_spec import HostSpec, PortSpec, SshSpec, VmSpec
from netbench.model.interfaces import PREFIX, host_of, split_endpoint
from netbench.model.names import Name, NicName, StreamName
from netbench.model.reverse_streams import with_ways_back
from netbench.model.scenario import Activity, Idle, Network, Scenario
from netbench.model.topology_problems import topology_problems
from netbench.model.traffic import NapiPolicy, Receive
from netbench.model.unit_hints import bit_rate_hint
from netbench.model.units import MAX_MTU, USUAL_MTU, format_bit_rate, parse_bit_rate

MAX_STREAMS = 250
# The suffix of a UUT's name for the other version that it is measured against in the same campaign.
_BASE = ".base"


def version_name(uut: str) -> str:
    """Return the name of the version that a UUT is measured against."""
    return uut + _BASE


def measured_pairs(uuts: Collection[str]) -> dict[str, str]:
    """Return the UUTs that are measured against another version, by name, with the name of that version."""
    return {uut: version_name(uut) for uut in uuts if version_name(uut) in uuts}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _positive_rate(value: object) -> float:
    if not isinstance(value, str):
        raise ValueError(f"a link rate needs a unit; write for example 1Gbit/s{bit_rate_hint(value)}")
    rate = parse_bit_rate(value)
    if rate <= 0:
        raise ValueError("a link rate must be more than 0")
    return rate


_RATE_SCHEMA = {"type": "string", "examples": ["1Gbit/s"], "pattern": r"^\s*[0-9.]+\s*[kKMGT]?bit/s\s*$"}
BitRate = Annotated[
    float, BeforeValidator(_positive_rate), PlainSerializer(format_bit_rate), WithJsonSchema(_RATE_SCHEMA)
]


def _endpoint(text: str) -> str:
    split_endpoint(text)
    return text


Endpoint = Annotated[str, AfterValidator(_endpoint)]


class LinkSpec(_Strict):
    """A link of nominal rate `rate` (bit/s, L1).

    Two ends that are not ports become a veth pair. Two ports are an existing cable, also between two machines; if they
    are NICs of two VMs, netbench makes the cable. One end alone is a port cabled to something that netbench does not
    control. `receive` is how a UUT receives frames at its end of a veth pair: `inline`, within the source's system
    call, or `napi`, from a ring, by a kernel thread of its own. `mtu` is set at both ends of a veth pair, and a port
    must have it already; None is the usual one.
    """

    ends: Annotated[tuple[Endpoint, ...], Field(min_length=1, max_length=2)]
    """One or two NICs as host/nic. Two that are no ports become a veth pair; two ports are an existing cable; two NICs
    of VMs are cabled by netbench; a single port is cabled to an external device."""
    rate: BitRate
    """Line rate (L1). Nominal for veth pairs: shares of line rate refer to it."""
    receive: Receive = "inline"
    """How the UUT receives on a veth pair: inline, in the source's system call; napi, from a ring of 256 frames by a
    kernel thread."""
    mtu: Annotated[int, Field(strict=True, ge=USUAL_MTU, le=MAX_MTU)] | None = None
    """MTU of both ends. A port must have it already."""

    @property
    def mtu_bytes(self) -> int:
        """The MTU in effect."""
        return self.mtu or USUAL_MTU


class StreamSpec(_Strict):
    """One source port → one ingress NIC → UUT → one egress NIC → one sink port.

    A stream through a UUT that netbench does not control has neither ingress nor egress. `reverse` names the stream
    that this one is the way back of: it has the same NICs in opposite roles (RFC 2544, section 14), which are omitted.
    """

    name: StreamName
    """At most 9 characters."""
    reverse: StreamName | None = None
    """The stream whose reverse direction this is (RFC 2544, section 14); all NICs are then left out."""
    source: Endpoint
    """NIC that sends."""
    ingress: Endpoint | None = None
    """NIC at which frames enter the UUT; left out for `external` and `esxi`."""
    egress: Endpoint | None = None
    """NIC at which frames leave the UUT; left out for `external` and `esxi`."""
    sink: Endpoint
    """NIC that receives."""

    @property
    def nics(self) -> tuple[str, ...]:
        """All its NICs in order from source to sink."""
        return tuple(nic for nic in (self.source, self.ingress, self.egress, self.sink) if nic is not None)


class UutSpec(BaseModel):
    """A unit under test: its name, its kind, and the options of that kind.

    `host_cpus` are CPUs of the machine it runs on, empty for all. `napi_policy` is the scheduling policy (sched(7)) of
    the kernel threads that receive for it on links with `receive: napi`. `neighbours` are changes of the topology's
    neighbours beside this UUT, by name. `on` is a VM: while this UUT is measured, all namespaces without a VM of their
    own are on this one.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    """Name in results."""
    kind: Name
    """Kind of UUT."""
    on: NicName | None = None
    """VM or SSH host on which this UUT, its source and its sink run. Default: as `hosts` defines."""
    host_cpus: Cpus = ()
    """CPUs of the machine that the UUT may use. Default: all."""
    cpu_weight: CpuWeight | None = None
    """cgroup weight; 100 is the usual one."""
    cpu_limit: CpuLimit | None = None
    """Largest share of CPU time; 50% is half a CPU."""
    napi_policy: NapiPolicy = "other"
    """Scheduling policy of the kernel threads that receive for this UUT (`receive: napi`)."""
    neighbours: dict[NicName, dict[str, Any]] = {}
    """Deviating options of neighbours beside this UUT, by name."""

    @property
    def options(self) -> dict[str, object]:
        """The options of the kind, as written."""
        return dict(self.model_extra or {})

    @property
    def entitlement(self) -> Entitlement:
        """Its CPU limits on its machine."""
        return Entitlement(self.host_cpus, self.cpu_weight, self.cpu_limit)


class NeighbourSpec(BaseModel):
    """Another guest on the UUT's host. Its kind and options are those of the UUT, unless they are given here.

    `streams` are the streams that run through it. `placement` is its CPUs: relative to the UUT, or CPUs by number.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: NicName
    """Name in scenarios and results."""
    kind: Name | None = None
    """Default: the UUT's kind, with its options except `pin`."""
    streams: Annotated[tuple[StreamName, ...], BeforeValidator(listed)] = ()
    """Streams through this neighbour. Without any it has no NICs."""
    placement: Placement | None = None
    """CPUs relative to the UUT: same-cpu, sibling, other-core; or CPU numbers. Default: the scheduler's choice."""
    cpu_weight: CpuWeight | None = None
    """cgroup weight."""
    cpu_limit: CpuLimit | None = None
    """Largest share of CPU time."""

    @property
    def options(self) -> dict[str, object]:
        """The options of the kind, as written."""
        return dict(self.model_extra or {})

    def beside(self, uut: UutSpec) -> "NeighbourSpec":
        """Return it with this UUT's changes; pydantic's ValidationError if they are invalid."""
        changes = uut.neighbours.get(self.name, {})
        return type(self).model_validate({**plain(self, exclude_none=True), **changes})

    def as_uut(self, uut: UutSpec, known: Collection[str]) -> UutSpec:
        """Return it as a UUT specification beside this UUT, without CPUs, which are assigned elsewhere.

        `known` are the options of its kind. If it has no kind of its own, options that this kind lacks are left out:
        they are for the kinds of other UUTs.
        """
        kind = self.kind or uut.kind
        inherited = uut.options if kind == uut.kind else {}
        meant = self.options
        if self.kind is None:
            for_this = uut.neighbours.get(self.name, {})
            meant = {name: value for name, value in meant.items() if name in known or name in for_this}
        options = {name: value for name, value in inherited.items() if name != "pin"} | meant
        spec = {"name": f"{uut.name}.{self.name}", "kind": kind, **options}
        if self.cpu_weight is not None:
            spec["cpu_weight"] = self.cpu_weight
        if self.cpu_limit is not None:
            spec["cpu_limit"] = percent_text(self.cpu_limit)
        return UutSpec.model_validate(spec)


class Topology(_Strict):
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
        tuple[StreamSpec, ...], Field(min_length=1, max_length=MAX_STREAMS), BeforeValidator(with_ways_back)
    ]
    """Paths of frames from source to sink."""
    uuts: Annotated[tuple[UutSpec, ...], Field(min_length=1)]
    """Units under test, measured in turn."""
    neighbours: tuple[NeighbourSpec, ...] = ()
    """Other guests on the UUT's host."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for problem in topology_problems(self):
            raise ValueError(problem)
        return self

    def uut(self, name: str) -> UutSpec:
        """Return the UUT of that name; KeyError when there is none."""
        return {uut.name: uut for uut in self.uuts}[name]

    def on(self, machine: str | None) -> "Topology":
        """Return the testbed of the UUTs that are `on` a VM, or (None) on none: those UUTs and their hosts."""
        others = {uut.on for uut in self.uuts} - {machine, None} - {host.on for host in self.hosts.values()}
        hosts = {
            name: host.model_copy(update={"on": host.on or machine}) if host.kind == "netns" else host
            for name, host in self.hosts.items()
            if name not in others
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
