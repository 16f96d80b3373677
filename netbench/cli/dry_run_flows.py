"""The commands of flows in a dry run: servers, taps and clients of each workload, once for UUTs with equal commands."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from netbench.campaign.request import CampaignRequest
from netbench.hosts.host_wrappers import confined
from netbench.hosts.local import LocalHost
from netbench.model.flow_result import CLIENT, GUEST, HOST, OUTSIDE
from netbench.model.paths import Nic, StreamPath
from netbench.model.scenario import VICTIM, Serve
from netbench.model.stream_paths import stream_paths
from netbench.model.workload import FlowPath
from netbench.testbed.client_cpus import pins_of_clients
from netbench.testbed.cpus import Pins, cpu_plan, cpu_plans
from netbench.testbed.flow_checks import make_tool, workloads_in
from netbench.testbed.guest_specs import cpus_of
from netbench.tools.base import Demand, FlowEnds, SecondTier, second_ends
from netbench.trial.flow_routes import LOOPBACK_ADDRESS
from netbench.trial.flows import client_seed
from netbench.trial.followed_connections import denominator
from netbench.trial.wire_taps import FlowAddresses, WireTap
from netbench.uut.base import TapPoint, UutPlan


def flow_commands(request: CampaignRequest) -> Iterator[str]:
    """Yield the commands of each workload at each load; each distinct block once, after its workloads and UUTs."""
    resolved, cpus = request.resolved, partial(cpus_of, request.topology)
    of_streams = {path.name: pins for path, pins in cpu_plans(resolved.in_use, cpus, cpu_plan)}
    around: dict[tuple[str, ...], _Users] = {}
    clients: dict[tuple[str, ...], _Users] = {}
    for where, guest, serve in workloads_in(request.profile, resolved.activities):
        for uut, guests in resolved.guests.items():
            unserved, workloads = resolved.unsupported.get(uut, {}), request.profile.tool
            is_skipped = bool(workloads) and len(unserved) == len(workloads)
            if is_skipped or (guest == VICTIM and serve.workload.name in unserved):
                continue
            pins = pins_of_clients(guests, resolved.competition, of_streams, cpus)
            commands = [*_commands(request, guest, serve, guests[guest].plan, pins)]
            for blocks, title, index in ((around, where, 0), (clients, f"{where} at {serve.load}", 1)):
                lines = tuple(line for of_stream in commands for line in of_stream[index])
                blocks.setdefault(lines, {}).setdefault(title, {})[uut] = None
    for title, blocks in (("servers and taps", around), ("clients", clients)):
        all_workloads = {workload: None for users in blocks.values() for workload in users}
        all_uuts = {uut: None for users in blocks.values() for uuts in users.values() for uut in uuts}
        for lines, users in blocks.items():
            by_uuts: dict[tuple[str, ...], list[str]] = {}
            for workload, uuts in users.items():
                by_uuts.setdefault(tuple(uuts), []).append(workload)
            places = (
                f"{_names(uuts, all_uuts, 'every UUT')}: {_names(workloads, all_workloads, 'every workload')}"
                for uuts, workloads in by_uuts.items()
            )
            yield f"# {title}, in each trial on {'; on '.join(places)}"
            yield from lines


_Users = dict[str, dict[str, None]]  # UUTs by workload, in their order


def _names(names: Sequence[str], all_names: Iterable[str], of_all: str) -> str:
    """Return names as text: `of_all` for all of several."""
    return of_all if len(names) > 1 and {*names} == {*all_names} else ", ".join(names)


class _OtherMachine(LocalHost):
    """The host of a client or server on another machine, which does not have the files of netbench."""

    @property
    def shares_files(self) -> bool:
        return False


def _commands(
    request: CampaignRequest, guest: str, serve: Serve, plan: UutPlan, pins: Mapping[str, Pins]
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield the commands of a workload that a guest with this plan serves, by stream: servers and taps, clients.

    `pins` are the CPUs of clients beside sources, and of their taps.
    """
    profile, topology, is_victim = request.profile, request.topology, guest == VICTIM
    beside = {neighbour.name: {*neighbour.streams} for neighbour in topology.neighbours}
    streams = {stream.name for stream in topology.own_streams} if is_victim else beside[guest]
    second = request.resolved.flow_needs.second_guest
    second_path = next((path for path in stream_paths(topology) if path.name in beside.get(second, ())), None)
    tool, flow_path = make_tool(serve.workload), serve.workload.path
    duration_s = profile.duration if is_victim else profile.neighbours_duration
    one_of = denominator(profile.witness) if is_victim else 0
    here, elsewhere = LocalHost("local", "RUN"), _OtherMachine("local", "RUN")
    for path in (path for path in request.resolved.in_use if path.name in streams):
        planned = _planned_ends(path, plan, second, second_path, flow_path)
        client_cpus, tap_cpus = pins.get(path.name, ((), ()))
        host = here if path.source.machine is None else elsewhere
        of_guest = elsewhere if plan.own_kernel else host
        client = of_guest if flow_path in (FlowPath.LOOPBACK, FlowPath.BETWEEN_GUESTS) else host
        server = host if flow_path is FlowPath.THROUGH else of_guest
        tier = SecondTier(host, second_path.ingress_ip) if tool.needs_second_tier and second_path else None
        ends = FlowEnds(path.name, path.number, client, server, planned.address, "DIRECTORY")
        ends = replace(ends, listen=planned.listen, second_tier=tier)
        around = [f"  guest {second}: {_shown(tool.second_tier_command(second_ends(ends)))}"] if tier else []
        around.append(f"  {planned.server}{_shown(tool.server_command(ends))}")
        if not planned.taps:
            around.append("  # no link carries these flows, so no tap captures them")
        for tap in planned.taps if one_of else ():
            target = Path(f"trial-NNNNNN-{path.name}-{tap.place}.pcap")
            addresses = FlowAddresses(planned.client_address, tap.point.server_address)
            capture = WireTap("", host, tap.point.interface, addresses, ends, target, False, tap_cpus, one_of)
            around.append(f"  {tap.prefix}{shlex.join(capture.command())}")
        seed = client_seed(profile.seed, 1, guest, path.name)  # of the first repetition
        demand = Demand(serve.load, duration_s, profile.warm_up_s, seed)
        command = tool.client_command(ends, demand)
        if client is host:
            command = confined(command, client_cpus, "")
        yield around, [f"  {planned.client}{_shown(command)}"]


def _shown(command: Sequence[str]) -> str:
    """Return a command, with SOURCE for the source of a program."""
    return shlex.join("SOURCE" if "\n" in word else word for word in command)


class _PlannedTap(NamedTuple):
    """A tap before it exists: its place, the prefix of its command, and its point."""

    place: str
    prefix: str
    point: TapPoint


class _PlannedEnds(NamedTuple):
    """The ends of flows before they exist: addresses, taps, and prefixes of the commands of server and client."""

    address: str
    client_address: str
    server: str
    client: str
    taps: Sequence[_PlannedTap] = ()
    listen: str = ""


def _planned_ends(
    path: StreamPath, plan: UutPlan, second: str, second_path: StreamPath | None, flow_path: FlowPath
) -> _PlannedEnds:
    source, sink = inside(path.source), inside(path.sink)
    match flow_path:
        case FlowPath.LOOPBACK:
            return _PlannedEnds(LOOPBACK_ADDRESS, LOOPBACK_ADDRESS, "guest: ", "guest: ")
        case FlowPath.THROUGH:
            taps = [
                _PlannedTap(place, inside(nic), TapPoint(nic.interface, path.server_ip))
                for place, nic in ((CLIENT, path.source), (OUTSIDE, path.sink))
            ]
            return _PlannedEnds(path.server_ip, path.src_ip, sink, source, taps)
        case FlowPath.BETWEEN_GUESTS:
            assert second_path is not None, "a topology without a second guest is refused before"
            ends = (CLIENT, second, second_path.ingress), (GUEST, VICTIM, path.ingress)
            taps = [
                _PlannedTap(place, inside(nic), TapPoint(f"ATTACHMENT-{of}", path.ingress_ip))
                for place, of, nic in ends
                if nic
            ]
            return _PlannedEnds(path.ingress_ip, second_path.ingress_ip, "guest: ", f"guest {second}: ", taps)
        case FlowPath.TO_GUEST:
            taps = [_PlannedTap(CLIENT, source, TapPoint(path.source.interface, path.ingress_ip))]
            if path.ingress:
                point = plan.taps.get(path.name, TapPoint(path.ingress.interface, path.ingress_ip))
                taps.append(_PlannedTap(HOST if point.ends_connections else GUEST, inside(path.ingress), point))
            listen = plan.listening.get(path.name, "")
            return _PlannedEnds(path.ingress_ip, path.src_ip, "guest: ", source, taps, listen)


def inside(nic: Nic) -> str:
    """Return the prefix of a command that runs beside a NIC, on its machine and in its network namespace."""
    return on_machine(nic.machine) + (f"ip netns exec {nic.netns} " if nic.netns else "")


def on_machine(machine: str | None) -> str:
    """Return the prefix of a command that runs on a machine; empty for this one."""
    return f"[{machine}] " if machine else ""
