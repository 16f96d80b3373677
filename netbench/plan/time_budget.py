"""Fitting of a campaign into a time budget: one repetition of everything, then more as time permits. Pure."""

from dataclasses import replace

from netbench.errors import UsageError
from netbench.model.profile import LOADS, MaximaSpec, Profile, ScheduleSpec
from netbench.plan.making import make_schedule
from netbench.plan.schedule import CampaignPlan
from netbench.statistics.intervals import MOST_REPETITIONS

_CALIBRATION_PART = 1 / 3  # of the budget, at most
_USED_PART = 0.9  # the estimate may be too low
_SHORTEST_S = 0.2  # of a trial
_SHORTER = 0.7  # factor by which trials become shorter in each step
# Calibration trials and sums as short as this give a coarse maximum: higher loads show it exactly.
_COARSE_S, _COARSE_WIDTH = 0.1, "5%"


def fitted(wanted: CampaignPlan, budget_s: float) -> CampaignPlan:
    """Return the plan with repetitions and durations that fit into so many seconds.

    One repetition of everything is finished before the next begins, and as many are planned as time permits. The search
    for maxima may take a third of the time; if it would take more, it becomes coarser. Trials become shorter only if
    one repetition takes too long. UsageError if even the shortest one does, or if the schedule is no list of loads.
    """
    profile = wanted.profile
    if profile.schedule.kind != ScheduleSpec().kind:
        raise UsageError(f"--time-budget: goes with schedule plan only, and profile {profile.name} has another one")
    usable_s = _USED_PART * budget_s
    update: dict[str, object] = {"order": "interleaved", "repetitions": 1}
    single = _with(wanted, update)
    for maxima in _coarser(profile):
        if _calibration_s(single) <= _CALIBRATION_PART * usable_s:
            break
        update |= {"maxima": maxima}
        single = _with(wanted, update)
    duration = profile.duration
    while _expected_s(single) > usable_s and duration > _SHORTEST_S:
        duration = max(_SHORTEST_S, _SHORTER * duration)
        warm_up = profile.warm_up and profile.warm_up * duration / profile.duration
        update |= {"duration": round(duration, 3), "warm_up": warm_up}
        single = _with(wanted, update)
    one_s = _expected_s(single)
    if one_s > budget_s:
        raise UsageError(
            f"--time-budget: one repetition of everything takes {one_s:,.0f} s, with trials of {duration:g} s; allow "
            "more time, or choose fewer UUTs, scenarios, frame sizes or loads (--uut, --scenario, --set)"
        )
    repetition_s = _expected_s(_with(wanted, {**update, "repetitions": 2})) - one_s
    more = int(max(0.0, usable_s - one_s) / repetition_s) if repetition_s > 0 else 0
    return _with(wanted, {**update, "repetitions": min(1 + more, MOST_REPETITIONS)})


def _coarser(profile: Profile) -> list[MaximaSpec]:
    """Return increasingly coarse searches for the maxima; none if they are not searched for."""
    spec = profile.maxima or MaximaSpec()
    if spec.kind != MaximaSpec().kind or spec.kind == LOADS:
        return []
    specs = []
    for sum_s in (1.0, 0.5, 0.2, _COARSE_S):
        seconds = min(sum_s / 2, spec.duration or profile.duration, profile.duration)
        options = {**spec.options, "duration_sum": sum_s, "width": _COARSE_WIDTH}
        specs.append(MaximaSpec.model_validate({**options, "kind": spec.kind, "duration": seconds}))
    return specs


def _with(wanted: CampaignPlan, update: dict[str, object]) -> CampaignPlan:
    return replace(wanted, profile=wanted.profile.model_copy(update=update))


def _expected_s(wanted: CampaignPlan) -> float:
    return make_schedule(wanted).expected_s(()) or 0.0


def _calibration_s(wanted: CampaignPlan) -> float:
    """Return the seconds of the trials that find maxima."""
    schedule = make_schedule(wanted)
    return (schedule.expected_s(()) or 0.0) - wanted.costs.expected_s(schedule.planned)
