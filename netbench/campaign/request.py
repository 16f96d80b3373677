"""A campaign to measure: read from files and options, checked and planned, before anything is touched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netbench.config.loading import TOPOLOGY_PREFIX, load_profile, load_topology, with_base_versions
from netbench.config.plugins import UUTS, option_models, profile_kinds
from netbench.config.problems import Kinds
from netbench.config.shipped import TOPOLOGIES, find, shipped
from netbench.errors import UsageError
from netbench.model.profile import Profile, ScheduleSpec
from netbench.model.replayed_loads import ReplayedLoads, replayed_loads_of
from netbench.model.scenario import Stress
from netbench.model.topology import Topology, version_name
from netbench.plan.duration import fitted
from netbench.plan.schedule import Costs, Schedule, VmCosts
from netbench.plan.schedule_factory import held_steady, make_schedule
from netbench.plan.selection import choose
from netbench.plan.warm_up import expected_number
from netbench.plan.warnings import refused_loads
from netbench.results.directory import ResultDirectory
from netbench.results.store import Store
from netbench.testbed.flow_checks import refuse_searched
from netbench.testbed.guest_specs import activities_of
from netbench.testbed.resolved import Guests, Resolved, resolve

# Approximate time to bring up the testbed, inspect the machine and write the report.
_START_S = 1.5
# Approximate time to start and set up a VM, and for a trial in a VM: every step goes through the VM's channel.
_VM_S, _VM_TRIAL_S = 9.0, 2.0


@dataclass(frozen=True, slots=True)
class CampaignRequest:
    """A campaign to measure, read and checked; it has not touched the machine yet."""

    resolved: Resolved
    schedule: Schedule
    scenarios: tuple[str, ...]  # as selected
    replayed: ReplayedLoads | None = None  # the rates of an earlier campaign
    topology_argument: str = ""  # the topology's file, or its name if it is a shipped one; empty: of a result directory

    @property
    def topology(self) -> Topology:
        """The topology of the testbed."""
        return self.resolved.topology

    @property
    def profile(self) -> Profile:
        """The profile of the campaign."""
        return self.resolved.profile

    @property
    def uuts(self) -> tuple[str, ...]:
        """The names of the measured UUTs."""
        return tuple(self.resolved.guests)

    @property
    def numbers(self) -> tuple[int | None, int | None]:
        """The number of trials, and of the known trials after searches of unknown length; None: depends on results."""
        if self.schedule.trials is not None:
            return len(self.schedule.trials), None
        return None, len(self.schedule.planned) or None


def read_request(
    topology_file: Path,
    profile_file: Path,
    *,
    uuts: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    settings: Sequence[str] = (),
    against: Sequence[str] = (),
    loads_from: Path | None = None,
    time_budget_s: float | None = None,
) -> CampaignRequest:
    """Read and check a topology and a profile with `--set` overrides; UsageError describes any fault.

    `against` is another topology file, or overrides of this one: its UUTs alternate with those of the same name here.
    `loads_from` is the result directory of a campaign whose rates are replayed. A time budget, in seconds, limits the
    duration of the campaign.
    """
    kinds = option_models(UUTS)
    topology = load_topology(topology_file, kinds, settings)
    profile = held_steady(load_profile(profile_file, profile_kinds(), settings))
    if against:
        topology = with_base_versions(topology, _base_topology(topology_file, profile, against, kinds, settings))
        uuts = [name for uut in uuts for name in (uut, version_name(uut))]
    replayed = None
    if loads_from is not None:
        base = ResultDirectory(loads_from)
        started = str(base.read_manifest().get("started") or "unknown")
        with base.complete_store(Store.read) as store:
            replayed = ReplayedLoads(str(base.path), started, replayed_loads_of(store.trials(counters=False)))
    is_shipped = topology_file in shipped(TOPOLOGIES).values()
    request = make_request(topology, profile, uuts, scenarios, replayed, time_budget_s)
    return replace(request, topology_argument=topology.name if is_shipped else str(topology_file))


def _base_topology(
    file: Path, profile: Profile, against: Sequence[str], kinds: Kinds, settings: Sequence[str]
) -> Topology:
    """Return the topology of the base versions; UsageError for a profile that measures one UUT after the other."""
    if profile.schedule.kind != ScheduleSpec().kind:
        raise UsageError(
            f"--against: profile {profile.name} searches, one UUT after the other; versions are measured in turn at "
            "fixed loads: choose a profile with loads"
        )
    if profile.order == "sequential":
        raise UsageError(
            f"--against: profile {profile.name} measures one UUT after the other (order: sequential); "
            "use --set order=interleaved"
        )
    overrides = [TOPOLOGY_PREFIX + text.removeprefix(TOPOLOGY_PREFIX) for text in against if "=" in text]
    files = [text for text in against if "=" not in text]
    if len(files) > 1:
        raise UsageError(f"--against: one topology at most, not {' and '.join(files)}")
    return load_topology(find(TOPOLOGIES, files[0]) if files else file, kinds, [*settings, *overrides])


def make_request(
    topology: Topology,
    profile: Profile,
    uuts: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    replayed: ReplayedLoads | None = None,
    time_budget_s: float | None = None,
) -> CampaignRequest:
    """Plan a topology and a profile that were read already; UsageError if they do not fit together."""
    plan = choose(topology, profile, uuts, scenarios)
    resolved = resolve(topology, profile, plan.uuts)
    plan = replace(plan, costs=_costs(topology, profile, resolved.guests), unsupported=resolved.unsupported)
    if time_budget_s is not None:
        plan = fitted(plan, time_budget_s)
        profile = plan.profile
        resolved = resolve(topology, profile, plan.uuts)
    schedule = make_schedule(plan, replayed)
    refuse_searched(profile, schedule.tried_loads)
    resolved = replace(resolved, activities=activities_of(topology, map(profile.scenario, schedule.scenarios)))
    for uut, guests in resolved.guests.items():
        for name, guest in guests.items():
            computes = any(isinstance(does, Stress) for does in resolved.activities.get(name, ()))
            if computes and guest.plan.load_needs is None:
                raise UsageError(
                    f"UUT {uut}: neighbour {name}: nothing can be run inside a UUT of kind {guest.spec.kind}; choose "
                    "scenarios without stress-ng (--scenario)"
                )
    if impossible := refused_loads(topology, profile):
        raise UsageError(impossible)
    return CampaignRequest(resolved, schedule, tuple(scenario.name for scenario in plan.scenarios), replayed)


def _costs(topology: Topology, profile: Profile, guests: Mapping[str, Guests]) -> Costs:
    usual = Costs(
        start_s=_START_S + profile.noise_floor_s,
        guests={guest.spec.name: guest.pace for beside in guests.values() for guest in beside.values()},
        warm_up_trials=expected_number(profile.warm_up_trials),
    )
    numbers = {on: len(topology.on(on).vms) for on in topology.places}
    vms = {on: VmCosts(on, number * _VM_S, _VM_TRIAL_S - usual.trial_s) for on, number in numbers.items() if number}
    return replace(usual, vms={uut.name: vms[uut.on] for uut in topology.uuts if uut.on in vms})
