"""Topology × profile → the ordered trials. Pure, and the same for the same seed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from netbench.errors import UsageError
from netbench.model.pace import Pace
from netbench.model.profile import Profile
from netbench.model.scenario import SHARED_IDLE, VICTIM, Activity, Idle, Network, Off, Scenario, Stress
from netbench.model.topology import Topology
from netbench.model.trial import Frames, GuestTask, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.plan.order import Cell, Order, company_of

MAX_TRIALS = 1_000_000


_NO_TIME = Pace()


@dataclass(frozen=True, slots=True)
class Costs:
    """What a campaign takes beside traffic and pauses, in seconds, about: measured on two shared cores.

    `trial_s` is for arming, draining, analysing and storing, `lane_s` for each further stream in a trial; `guests` has
    what each UUT (`NAME`) and neighbour (`UUT.NAME`) takes beside that.
    """

    start_s: float = 0.0
    trial_s: float = 0.16
    lane_s: float = 0.08
    guests: Mapping[str, Pace] = field(default_factory=dict)

    def of(self, guest: str) -> Pace:
        """What a guest takes; nothing for one that is not known."""
        return self.guests.get(guest, _NO_TIME)


@dataclass(frozen=True, slots=True)
class Visit:
    """Trials that follow each other in one lifetime of a UUT.

    Those of stage 1 find the maximum that the neighbours' loads in stage 2 refer to.
    """

    uut: str
    stage: int
    trials: tuple[TrialSpec, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The trials of a campaign in the order they are run."""

    visits: tuple[Visit, ...]
    expected_s: float

    @property
    def trials(self) -> tuple[TrialSpec, ...]:
        """All of them."""
        return tuple(trial for visit in self.visits for trial in visit.trials)


def make_plan(
    topology: Topology,
    profile: Profile,
    uuts: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    costs: Costs = Costs(),
) -> Plan:
    """The plan of a campaign; UsageError for an unknown UUT or scenario, too many streams or trials.

    `interleaved` visits every UUT in each repetition, in shuffled order; within a visit, the scenarios that need the
    same neighbours beside the UUT are shuffled together, so that drift of the machine spreads over all of them.
    `sequential` finishes one UUT before the next, as written. `random` shuffles everything. Where neighbours forward a
    share of a maximum, the trials that find it come first.
    """
    chosen = _chosen("UUT", uuts, [uut.name for uut in topology.uuts])
    cases = _chosen_scenarios(profile, scenarios)
    for case in cases:
        _refuse_unfit(topology, profile, case)
    sources = sum(len(_source_numbers(topology, profile, case)) for case in cases)
    total = len(chosen) * sources * len(profile.frame_sizes) * len(profile.loads) * profile.repetitions
    if total > MAX_TRIALS:
        raise UsageError(f"profile {profile.name}: that makes {total:,} trials; at most {MAX_TRIALS:,} are possible")
    first = _cells_of_maxima(topology, profile, cases)
    others = [cell for case in cases for cell in _cells(topology, profile, case) if cell not in first]
    stages = [stage for stage in (first, others) if stage]
    names = tuple(stream.name for stream in topology.own_streams)
    visits: list[Visit] = []
    index = 0
    for uut, stage, measured in Order(topology, profile).visits(chosen, stages):
        earlier: tuple[TrialSpec, ...] = ()
        if visits and profile.reboot == "visit" and (visits[-1].uut, visits[-1].stage) == (uut, stage):
            earlier = visits.pop().trials  # it is there already
        boot = len(visits) + 1
        trials = tuple(
            trial_of(
                topology, profile, cell, names, index=number, uut=uut, repetition=repetition, phase=stage, boot=boot
            )
            for number, (cell, repetition) in enumerate(measured, start=index)
        )
        index += len(trials)
        visits.append(Visit(uut, stage, earlier + trials))
    return Plan(tuple(visits), expected_seconds(visits, topology, profile, costs))


def trial_of(
    topology: Topology,
    profile: Profile,
    cell: Cell,
    names: Sequence[str],
    *,
    uut: str,
    repetition: int,
    index: int = 0,
    phase: int = 1,
    boot: int = 1,
) -> TrialSpec:
    """The trial of a cell with the first of the victim's streams, which are called `names`."""
    case = profile.scenario(cell.scenario)
    does = Network(cell.load, None, cell.frame_size)
    victim = _guest(profile, VICTIM, does, names[: cell.sources], profile.duration)
    there = {one.name: one.streams for one in topology.neighbours if not isinstance(case.of(one.name), Off)}
    neighbours = [
        _guest(profile, name, topology.activity(case, name), streams, profile.neighbours_duration)
        for name, streams in there.items()
    ]
    return TrialSpec(
        index=index,
        uut=uut,
        scenario=cell.scenario,
        guests=(victim, *neighbours),
        repetition=repetition,
        phase=phase,
        boot=boot,
        settle_before_s=profile.settle.before,
        settle_after_s=profile.settle.after,
        drain_limit_s=profile.drain_limit,
        tolerance=profile.tolerance,
        max_lateness_s=profile.max_lateness,
    )


def _guest(profile: Profile, name: str, activity: Activity, streams: Sequence[str], duration_s: float) -> GuestTask:
    if not isinstance(activity, Network):
        return GuestTask(name, activity)
    load = activity.load
    traffic = None if load is None else Frames(activity.frame_size, load, profile.flows, profile.seed)
    return GuestTask(name, activity, tuple(streams), traffic, duration_s)


def expected_seconds(visits: Iterable[Visit], topology: Topology, profile: Profile, costs: Costs) -> float:
    """How long these visits should take, in seconds, guests brought up included."""
    expected = costs.start_s
    for visit in visits:
        expected += costs.of(visit.uut).bring_up_s
        for company, trials in groupby(visit.trials, key=lambda trial: company_of(topology, profile, trial.scenario)):
            expected += sum(costs.of(f"{visit.uut}.{name}").bring_up_s for name in company)
            expected += sum(_trial_s(topology, profile, trial, costs) for trial in trials)
    return expected


def missing_visits(plan: Plan, done: Iterable[str]) -> list[Visit]:
    """The visits with what is left to do, given the keys of the trials that are done."""
    known = frozenset(done)
    left = [replace(one, trials=tuple(trial for trial in one.trials if trial.key not in known)) for one in plan.visits]
    return [visit for visit in left if visit.trials]


def most_sources(topology: Topology, profile: Profile) -> int:
    """The largest number of sources of the victim in any trial."""
    return max(number for case in profile.scenarios for number in _source_numbers(topology, profile, case))


def loads_above_line_rate(topology: Topology, profile: Profile) -> list[str]:
    """Loads that no link of this nominal rate can carry, as text for a warning or an error."""
    found = []
    for stream in topology.own_streams:
        rate = topology.stream_link(stream).rate
        for load in profile.loads:
            for size in profile.frame_sizes:
                fps = load.fps(size, rate)
                line = Load(LoadKind.SHARE, 100).fps(size, rate)
                assert line is not None
                if fps is not None and fps > line * 1.000001:
                    found.append(f"{load} at {size} bytes on {stream.source} (line rate {line:,.0f} frames/s)")
    return found


def _trial_s(topology: Topology, profile: Profile, trial: TrialSpec, costs: Costs) -> float:
    case = profile.scenario(trial.scenario)
    pause_s = profile.settle.before + profile.settle.after
    expected = profile.duration + pause_s + costs.trial_s + costs.of(trial.uut).trial_s
    expected += (len(trial.streams) - 1) * costs.lane_s
    longer_s = 0.0
    for neighbour in topology.neighbours:
        pace = costs.of(f"{trial.uut}.{neighbour.name}")
        match topology.activity(case, neighbour.name):
            case Network():
                longer_s = profile.neighbours_duration - profile.duration - profile.settle.before
                expected += pace.trial_s + len(neighbour.streams) * costs.lane_s
            case Stress(cpu, vm):
                expected += pace.idle_s + pace.load_s + (cpu + vm) * pace.worker_s
            case Idle():
                expected += pace.idle_s
    return expected + longer_s


def _source_numbers(topology: Topology, profile: Profile, case: Scenario) -> tuple[int, ...]:
    there = len(topology.own_streams)
    if case.streams:
        return case.streams
    if profile.streams == "each":
        return tuple(range(1, there + 1))
    return profile.streams or (there,)


def _cells(topology: Topology, profile: Profile, case: Scenario) -> list[Cell]:
    return [
        Cell(case.name, number, size, load)
        for number in _source_numbers(topology, profile, case)
        for size in profile.frame_sizes
        for load in profile.loads
    ]


def _cells_of_maxima(topology: Topology, profile: Profile, cases: Sequence[Scenario]) -> list[Cell]:
    """What finds the maxima that any of the scenarios refers to, with as few sources as `shared-idle` ever has."""
    activities = [topology.activity(case, neighbour.name) for case in cases for neighbour in topology.neighbours]
    sizes = {one.frame_size for one in activities if isinstance(one, Network) and one.share is not None}
    fewest = min(_source_numbers(topology, profile, profile.scenario(SHARED_IDLE)))
    return [Cell(SHARED_IDLE, fewest, size, load) for size in sorted(sizes) for load in profile.loads]


def _refuse_unfit(topology: Topology, profile: Profile, case: Scenario) -> None:
    where = f"profile {profile.name}: scenario {case.name}"
    known = [neighbour.name for neighbour in topology.neighbours]
    if not known and not (isinstance(case.activity, Off) and not case.neighbours):
        raise UsageError(
            f"{where} needs a second guest, and topology {topology.name} has no `neighbours`; add one, take a topology "
            "that has (netns-vmm), or choose with --scenario"
        )
    for name in case.neighbours:
        if name not in known:
            raise UsageError(
                f"{where}: topology {topology.name} has no neighbour {name!r}; there are {', '.join(known)}"
            )
    to_forward = [one for one in topology.neighbours if isinstance(case.of(one.name), Network)]
    silent = [one.name for one in to_forward if not one.streams]
    if silent and (len(silent) == len(to_forward) or set(silent) & set(case.neighbours)):
        raise UsageError(f"{where}: neighbour {silent[0]} has no streams to forward; name some in the topology")
    asked, there = max(_source_numbers(topology, profile, case)), len(topology.own_streams)
    if asked > there:
        raise UsageError(
            f"{where}: streams: {asked} sources are asked for, the UUTs of topology {topology.name} have {there}"
        )


def _chosen_scenarios(profile: Profile, wanted: Sequence[str]) -> list[Scenario]:
    """The scenarios of these names; the beginning of a name, up to a hyphen, stands for all that begin so."""
    known = [scenario.name for scenario in profile.scenarios]
    names: list[str] = []
    for name in wanted:
        names += [one for one in known if one == name or one.startswith(f"{name}-")] or [name]
    return [profile.scenario(name) for name in _chosen("scenario", names, known)]


def _chosen(what: str, wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(f"there is no {what} {unknown[0]!r} here; there are {', '.join(known)}")
    return [name for name in known if name in wanted] if wanted else list(known)
