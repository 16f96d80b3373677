"""Workloads that a tool cannot run, or that a guest cannot serve: refused before anything is touched."""

from collections.abc import Iterable, Iterator, Mapping

from netbench.config.plugins import TOOLS, plugins
from netbench.errors import UsageError
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM, Activity, Network, Serve
from netbench.model.workload import Workload
from netbench.tools.base import Demand, Tool
from netbench.trial.followed_connections import denominator
from netbench.uut.base import UnitUnderTest


def make_tool(workload: Workload) -> Tool:
    """Return the tool of a workload, with its options; UsageError for an unknown tool or an invalid option."""
    kinds = plugins(TOOLS)
    if workload.tool not in kinds:
        raise UsageError(f"{workload.tool!r} is no kind of tool; there are {', '.join(sorted(kinds))}")
    kind = kinds[workload.tool]
    made: Tool = kind(kind.Options.model_validate(dict(workload.options)))
    return made


def workloads_in(profile: Profile, activities: Mapping[str, Iterable[Activity]]) -> Iterator[tuple[str, str, Serve]]:
    """Yield each workload with its load, after its place for messages and the guest that serves it."""
    for workload in profile.tool:
        for load in profile.loads:
            yield f"tool {workload}", VICTIM, Serve(workload, load)
    for name, acts in activities.items():
        for activity in acts:
            if isinstance(activity, Serve):
                yield f"neighbour {name}", name, activity


def refuse_workloads(profile: Profile, activities: Mapping[str, Iterable[Activity]]) -> None:
    """UsageError for a load that a tool cannot run at."""
    for where, guest, serve in workloads_in(profile, activities):
        tool, demand = make_tool(serve.workload), Demand(serve.load, profile.duration, profile.warm_up_s)
        if reason := tool.unsupported_reason(demand):
            raise UsageError(f"profile {profile.name}: {where}: {reason}")
        if guest == VICTIM and denominator(profile.witness) > 1 and not tool.wire_view(serve.load).many_connections:
            raise UsageError(
                f"profile {profile.name}: witness: {profile.witness} of the connections of {serve.workload.tool} shows "
                "nothing about the others, because it has few; use all or none"
            )


def refuse_servers(
    neighbours: Mapping[str, UnitUnderTest], activities: Mapping[str, Iterable[Activity]], uut: str
) -> None:
    """UsageError for a neighbour beside a UUT that serves in a scenario and cannot."""
    for name, neighbour in neighbours.items():
        if any(isinstance(activity, Serve) for activity in activities.get(name, ())) and neighbour.unserved_reason:
            raise UsageError(f"UUT {uut}: neighbour {name} cannot serve: {neighbour.unserved_reason}")


def unserved_workloads(profile: Profile, uuts: Mapping[str, UnitUnderTest]) -> dict[str, dict[str, str]]:
    """Return why UUTs cannot serve the workloads of a profile, by UUT and workload; UsageError if none can."""
    reasons: dict[str, dict[str, str]] = {}
    for name, uut in uuts.items():
        found = {workload.name: _unserved_reason(profile, workload, uut) for workload in profile.tool}
        if found := {workload: reason for workload, reason in found.items() if reason}:
            reasons[name] = found
    if profile.tool and uuts and all(len(reasons.get(name, {})) == len(profile.tool) for name in uuts):
        each = "; ".join(f"UUT {uut}: {' and '.join(dict.fromkeys(found.values()))}" for uut, found in reasons.items())
        raise UsageError(f"profile {profile.name}: tool: no UUT can serve: {each}")
    return reasons


def _unserved_reason(profile: Profile, workload: Workload, uut: UnitUnderTest) -> str:
    """Return why a UUT cannot serve a workload; empty if it can."""
    if uut.unserved_reason or not uut.ends_connections:
        return uut.unserved_reason
    tool = make_tool(workload)
    if all(tool.wire_view(load).wire_kind != "handshake" for load in profile.loads):
        return ""
    return "its host accepts the connections of clients: the time to connect would be that of the host"


def refuse_frames(
    neighbours: Mapping[str, UnitUnderTest], activities: Mapping[str, Iterable[Activity]], uut: str, made: UnitUnderTest
) -> None:
    """UsageError for a neighbour that would forward frames and cannot, or a share of what the UUT cannot forward."""
    for name, neighbour in neighbours.items():
        for activity in (act for act in activities.get(name, ()) if isinstance(act, Network)):
            where = f"UUT {uut}: neighbour {name} {activity}"
            if reason := neighbour.unforwarding_reason:
                raise UsageError(f"{where}: {reason}")
            if activity.share is not None and (reason := made.unforwarding_reason):
                raise UsageError(f"{where}: the UUT has no such maximum: {reason}; write a rate, such as 20000fps")
