"""What exists: hosts, NICs, links, streams and units under test."""

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
from netbench.model.host_spec import HostSpec, Port, SshSpec, VmSpec
from netbench.model.interfaces import PREFIX, host_of, split_endpoint
from netbench.model.names import Name, NicName, StreamName
from netbench.model.scenario import Activity, Idle, Network, Scenario
from netbench.model.topology_problems import topology_problems
from netbench.model.traffic import NapiPolicy, Receive
from netbench.model.unit_hints import bit_rate_hint
from netbench.model.units import MAX_MTU, USUAL_MTU, format_bit_rate, parse_bit_rate
from netbench.model.ways_back import with_ways_back

MAX_STREAMS = 250
# The last part of the name of a UUT that another version of it is measured against, in the same campaign.
_BASE = ".base"


def version_name(uut: str) -> str:
    """Return the name of the version that a UUT is measured against."""
    return uut + _BASE


def measured_pairs(uuts: Collection[str]) -> dict[str, str]:
    """Return which of these UUTs are measured against another version, by name, and the name of that version."""
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


_RATE_SCHEMA = {"type": "string", "description": "1Gbit/s", "pattern": r"^\s*[0-9.]+\s*[kKMGT]?bit/s\s*$"}
BitRate = Annotated[
    float, BeforeValidator(_positive_rate), PlainSerializer(format_bit_rate), WithJsonSchema(_RATE_SCHEMA)
]


def _endpoint(text: str) -> str:
    split_endpoint(text)
    return text


Endpoint = Annotated[str, AfterValidator(_endpoint)]


class LinkSpec(_Strict):
    """A link of nominal rate `rate` (bit/s, L1).

    Two ends that are not ports become a veth pair; two ports are a cable that is already there, also between two
    machines, and one that netbench makes where they are NICs of two VMs; one end alone is a port cabled to something
    netbench does not control. `receive` is how a UUT takes frames in at its end of a veth pair: `inline`, within the
    source's own call, or `napi`, from a ring, by a kernel thread of its own. `mtu` is given to both ends of a veth
    pair, and a port must have it already; None is the usual one.
    """

    ends: Annotated[tuple[Endpoint, ...], Field(min_length=1, max_length=2)]
    rate: BitRate
    receive: Receive = "inline"
    mtu: Annotated[int, Field(strict=True, ge=USUAL_MTU, le=MAX_MTU)] | None = None

    @property
    def mtu_bytes(self) -> int:
        """The MTU that it has."""
        return self.mtu or USUAL_MTU


class StreamSpec(_Strict):
    """One source port → one ingress NIC → UUT → one egress NIC → one sink port.

    A stream through a UUT that netbench does not control has neither ingress nor egress. `reverse` names the stream
    whose way back it is: it has that one's NICs, the other way round (RFC 2544, section 14), which are left out then.
    """

    name: StreamName
    reverse: StreamName | None = None
    source: Endpoint
    ingress: Endpoint | None = None
    egress: Endpoint | None = None
    sink: Endpoint

    @property
    def nics(self) -> tuple[str, ...]:
        """All its NICs on the way from source to sink."""
        return tuple(nic for nic in (self.source, self.ingress, self.egress, self.sink) if nic is not None)


class UutSpec(BaseModel):
    """A unit under test: its name, its kind, and whatever options that kind has.

    `host_cpus` are CPUs of the machine it runs on, empty for all. `napi_policy` is the scheduling policy (sched(7)) of
    the kernel threads that receive for it on links with `receive: napi`. `neighbours` says, by name, what is different
    with the topology's neighbours beside this UUT. `on` is a VM: while this UUT is measured, all namespaces that are
    on no other are on that one.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    kind: Name
    on: NicName | None = None
    host_cpus: Cpus = ()
    cpu_weight: CpuWeight | None = None
    cpu_limit: CpuLimit | None = None
    napi_policy: NapiPolicy = "other"
    neighbours: dict[NicName, dict[str, Any]] = {}

    @property
    def options(self) -> dict[str, object]:
        """The options of the kind, as written."""
        return dict(self.model_extra or {})

    @property
    def entitlement(self) -> Entitlement:
        """What it may take of its machine's CPUs."""
        return Entitlement(self.host_cpus, self.cpu_weight, self.cpu_limit)


class NeighbourSpec(BaseModel):
    """Another guest on the UUT's host: of the UUT's kind unless it has one of its own, and with the UUT's options but
    for those given here.

    `streams` are the streams that run through it. `placement` is where it runs: relative to the UUT, or CPUs by number.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: NicName
    kind: Name | None = None
    streams: Annotated[tuple[StreamName, ...], BeforeValidator(listed)] = ()
    placement: Placement | None = None
    cpu_weight: CpuWeight | None = None
    cpu_limit: CpuLimit | None = None

    @property
    def options(self) -> dict[str, object]:
        """The options of the kind, as written."""
        return dict(self.model_extra or {})

    def beside(self, uut: UutSpec) -> "NeighbourSpec":
        """What it is beside this UUT, whose file may change some of it; pydantic's ValidationError as for any other."""
        changes = uut.neighbours.get(self.name, {})
        return type(self).model_validate({**plain(self, exclude_none=True), **changes})

    def as_uut(self, uut: UutSpec, known: Collection[str]) -> UutSpec:
        """Itself as something that forwards, beside this UUT; which CPUs it gets is not decided here.

        `known` are the options of its kind. Where that is the UUT's, those that were given for all UUTs and that this
        kind does not know are left out: they are meant for others.
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
    description: str = ""
    hosts: Annotated[dict[NicName, HostSpec], Field(min_length=1)]
    links: Annotated[tuple[LinkSpec, ...], Field(min_length=1)]
    streams: Annotated[
        tuple[StreamSpec, ...], Field(min_length=1, max_length=MAX_STREAMS), BeforeValidator(with_ways_back)
    ]
    uuts: Annotated[tuple[UutSpec, ...], Field(min_length=1)]
    neighbours: tuple[NeighbourSpec, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for problem in topology_problems(self):
            raise ValueError(problem)
        return self

    def uut(self, name: str) -> UutSpec:
        """The UUT of that name; KeyError when there is none."""
        return {uut.name: uut for uut in self.uuts}[name]

    def on(self, machine: str | None) -> "Topology":
        """The testbed of the UUTs that are `on` a VM, or (None) on none: those UUTs, and the hosts as they are then."""
        others = {uut.on for uut in self.uuts} - {machine, None} - {host.on for host in self.hosts.values()}
        hosts = {
            name: host.model_copy(update={"on": host.on or machine}) if host.kind == "netns" else host
            for name, host in self.hosts.items()
            if name not in others
        }
        return self.model_copy(update={"hosts": hosts, "uuts": tuple(uut for uut in self.uuts if uut.on == machine)})

    @property
    def places(self) -> tuple[str | None, ...]:
        """The VMs that UUTs are on, each once; None among them for those that are on none."""
        return tuple(dict.fromkeys(uut.on for uut in self.uuts))

    def is_port(self, end: str) -> bool:
        """Whether an end is a port the machine already has."""
        host, nic = split_endpoint(end)
        return nic in self.hosts[host].ports or self.vm_nic(end) is not None

    def interface(self, end: str) -> str:
        """The interface name of an end, as the kernel knows it."""
        host, nic = split_endpoint(end)
        port = self.hosts[host].ports.get(nic)
        return port.nic if port else nic if self.vm_nic(end) else PREFIX + nic

    def vm_nic(self, end: str) -> VmNic | None:
        """The NIC of a VM that an end is, or is the port of; None where it is no such NIC."""
        host, nic = split_endpoint(end)
        port, machine = self.hosts[host].ports.get(nic), self.machine(host)
        if machine not in self.vms or (self.netns(host) and port is None):
            return None
        name = port.nic if port else nic
        return VmNic(machine, name) if name in self.vms[machine].nics else None

    def ports(self, machine: str | None = None) -> list[Port]:
        """The ports it borrows of this machine, or of another."""
        hosts = [host for name, host in self.hosts.items() if self.machine(name) == machine]
        return [port for host in hosts for port in host.ports.values()]

    def port_mtus(self, machine: str | None = None) -> dict[str, int]:
        """The same by name, and the MTU that each must have."""
        ends = [(end, link.mtu_bytes) for link in self.links for end in link.ends if self.is_port(end)]
        return {self.interface(end): mtu for end, mtu in ends if self.machine(host_of(end)) == machine}

    @property
    def own_streams(self) -> tuple[StreamSpec, ...]:
        """The streams that run through the UUT itself."""
        taken = {stream for neighbour in self.neighbours for stream in neighbour.streams}
        return tuple(stream for stream in self.streams if stream.name not in taken)

    def activity(self, scenario: Scenario, name: str) -> Activity:
        """What a neighbour does in a scenario: one without streams is idle where all are to forward."""
        does = scenario.of(name)
        silent = any(one.name == name and not one.streams for one in self.neighbours)
        return Idle() if isinstance(does, Network) and silent and name not in scenario.neighbours else does

    def stream_link(self, stream: StreamSpec) -> LinkSpec:
        """The link a stream's source sends on; its rate is what a share of line rate refers to."""
        return next(link for link in self.links if stream.source in link.ends)

    def links_of(self, stream: StreamSpec) -> tuple[LinkSpec, ...]:
        """Those that a stream goes over."""
        return tuple(link for link in self.links if set(link.ends) & set(stream.nics))

    def machine(self, host: str) -> str | None:
        """The VM or SSH host that a host is, or is on; None for this machine."""
        return host if self.hosts[host].kind in ("vm", "ssh") else self.hosts[host].on

    @property
    def uut_machine(self) -> str | None:
        """The machine that the UUT's NICs are in; None for this one, and for a UUT that netbench does not control."""
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
        """The name of a host's network namespace; None for a machine itself."""
        return f"{PREFIX}{self.name}-{host}" if self.hosts[host].kind == "netns" else None
