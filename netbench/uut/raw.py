"""UUT `raw`: the host's own kernel forwards, without virtualisation. The baseline for every VMM."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, model_validator

from netbench.errors import ChangeError, KeyedError, MissingError
from netbench.hosts.host_wrappers import ConfinedHost
from netbench.linux.changes import AddIngress, AddTable, Change, GroOn, Redirect, SetUp, SteerReceived
from netbench.linux.requirements import IN_A_VM, ON_VETH, Feature, Probes, Requirement
from netbench.model.packet import Packet
from netbench.model.packet_options import PacketOptions
from netbench.model.paths import StreamPath, inside_nics
from netbench.model.points import CountingPoint, PointKind, forwarding_point
from netbench.model.topology_specs import Cpus
from netbench.model.virtualisation import DurationEstimate, Supports
from netbench.model.workload import FlowPath
from netbench.uut import xdp_process
from netbench.uut.base import Assignment, Reading, Ready, Site, Step, UnitUnderTest, UutPlan
from netbench.uut.directions import sent_packet
from netbench.uut.forwarding import (
    ROUTING,
    Forward,
    ForwardingProcess,
    StartProcess,
    await_forwarding,
    forwarding_changes,
    server_addresses,
    through_reason,
    unserved_reason,
)
from netbench.uut.packet_interfaces import PacketHandling
from netbench.uut.packet_support import (
    PACKET_FEATURES,
    added_bytes,
    at_sink,
    check_handling,
    failure_of,
    missing_feature,
    packet_needs,
    require_ipv6,
    unsupported_reason,
)
from netbench.uut.routing import await_silence

_QUIET_TIME_S = 0.01  # a kernel forwards at once
_NEEDS = {
    "bridge": ("bridge", "bridge-nf"),
    "route": ("forwarding",),
    "flowtable": ("forwarding", "nft", "flowtable"),
    "tc": ("tc-redirect",),
    "xdp": ("xdp-redirect",),
}
# The changes that fail in a kernel without the feature.
_CHANGES = {"flowtable": (AddTable,), "tc": (AddIngress, Redirect)}
_XDP_ROLE = "xdp"


class RawOptions(PacketOptions, extra="forbid"):
    """How a kernel forwards, on which CPUs, and what it does to the headers of packets.

    `forward`: `bridge` (L2), `route` (L3), `flowtable` (L3, past the IP layer after the first frames of a flow), `tc`
    or `xdp` (redirected as they are, before any layer sees them). `rps` are the CPUs that process the frames of the
    ingress NICs further, by flow. `xdp` is where its programs run: `native`, in the driver, or `generic`, behind it.
    """

    forward: Forward = "bridge"
    """bridge (L2), route (L3), flowtable (L3 fast path), tc or xdp (redirect)."""
    rps: Cpus = ()
    """CPUs that process received frames further, by flow (Receive Packet Steering). Not with xdp."""
    xdp: Literal["auto", "native", "generic"] = "auto"
    """Where XDP programs run: native (driver), generic, or auto."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.forward == "xdp" and self.rps:
            raise KeyedError("rps", "XDP redirects frames before they are spread over CPUs; leave it out, or use tc")
        if self.forward != "xdp" and self.xdp != "auto":
            raise KeyedError("xdp", f"{self.xdp} is for `forward: xdp`")
        return self


class Raw(UnitUnderTest):
    """The kernel of the host the NICs belong to.

    Its entitlement applies to commands run inside it. A kernel forwards on the CPU that receives a frame, outside any
    control group. Forwarding can be bound where a thread receives (`receive: napi`), and be spread (`rps`).
    """

    Options: ClassVar[type[BaseModel]] = RawOptions
    supports = Supports(
        pinning=("the thread that receives (`receive: napi`)", "those that go on (`rps`)"),
        counters=("NICs", "bridge or IP layer", "queues"),
    )
    may_need: ClassVar[tuple[Requirement, ...]] = (
        Feature(
            "flowtable",
            "raw UUTs with `forward: flowtable`",
            (*ON_VETH, "nft"),
            "CONFIG_NF_FLOW_TABLE",
            "nf_flow_table",
            Probes.flowtable,
            optional=True,
            otherwise=f"`forward: route` does without; {IN_A_VM}",
        ),
        Feature(
            "tc-redirect",
            "raw UUTs with `forward: tc`",
            ON_VETH,
            "CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED",
            "act_mirred",
            Probes.redirect,
            optional=True,
            otherwise="`forward: bridge` does without",
        ),
        Feature(
            "xdp-redirect",
            "raw UUTs with `forward: xdp`",
            ON_VETH,
            "CONFIG_BPF_SYSCALL",
            "",
            Probes.xdp_redirect,
            optional=True,
            otherwise="`xdp: auto` also works behind the driver; `forward: tc` does without",
        ),
        *PACKET_FEATURES.values(),
    )

    def __init__(self, options: RawOptions) -> None:
        self.options = options
        self._process: ForwardingProcess | None = None

    def check(self, paths: Sequence[StreamPath]) -> None:
        for path in paths:
            inside_nics(path)
        check_handling(paths, self._handling(()), all_ours=False)

    def unsupported_reason(self, packet: Packet, paths: Sequence[StreamPath]) -> str:
        how = self.options.forward
        return unsupported_reason(packet, paths, how, self._handling((packet,)), all_ours=False)

    @property
    def unserved_reason(self) -> str:
        return unserved_reason(self.options.forward)

    def path_reason(self, path: FlowPath) -> str:
        match path:
            case FlowPath.LOOPBACK:
                return ""
            case FlowPath.THROUGH:
                return through_reason(self.options.forward, self.options)
            case FlowPath.BETWEEN_GUESTS:
                return "it is no guest, so there is no link to a second guest"
        return self.unserved_reason

    def sent_packet(self, packet: Packet, path: StreamPath) -> Packet:
        return sent_packet(packet, path, self.options)

    def added_bytes(self, packet: Packet, path: StreamPath) -> int:
        return added_bytes(packet, path, self._handling((packet,)))

    def plan(self, assignment: Assignment) -> UutPlan:
        how, handling = self.options.forward, self._handling(assignment.packets)
        return UutPlan(
            steps=(
                *assignment.cgroup_changes,
                *forwarding_changes(assignment.paths, how, assignment.name, handling),
                *self._steering(assignment.paths),
                *self._redirecting(assignment.paths),
                *([SetUp(_netns(assignment.paths), "lo")] if assignment.has_loopback else ()),
            ),
            needs=frozenset(_NEEDS[how]) | packet_needs(handling, how, assignment.paths),
            load_needs=frozenset({"stress-ng"}),
            pace=DurationEstimate(bring_up_s=0.8 if self.options.forward == "xdp" else 0.4, load_s=0.1, worker_s=0.015),
        )

    def provision(self, site: Site) -> None:
        """Carry out the plan; MissingError where the kernel does not support this way to forward."""
        how, handling = self.options.forward, self._handling(site.assignment.packets)
        require_ipv6(site.machine, handling, how)
        try:
            super().provision(site)
        except ChangeError as error:
            if missing := missing_feature(error, "this kernel"):
                raise missing from error
            if not isinstance(error.change, _CHANGES.get(self.options.forward, ())):
                raise  # other causes: an address that is in use, for example
            features = (need for need in Raw.may_need if isinstance(need, Feature))
            feature = next(feature for feature in features if feature.name in _NEEDS[self.options.forward])
            raise MissingError(
                f"forward: {self.options.forward} needs a kernel with {feature.option} (module {feature.module}), but "
                f"this kernel failed: {failure_of(error)}; {feature.otherwise}"
            ) from error
        if how in ROUTING:
            await_silence(handling)

    def take(self, step: Step, site: Site) -> None:
        """Start the process that keeps XDP programs attached."""
        assert isinstance(step, StartProcess)
        self._process = ForwardingProcess(site.hosts[step.host], step)

    def ready(self) -> Ready:
        site, own = self.site, self.site.assignment
        facts: dict[str, str] = {"forward": self.options.forward}
        if self._process:
            facts |= self._xdp_facts(self._process)
        if self.options.rps:
            facts["rps"] = ",".join(map(str, self.options.rps))
        how, handling = self.options.forward, self._handling(own.packets)
        nics = {path.name: inside_nics(path) for path in site.paths}
        await_forwarding(site.machine, [nic.place for pair in nics.values() for nic in pair])
        own_mac = [path for path in site.paths if how in ROUTING or handling.ends_tunnels(path)]
        return Ready(
            next_hop_macs={path.name: path.sink.mac for path in site.paths}
            | {path.name: nics[path.name][0].mac for path in own_mac},
            quiet_time_s=_QUIET_TIME_S,
            inside=ConfinedHost(site.host, own.cpu_shares.cpus, own.cgroup_procs(site.host)),
            facts=facts | own.cpu_facts,
            points={path.name: (self._forwards_at(path),) for path in site.paths},
            at_sink=at_sink(site.paths, how, handling),
            probe_limit_s=self.probe_limit_s,
            addresses=server_addresses(site.paths, self.options.forward),
        )

    def read(self) -> Reading:
        """Return an empty reading; TestbedError when the process died that kept the XDP programs attached."""
        if self._process:
            self._process.require_alive()
        return Reading()

    def destroy(self) -> None:
        """Detach XDP programs; everything else is undone with the site's changes."""
        process, self._process = self._process, None
        if process:
            process.end()
        super().destroy()

    def _handling(self, packets: tuple[Packet, ...]) -> PacketHandling:
        return PacketHandling(self.options, packets)

    def _steering(self, paths: Sequence[StreamPath]) -> list[Change]:
        nics = [inside_nics(path)[0] for path in paths if self.options.rps]
        return [SteerReceived(nic.netns, nic.interface, self.options.rps) for nic in nics]

    def _redirecting(self, paths: Sequence[StreamPath]) -> list[Step]:
        """Return the steps of `xdp`: GRO at the far end of veth pairs, to receive these frames, and the process."""
        if self.options.forward != "xdp" or not paths:
            return []
        others = [path.sink for path in paths if not path.sink.is_port and self.options.xdp != "generic"]
        names = [nic.interface for path in paths for nic in inside_nics(path)]
        host = inside_nics(paths[0])[0].host
        process = StartProcess(_XDP_ROLE, host, xdp_process.__name__, (self.options.xdp, *names))
        return [*(GroOn(nic.netns, nic.interface) for nic in others), process]

    def _xdp_facts(self, process: ForwardingProcess) -> dict[str, str]:
        answer = process.answer()
        if "failed" in answer:
            raise MissingError(f"forward: xdp: {answer['failed']}")
        return {"xdp": f"{answer['mode']} ({answer['why']})" if answer["why"] else str(answer["mode"])}

    def _forwards_at(self, path: StreamPath) -> CountingPoint:
        """Return the counting point that forwards: a bridge or IP layer, which may drop frames, or a redirect."""
        if self.options.forward in ROUTING:
            return forwarding_point(path, PointKind.IP_LAYER)
        if self.options.forward == "bridge":
            return forwarding_point(path, PointKind.BRIDGE)
        return CountingPoint(f"{self.options.forward} redirect", names_segment=True)


def _netns(paths: Sequence[StreamPath]) -> str | None:
    """Return the namespace of a UUT's NICs."""
    return inside_nics(paths[0])[0].netns if paths else None
