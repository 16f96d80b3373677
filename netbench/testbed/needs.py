"""The needs of a campaign on this host, by their names in `netbench doctor`."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from netbench.config.plugins import SINKS, plugins
from netbench.model.packet import Packet
from netbench.model.paths import host_of
from netbench.model.profile import SinkSpec
from netbench.model.scenario import VICTIM, Activity, Stress
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.model.topology_specs import UutSpec
from netbench.model.workload import FlowPath
from netbench.testbed.flow_checks import (
    PlacedTool,
)
from netbench.testbed.guest_specs import guest_specs, make_uut
from netbench.testbed.requirements import TOOLS
from netbench.testbed.virtual_machines import vmm_of
from netbench.uut.base import Assignment, UnitUnderTest, UutPlan


def needs_of(
    topology: Topology,
    uuts: Collection[str] = (),
    activities: Mapping[str, Collection[Activity]] | None = None,
    sink: SinkSpec = SinkSpec(),  # noqa: B008 - frozen
    packets: tuple[Packet, ...] = (),
    tools: Sequence[PlacedTool] = (),
) -> frozenset[str]:
    """Return the needs of these UUTs (empty: all of them) on this host, by their names in `netbench doctor`.

    `activities` are those of each neighbour that runs in any scenario; None: all neighbours run and may do anything.
    `packets` are those that the UUTs forward, where they can. `tools` run flows.
    """
    chosen = [uut for uut in topology.uuts if not uuts or uut.name in uuts]
    needs = {f"port:{port.nic}" for port in topology.ports()}
    for machine in dict.fromkeys(uut.on for uut in chosen):
        needs |= _needs_of_testbed(topology.on(machine), chosen, activities, sink, packets, tools)
    return frozenset(needs)


def _needs_of_testbed(
    topology: Topology,
    chosen: Collection[UutSpec],
    activities: Mapping[str, Collection[Activity]] | None,
    sink: SinkSpec,
    packets: tuple[Packet, ...],
    tools: Sequence[PlacedTool],
) -> set[str]:
    needs = {"root", "setpriv"}
    here = [host for host in topology.hosts if topology.machine(host) is None]
    if here:
        needs |= {"packet", *(tool.name for tool in TOOLS if not tool.optional), *plugins(SINKS)[sink.kind].needs}
    if any(topology.netns(host) for host in here):
        needs.add("netns")
    needs |= needs_of_ends(topology, here, tools)
    if any(host_of(link.ends[0]) in here and not topology.is_port(link.ends[0]) for link in topology.links):
        needs.add("veth")
    if any(path.receive == "napi" and path.source.machine is None for path in stream_paths(topology)):
        needs.add("napi")
    for vm in topology.vms.values():
        needs |= vmm_of(vm).needs()
    if topology.ssh_hosts:
        needs.add("ssh")
    if any(spec.is_emulated for spec in topology.ssh_hosts.values()):
        needs |= {"netns", "veth", "sshd", "ssh-keygen", "unshare"}
    machine = topology.uut_machine
    uut_here = machine is None or (machine in topology.ssh_hosts and topology.ssh_hosts[machine].is_emulated)
    for uut in (uut for uut in topology.uuts if uut in chosen):
        for name, spec in guest_specs(topology, uut).items():
            made = make_uut(spec)
            forwarded = tuple(packet for packet in packets if not made.unsupported_reason(packet, ()))
            plan = made.plan(Assignment(packets=forwarded))
            wanted = needs_of_guest(name, spec, plan, activities)
            wanted |= needs_of_flows(made, plan, tools)
            # A VM has the tools of its image, an SSH host its installed ones; only guest images are copied there.
            needs |= {need for need in wanted if uut_here or need.startswith("image:")}
    return needs


def needs_of_ends(topology: Topology, here: Collection[str], tools: Iterable[PlacedTool]) -> set[str]:
    """Return the needs of taps, of clients beside sources, and of servers beside sinks, on the hosts of a machine."""
    sources, sinks = ({host_of(getattr(stream, end)) for stream in topology.streams} for end in ("source", "sink"))
    needs: set[str] = set()
    for tool in tools if here else ():
        needs |= {"tcpdump"} if tool.path is not FlowPath.LOOPBACK else set()
        needs |= tool.source_programs if sources & {*here} else set()
        needs |= tool.sink_programs if sinks & {*here} else set()
    return needs


def needs_of_flows(guest: UnitUnderTest, plan: UutPlan, tools: Iterable[PlacedTool]) -> set[str]:
    """Return the programs of a guest's machine that flows in the guest need.

    Guests with their own programs need none of their machine, and have no `load_needs` for that reason.
    """
    usable = [tool for tool in tools if not guest.path_reason(tool.path)] if plan.load_needs else []
    return {program for tool in usable for program in tool.guest_programs}


def needs_of_guest(
    name: str, spec: UutSpec, plan: UutPlan, activities: Mapping[str, Collection[Activity]] | None
) -> set[str]:
    """Return the needs of a UUT or neighbour on its machine, for its activities (None: any activity)."""
    acts = (activities or {}).get(name, ())
    needs: set[str] = set()
    if name == VICTIM or activities is None or acts:
        needs |= plan.needs | ({"cgroup-cpu"} if _has_share(spec) else set())
    if any(isinstance(act, Stress) for act in acts):
        needs |= plan.load_needs or set()
    return needs


def _has_share(spec: UutSpec) -> bool:
    return spec.cpu_shares.weight is not None or spec.cpu_shares.limit is not None
