"""Workloads that a tool cannot run, or that a guest cannot serve: refused before anything is touched."""

from collections.abc import Iterable, Iterator, Mapping

from netbench.config.plugins import TOOLS, plugins
from netbench.errors import UsageError
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM, Activity, Serve
from netbench.model.workload import Workload
from netbench.tools.base import Demand, Tool
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
    for where, _, serve in workloads_in(profile, activities):
        demand = Demand(serve.load, profile.duration, profile.warm_up_s)
        if reason := make_tool(serve.workload).unsupported_reason(demand):
            raise UsageError(f"profile {profile.name}: {where}: {reason}")


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
    for workload in profile.tool:
        if uuts and all(workload.name in reasons.get(name, {}) for name in uuts):
            each = "; ".join(f"UUT {uut}: {of_uut[workload.name]}" for uut, of_uut in reasons.items())
            raise UsageError(f"profile {profile.name}: tool: no UUT can serve {workload}: {each}")
    return reasons


def _unserved_reason(profile: Profile, workload: Workload, uut: UnitUnderTest) -> str:
    """Return why a UUT cannot serve a workload; empty if it can."""
    if uut.unserved_reason or not uut.ends_connections:
        return uut.unserved_reason
    measures_handshakes = any(make_tool(workload).wire_view(load).wire_kind == "handshake" for load in profile.loads)
    return "its host accepts connections before the guest does: the time to connect is that of the host" * (
        measures_handshakes
    )


def refuse_frames_of_neighbours(uut: str, beside: Mapping[str, UnitUnderTest], acts: Mapping[str, Iterable[Activity]]) -> None:
    """UsageError for a neighbour that forwards frames, if it or, for a share of its maximum, the UUT cannot."""
    for name, activities in acts.items():
        for activity in activities:
            forwarding = [name] if isinstance(activity, Network) and name in beside else []
            if isinstance(activity, Network) and activity.share is not None:
                forwarding.append(VICTIM)
            for guest in forwarding:
                if reason := beside[guest].unsupported_reason(PLAIN_PACKET, ()):
                    whose = f"neighbour {guest}" if guest != VICTIM else "the maximum of the UUT in frames"
                    raise UsageError(f"UUT {uut}: neighbour {name} {activity}: {whose}: {reason}")
