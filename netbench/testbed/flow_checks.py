"""Workloads that a tool cannot run, or that a guest cannot serve: refused before anything is touched."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from netbench.config.plugins import TOOLS, plugins
from netbench.errors import UsageError
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM, Activity, Network, Off, Scenario, Serve
from netbench.model.topology import Topology
from netbench.model.units import Load, LoadKind
from netbench.model.workload import FlowPath, Workload
from netbench.tools.base import Demand, Tool
from netbench.trial.followed_connections import denominator
from netbench.uut.base import UnitUnderTest, UutPlan

_BESIDE_SOURCE = (FlowPath.TO_GUEST, FlowPath.THROUGH)  # paths with the client there


def make_tool(workload: Workload) -> Tool:
    """Return the tool of a workload, with its options; UsageError for an unknown tool or an invalid option."""
    kinds = plugins(TOOLS)
    if workload.tool not in kinds:
        raise UsageError(f"{workload.tool!r} is no kind of tool; there are {', '.join(sorted(kinds))}")
    kind = kinds[workload.tool]
    made: Tool = kind(kind.Options.model_validate(dict(workload.options)))
    return made


class PlacedTool(NamedTuple):
    """A tool with the path of its flows."""

    tool: Tool
    path: FlowPath

    @classmethod
    def of(cls, workload: Workload) -> "PlacedTool":
        """Return the tool and the path of a workload."""
        return cls(make_tool(workload), workload.path)

    @property
    def needs_second_guest(self) -> bool:
        """Whether its flows need a neighbour beside the guest that serves."""
        return self.path is FlowPath.BETWEEN_GUESTS or self.tool.needs_second_tier

    @property
    def source_programs(self) -> set[str]:
        """The programs that it needs on the host of the source."""
        return {*self.tool.client_programs} if self.path in _BESIDE_SOURCE else set()

    @property
    def sink_programs(self) -> set[str]:
        """The programs that it needs on the host of the sink."""
        return {*self.tool.server_programs} if self.path is FlowPath.THROUGH else set()

    @property
    def guest_programs(self) -> set[str]:
        """The programs that it needs in guests."""
        programs = () if self.path in _BESIDE_SOURCE else self.tool.client_programs
        return {*programs, *(() if self.path is FlowPath.THROUGH else self.tool.server_programs)}


class FlowNeeds(NamedTuple):
    """The needs of a campaign's flows: the guests inside which flows run, and the neighbour linked to the victim."""

    loopback: frozenset[str] = frozenset()
    second_guest: str = ""
    through: frozenset[str] = frozenset()  # the guests that flows run through


def workloads_in(profile: Profile, activities: Mapping[str, Iterable[Activity]]) -> Iterator[tuple[str, str, Serve]]:
    """Yield each workload with its load, after its place for messages and the guest that serves it.

    A search chooses its loads itself: the workload then has the load `max`.
    """
    for workload in profile.tool:
        for load in profile.loads or (Load(LoadKind.MAX),):
            yield f"tool {workload}", VICTIM, Serve(workload, load)
    for name, acts in activities.items():
        for activity in acts:
            if isinstance(activity, Serve):
                yield f"neighbour {name}", name, activity


def refuse_workloads(profile: Profile, activities: Mapping[str, Iterable[Activity]]) -> None:
    """UsageError for a load or a path that a tool cannot run at."""
    for where, guest, serve in workloads_in(profile, activities):
        placed = PlacedTool.of(serve.workload)
        # The rates of a search, and of shares of its result, are checked with its options.
        if serve.load.kind is not LoadKind.OF_MAXIMUM and (guest != VICTIM or profile.loads):
            _refuse(profile, where, serve)
        reason = ""
        if placed.path not in placed.tool.paths:
            possible = ", ".join(path.value for path in FlowPath if path in placed.tool.paths)
            reason = f"path: {serve.workload.tool} does not support {placed.path.value}; supported: {possible}"
        elif placed.needs_second_guest and guest != VICTIM:
            reason = "only the measured guest can have flows with a second guest; choose another tool or path"
        if reason:
            raise UsageError(f"profile {profile.name}: {where}: {reason}")
        if guest != VICTIM and serve.load.kind is LoadKind.OF_MAXIMUM:
            raise UsageError(
                f"profile {profile.name}: {where} at {serve.load}: only the loads of the measured guest are shares of "
                "a maximum; write a rate, such as 100/s"
            )
        if (
            guest == VICTIM
            and denominator(profile.witness) > 1
            and not placed.tool.wire_view(serve.load).many_connections
        ):
            raise UsageError(
                f"profile {profile.name}: witness: {profile.witness} of the connections of {serve.workload.tool} shows "
                "nothing about the others, because it has few; use all or none"
            )


def refuse_searched(profile: Profile, loads: Iterable[Load], limit_s: float | None = None) -> None:
    """UsageError for a load, or a limit of response times in seconds, of a search that a tool of the profile lacks."""
    key = "maxima" if profile.loads else "schedule"
    for workload in profile.tool:
        tool, where = make_tool(workload), f"profile {profile.name}: {key}.below"
        if limit_s is None:
            break
        if not tool.reports_times:
            raise UsageError(
                f"{where}: {workload.tool} measures no response times, so no rate can meet it; remove it "
                f"(`--set {key}.below=`)"
            )
        if tool.timeout_s is not None and limit_s > tool.timeout_s:
            raise UsageError(
                f"{where}: {limit_s:g} s is above the timeout of {workload}, {tool.timeout_s:g} s, after which an "
                "operation has failed; lower it, or raise the tool's `timeout`"
            )
    for workload, load in product(profile.tool, loads):
        if load.kind is LoadKind.OF_MAXIMUM:
            continue
        tool = make_tool(workload)
        if load.kind in tool.loads or load in profile.loads:
            _refuse(profile, f"tool {workload} in a search", Serve(workload, load))
            continue
        bounds = _BOUNDS[LoadKind.L1_BIT_RATE in tool.loads]
        shares = [f"{share.value:g}%" for share in profile.loads if share.kind is LoadKind.OF_MAXIMUM]
        if shares and profile.maxima is None:
            raise UsageError(
                f"profile {profile.name}: loads: {shares[0]}: the maximum of {workload.tool} is a {bounds.unit}: "
                f"add `maxima: {{kind: slo, highest: {bounds.example}}}`"
            )
        raise UsageError(
            f"profile {profile.name}: {key}.highest: {workload.tool} needs bounds in {bounds.text}, such as "
            f"{bounds.example}"
        )


class _Bounds(NamedTuple):
    """The unit of a search's bounds, in words."""

    unit: str
    text: str
    example: str


# By whether a tool runs at bit rates.
_BOUNDS = {True: _Bounds("bit rate", "bit/s", "1Gbit/s"), False: _Bounds("rate", "operations/s", "5000/s")}


def _refuse(profile: Profile, where: str, serve: Serve) -> None:
    tool, demand = make_tool(serve.workload), Demand(serve.load, profile.duration, profile.warm_up_s)
    if serve.load.kind not in tool.loads:
        raise UsageError(
            f"profile {profile.name}: {'loads' if where.startswith('tool') else where}: {serve.workload.tool} does not "
            f"support {serve.load}; supported: {tool.loads_text()}"
        )
    if reason := tool.unsupported_reason(demand):
        raise UsageError(f"profile {profile.name}: {where}: {reason}")


def flow_needs(
    topology: Topology,
    profile: Profile,
    scenarios: Iterable[Scenario],
    activities: Mapping[str, Iterable[Activity]],
) -> FlowNeeds:
    """Return the needs of all flows; UsageError if a scenario, or the topology, lacks the second guest of one."""
    found: dict[FlowPath, set[str]] = {}
    for _, guest, serve in workloads_in(profile, activities):
        found.setdefault(serve.workload.path, set()).add(guest)
    between = [workload for workload in profile.tool if PlacedTool.of(workload).needs_second_guest]
    for workload in between:
        _refuse_absent_guest(topology, scenarios, f"profile {profile.name}: tool {workload}", workload)
    loopback, through = (frozenset(found.get(path, ())) for path in (FlowPath.LOOPBACK, FlowPath.THROUGH))
    return FlowNeeds(loopback, topology.neighbours[0].name if between else "", through)


def _refuse_absent_guest(topology: Topology, scenarios: Iterable[Scenario], where: str, workload: Workload) -> None:
    second = next(iter(topology.neighbours), None)
    if second is None or not second.streams:
        lack = (
            f"neighbour {second.name} of topology {topology.name} has no stream"
            if second
            else f"topology {topology.name} has no neighbour"
        )
        raise UsageError(f"{where}: it needs a second guest, and {lack}; choose another topology, such as netns-vmm")
    for scenario in scenarios:
        if isinstance(topology.activity(scenario, second.name), Off):
            raise UsageError(
                f"{where}: it needs the neighbour {second.name}, which is off in scenario {scenario.name}; choose "
                "scenarios in which it is present, such as shared-idle"
            )
    if workload.path is FlowPath.BETWEEN_GUESTS and len(topology.own_streams) > 1:
        raise UsageError(
            f"{where}: flows between guests run over one stream, and the UUTs of topology {topology.name} have "
            f"{len(topology.own_streams)}; choose another topology"
        )


class PlannedGuest(NamedTuple):
    """A guest that may serve, and the plan of its steps."""

    uut: UnitUnderTest
    plan: UutPlan


def impossible_neighbour(guests: Mapping[str, PlannedGuest], activities: Mapping[str, Iterable[Activity]]) -> str:
    """Return why a neighbour beside a UUT cannot serve or forward as a scenario requires; empty if all can.

    `guests` are the UUT, as VICTIM, and its neighbours. A share of the UUT's maximum requires that the UUT forwards.
    """
    made = guests[VICTIM].uut
    for name, neighbour in ((name, guest) for name, guest in guests.items() if name != VICTIM):
        for activity in activities.get(name, ()):
            if isinstance(activity, Serve) and (reason := _unserved_reason(activity.workload, (), neighbour, None)):
                return f"neighbour {name} cannot serve: {reason}"
            if isinstance(activity, Network) and (reason := neighbour.uut.unforwarding_reason):
                return f"neighbour {name} {activity}: {reason}"
            if isinstance(activity, Network) and activity.share is not None and (reason := made.unforwarding_reason):
                return (
                    f"neighbour {name} {activity}: the UUT has no such maximum: {reason}; write a rate, such as "
                    "20000fps"
                )
    return ""


def unserved_workloads(
    profile: Profile,
    guests: Mapping[str, Mapping[str, PlannedGuest]],
    needs: FlowNeeds,
    activities: Mapping[str, Iterable[Activity]],
) -> dict[str, dict[str, str]]:
    """Return why UUTs cannot serve the workloads of a profile, by UUT and workload.

    `guests` are the UUT, as VICTIM, and its neighbours, by UUT. UsageError if no UUT can serve any of them.
    """
    reasons: dict[str, dict[str, str]] = {}
    for uut, beside in guests.items():
        of_neighbours = impossible_neighbour(beside, activities)
        for workload in profile.tool:
            second = beside.get(needs.second_guest)
            if reason := _unserved_reason(workload, profile.loads, beside[VICTIM], second) or of_neighbours:
                reasons.setdefault(uut, {})[workload.name] = reason
    if guests and all(len(reasons.get(uut, {})) == len(profile.tool) for uut in guests):
        by_reason: dict[str, list[str]] = {}
        for uut in guests:
            by_reason.setdefault(" and ".join(dict.fromkeys(reasons[uut].values())), []).append(uut)
        each = "; ".join(f"UUT {', '.join(uuts)}: {reason}" for reason, uuts in by_reason.items())
        raise UsageError(f"profile {profile.name}: tool: no UUT can serve: {each}")
    return reasons


def _unserved_reason(
    workload: Workload, loads: Sequence[Load], guest: PlannedGuest, second: PlannedGuest | None
) -> str:
    """Return why a guest cannot serve a workload at these loads, beside a second guest; empty if it can."""
    placed = PlacedTool.of(workload)
    if reason := guest.uut.path_reason(placed.path):
        return reason
    connects = any(placed.tool.wire_view(load).wire_kind == "handshake" for load in loads or (Load(LoadKind.MAX),))
    if connects and placed.path is FlowPath.TO_GUEST and guest.uut.ends_connections:
        return (
            "its host accepts the connections of clients: the time to connect would be that of the host; use "
            "`attachment: bridge` or `nat`"
        )
    if placed.needs_second_guest:
        assert second is not None, "a topology without a second guest is refused before"
        reason = guest.uut.path_reason(FlowPath.BETWEEN_GUESTS)
        if reason := reason or second.uut.path_reason(FlowPath.BETWEEN_GUESTS):
            return reason
    return ""
