"""Selection of UUTs and scenarios, and the check that the topology supports them."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import product

from netbench.errors import UsageError
from netbench.model.profile import Profile
from netbench.model.scenario import Network, Off, Scenario
from netbench.model.suggestions import close_to
from netbench.model.topology import Topology
from netbench.model.units import line_rate_fps
from netbench.plan.schedule import CampaignPlan, Costs


def choose(
    topology: Topology,
    profile: Profile,
    uuts: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    costs: Costs | None = None,
) -> CampaignPlan:
    """Return the plan of a campaign of these UUTs and scenarios (empty: all).

    UsageError for an unknown UUT or scenario, for too many streams, and for a scenario that the topology cannot run.
    """
    chosen = _chosen(f"topology {topology.name}", "UUT", uuts, [uut.name for uut in topology.uuts])
    names = _chosen(f"profile {profile.name}", "scenario", scenarios, [scenario.name for scenario in profile.scenarios])
    cases = [profile.scenario(name) for name in names]
    for case in cases:
        _refuse_unsupported(topology, profile, case)
    return CampaignPlan(topology, profile, tuple(chosen), tuple(cases), costs or Costs())


def most_sources(topology: Topology, profile: Profile) -> int:
    """Return the largest number of sources of the victim in any trial."""
    return max(number for case in profile.scenarios for number in source_numbers(topology, profile, case))


def loads_above_line_rate(topology: Topology, profile: Profile) -> list[str]:
    """Return the loads above the nominal rate of a link, as text for a warning or an error."""
    too_high = []
    for stream, load, size in product(topology.own_streams, profile.loads, profile.all_frame_sizes):
        rate = topology.stream_link(stream).rate
        fps, line = load.fps(size, rate), line_rate_fps(rate, size.mean_bytes)
        if fps is not None and fps > line * 1.000001:
            too_high.append(f"{load} at {size.in_bytes} on {stream.source} (line rate {line:,.0f} frames/s)")
    return too_high


def source_numbers(topology: Topology, profile: Profile, case: Scenario) -> tuple[int, ...]:
    """Return the numbers of the victim's sources in a scenario."""
    available = len(topology.own_streams)
    if case.streams:
        return case.streams
    if profile.streams == "each":
        return tuple(range(1, available + 1))
    return profile.streams or (available,)


def _refuse_unsupported(topology: Topology, profile: Profile, case: Scenario) -> None:
    where = f"profile {profile.name}: scenario {case.name}"
    known = [neighbour.name for neighbour in topology.neighbours]
    if not known and not (isinstance(case.activity, Off) and not case.neighbours):
        raise UsageError(
            f"{where} needs a second guest, and topology {topology.name} has no `neighbours`; add one, take a topology "
            f"that has (netns-vmm), or {_without_neighbours(profile)}"
        )
    for name in case.neighbours:
        if name not in known:
            raise UsageError(
                f"{where}: topology {topology.name} has no neighbour {name!r}; there are {', '.join(known)}"
            )
    to_forward = [neighbour for neighbour in topology.neighbours if isinstance(case.of(neighbour.name), Network)]
    silent = [neighbour.name for neighbour in to_forward if not neighbour.streams]
    if silent and (len(silent) == len(to_forward) or set(silent) & set(case.neighbours)):
        raise UsageError(f"{where}: neighbour {silent[0]} has no streams to forward; name some in the topology")
    sources, available = max(source_numbers(topology, profile, case)), len(topology.own_streams)
    if sources > available:
        raise UsageError(
            f"{where}: streams: {sources} sources are asked for, the UUTs of topology {topology.name} have {available}"
        )


def _without_neighbours(profile: Profile) -> str:
    """Return how to measure a profile without neighbours."""
    has_any = any(isinstance(case.activity, Off) and not case.neighbours for case in profile.scenarios)
    return "choose with --scenario" if has_any else "measure without one: `--set scenarios=dedicated`"


def _chosen(owner: str, kind: str, patterns: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the known names that match a name or a pattern with `*`; all without a pattern."""
    chosen: set[str] = set()
    for name in patterns:
        matching = [candidate for candidate in known if fnmatchcase(candidate, name.replace("[", "[[]"))]
        if not matching:
            close = close_to(name, known)
            hint = f"did you mean {close}? " if close else ""
            raise UsageError(f"--{kind.lower()}: {owner} has no {kind} {name!r}; {hint}it has {', '.join(known)}")
        chosen.update(matching)
    return [name for name in known if name in chosen] if patterns else list(known)
