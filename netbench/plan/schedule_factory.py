"""Creation of the schedule of a profile."""

from dataclasses import replace

from netbench.config.plugins import GENERATORS, SCHEDULES, SINKS, plugins
from netbench.errors import UsageError
from netbench.model.profile import LOADS, MAXIMA_OF_WORKLOADS, KindSpec, MaximaSpec, Profile, ScheduleSpec
from netbench.model.replayed_loads import ReplayedLoads
from netbench.plan.around_schedule import ReplayedSchedule
from netbench.plan.calibration import (
    CalibratedSchedule,
    CalibratedWorkloads,
    calibration_plan,
    calibration_schedule,
    shares_of_victim,
    sizes_referred_to,
    workload_calibration_plan,
)
from netbench.plan.schedule import FLOWS, FRAMES, CampaignPlan, Schedule, schedule_kind

_STEADY = "steady"  # option of kinds that choose by the load
_ENDS = {"generator": GENERATORS, "sink": SINKS}


def make_schedule(plan: CampaignPlan, replayed: ReplayedLoads | None = None) -> Schedule:
    """Return the schedule of a profile, preceded by one that finds maxima if loads are shares of them.

    With `replayed` such loads have the rates of an earlier campaign, and no maximum is searched for. UsageError if the
    schedule cannot measure what the profile requires.
    """
    spec, kind = plan.profile.schedule, schedule_kind(plan.profile.schedule.kind)
    if replayed is not None:
        plan = replace(plan, profile=plan.profile.model_copy(update={"maxima": None}))
    refuse_other_traffic(plan.profile, spec.kind, kind)
    main = kind(plan, kind.Options.model_validate(spec.options))
    if replayed is not None:
        return ReplayedSchedule(main, replayed)
    maxima = plan.profile.maxima or MaximaSpec()
    if maxima.kind != LOADS and not plan.profile.tool and FRAMES not in schedule_kind(maxima.kind).traffic:
        raise UsageError(
            f"profile {plan.profile.name}: maxima: {maxima.kind} searches for rates of a tool, and this profile has "
            f"none; write {MaximaSpec().kind}"
        )
    of_maximum = shares_of_victim(plan)
    if of_maximum and plan.profile.tool:
        of_workloads = _spec_for(FLOWS, maxima)
        searched = workload_calibration_plan(plan, of_workloads)
        main = CalibratedWorkloads(calibration_schedule(searched, of_workloads, schedule_kind(of_workloads.kind)), main)
        of_maximum = []
    if not (of_maximum or sizes_referred_to(plan)):
        return main
    if maxima.kind != LOADS:
        of_frames = _spec_for(FRAMES, maxima)
        searched = calibration_plan(plan, of_frames)
        return CalibratedSchedule(calibration_schedule(searched, of_frames, schedule_kind(of_frames.kind)), main)
    if of_maximum:
        raise UsageError(
            f"profile {plan.profile.name}: maxima: loads: {of_maximum[0]} is no load in which a maximum could be "
            "found; search for it (--set maxima=search)"
        )
    if spec.kind != ScheduleSpec().kind:
        raise UsageError(
            f"profile {plan.profile.name}: maxima: loads: schedule {spec.kind} measures no list of loads, in which a "
            "maximum could be found; search for it (--set maxima=search)"
        )
    return main


def _spec_for(traffic: str, maxima: MaximaSpec) -> MaximaSpec:
    """Return the search for the maxima of frames or of flows: `maxima` if it searches for these, else the usual one."""
    usual = {FRAMES: MaximaSpec(), FLOWS: MaximaSpec(kind=MAXIMA_OF_WORKLOADS)}
    return maxima if traffic in schedule_kind(maxima.kind).traffic else usual[traffic]


def refuse_other_traffic(profile: Profile, name: str, kind: type[Schedule]) -> None:
    """Raise UsageError for a schedule that cannot measure frames, or flows, and a profile that has these."""
    traffic = FLOWS if profile.tool else FRAMES
    if traffic not in kind.traffic:
        kinds = sorted(name for name, other in plugins(SCHEDULES).items() if traffic in other.traffic)
        has = "a tool, which runs flows" if profile.tool else "no tool: it sends frames"
        raise UsageError(
            f"profile {profile.name}: schedule: {name} is not for {traffic}, and this profile has {has}; write "
            f"{' or '.join(kinds)}"
        )


def held_steady(profile: Profile) -> Profile:
    """Return the profile with steady sources and sinks, which do not choose by the load, if the schedule needs them.

    A source or sink with an explicit `steady` option in the profile is unchanged.
    """
    implicit = {key: spec for key, spec in _that_choose(profile).items() if _STEADY not in spec.options}
    update = {key: type(spec)(kind=spec.kind, **{**spec.options, _STEADY: True}) for key, spec in implicit.items()}
    return profile.model_copy(update=update)


def that_follow_load(profile: Profile) -> dict[str, str]:
    """Return the kinds, by `generator` and `sink`, that choose by the load although the schedule needs steady ones."""
    return {key: spec.kind for key, spec in _that_choose(profile).items() if not spec.options.get(_STEADY)}


def _that_choose(profile: Profile) -> dict[str, KindSpec]:
    if not schedule_kind(profile.schedule.kind).wants_steady:
        return {}
    specs: dict[str, KindSpec] = {"generator": profile.generator, "sink": profile.sink}
    return {key: spec for key, spec in specs.items() if _STEADY in plugins(_ENDS[key])[spec.kind].Options.model_fields}
