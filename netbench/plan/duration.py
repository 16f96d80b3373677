"""Remaining time of a campaign: the planned time, corrected by the measured time of finished trials."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace

from netbench.errors import UsageError
from netbench.model.campaign import EndedSweep
from netbench.model.profile import MaximaSpec, Profile, ScheduleSpec
from netbench.model.trial import TrialSpec
from netbench.plan.schedule import CampaignPlan, Schedule
from netbench.plan.schedule_factory import make_schedule
from netbench.plan.trial_order import LoadSweep
from netbench.statistics.intervals import MOST_REPETITIONS

_LOOKED_AGAIN_S = 5.0  # shortest time between estimates of a search, because they take time themselves
_BRING_UP = "bring up"


@dataclass(slots=True)
class _MeasuredDuration:
    """Measured and planned time of an activity, in seconds."""

    measured_s: float = 0.0
    planned_s: float = 0.0

    def add(self, measured_s: float, planned_s: float) -> None:
        self.measured_s += measured_s
        self.planned_s += planned_s

    def factor(self, usual: float, weight_s: float) -> float:
        """Return the correction of planned times: measured ÷ planned, averaged with `usual` weighted as `weight_s`."""
        planned_s = self.planned_s + weight_s
        return (self.measured_s + usual * weight_s) / planned_s if planned_s > 0 else usual


class TimeLeft:
    """Estimate of the remaining time of a campaign, in seconds, updated after each stored trial.

    The repetitions of a trial take as long as earlier ones. For a trial without a repetition so far, the correction is
    that of other trials of its UUT; for the first ones of a UUT, that of the campaign. Times to bring something up are
    estimated separately.
    """

    def __init__(self, schedule: Schedule, done: Collection[str], clock: Callable[[], float] = time.monotonic) -> None:
        """`done` are the keys of the measured trials; the next one begins now."""
        self._schedule, self._clock, self._done, self._begun = schedule, clock, set(done), bool(done)
        self._planned = {
            trial.key: (trial, before_s, own_s)
            for trial, before_s, own_s in schedule.plan.costs.each(
                trial for trial in schedule.planned if trial.key not in self._done
            )
        }
        self._left_s: defaultdict[tuple[str, Hashable], float] = defaultdict(float)
        for trial, before_s, own_s in self._planned.values():
            self._left_s[trial.uut, _BRING_UP] += before_s
            self._left_s[trial.uut, _cell(trial)] += own_s
        self._paces: defaultdict[Hashable, _MeasuredDuration] = defaultdict(_MeasuredDuration)
        self._usual_s = max((own_s for _, _, own_s in self._planned.values()), default=1.0)
        for ended in schedule.ended_sweeps:
            self.leave_out(ended)
        self._last = self._looked_up = clock()
        self._searching_s = self._look_up()

    @property
    def seconds(self) -> float | None:
        """The remaining time from now on, in s; None if unknown."""
        if self._schedule.trials is not None and not self._planned:
            return 0.0 if self._begun else self._schedule.expected_s(())
        if self._searching_s is None:
            return None
        everything = self._paces[()].factor(1.0, self._usual_s)
        left_s = self._searching_s * everything
        for (uut, what), planned_s in self._left_s.items():
            if what == _BRING_UP:
                left_s += planned_s * self._paces[uut, what].factor(1.0, 0.0)
            else:
                of_uut = self._paces[uut, ""].factor(everything, self._usual_s)
                left_s += planned_s * self._paces[uut, what].factor(of_uut, self._usual_s / 4)
        return left_s

    @property
    def expected_number(self) -> int | None:
        """The estimated total number of trials if it depends on results; None if it does not, or is unknown."""
        return None if self._schedule.trials is not None else self._schedule.expected_number(self._done)

    def after(self, trial: TrialSpec) -> float | None:
        """Record that a trial was stored just now, and return the remaining seconds; None if unknown."""
        now = self._clock()
        measured_s, self._last = now - self._last, now
        self._begun = True
        if self._schedule.trials is None:  # otherwise unused, and a campaign may have very many
            self._done.add(trial.key)
        if trial.key in self._planned:
            _, before_s, own_s = self._planned[trial.key]
            self._forget(trial.key)
            cell = self._paces[trial.uut, _cell(trial)]
            if before_s:  # the measured time includes the start: estimate the trial's part from similar trials
                usual_s = min(measured_s, own_s * cell.factor(self._paces[trial.uut, ""].factor(1.0, own_s), own_s))
                self._paces[trial.uut, _BRING_UP].add(measured_s - usual_s, before_s)
            else:
                for pace in (cell, self._paces[trial.uut, ""], self._paces[()]):
                    pace.add(measured_s, own_s)
        if self._schedule.trials is None and now - self._looked_up >= _LOOKED_AGAIN_S:
            self._looked_up, self._searching_s = now, self._look_up()
        return self.seconds

    def leave_out(self, ended: EndedSweep) -> None:
        """Remove the trials that a sweep that ended early leaves out."""
        sweep = LoadSweep(ended.uut, ended.scenario, ended.streams, ended.frame_size)
        for key, (trial, *_) in list(self._planned.items()):
            if LoadSweep.of(trial) == sweep and str(trial.load) in ended.skipped_loads:
                self._forget(key)

    def _forget(self, key: str) -> None:
        trial, before_s, own_s = self._planned.pop(key)
        self._left_s[trial.uut, _BRING_UP] -= before_s
        self._left_s[trial.uut, _cell(trial)] -= own_s

    def _look_up(self) -> float | None:
        """Return the remaining seconds of searches: all remaining time without the planned trials; None if unknown."""
        if self._schedule.trials is not None:
            return 0.0
        everything_s = self._schedule.expected_s(self._done)
        return None if everything_s is None else max(0.0, everything_s - sum(self._left_s.values()))


def _cell(trial: TrialSpec) -> Hashable:
    """Return the key that a trial has in common with its repetitions, without the UUT."""
    return trial.scenario, trial.streams, str(trial.kind_of_traffic), str(trial.load)


_CALIBRATION_PART = 1 / 3  # of the budget, at most
_USED_PART = 0.9  # the estimate may be too low
_SHORTEST_S = 0.2  # of a trial
_SHORTER = 0.7  # factor by which trials become shorter in each step
# Durations this short find the maximum only roughly. The later trials at higher loads measure it exactly.
_COARSE_S, _COARSE_WIDTH = 0.1, "5%"


def fitted(plan: CampaignPlan, budget_s: float) -> CampaignPlan:
    """Return the plan with repetitions and durations that fit into so many seconds.

    One repetition of everything is finished before the next begins, and as many are planned as time permits. The search
    for maxima may take a third of the time; if it would take more, it becomes coarser. Trials become shorter only if
    one repetition takes too long. UsageError if even the shortest one does, or if the schedule is no list of loads.
    """
    profile = plan.profile
    if profile.schedule.kind != ScheduleSpec().kind:
        raise UsageError(f"--time-budget: goes with schedule plan only, and profile {profile.name} has another one")
    usable_s = _USED_PART * budget_s
    update: dict[str, object] = {"order": "interleaved", "repetitions": 1}
    single = _with(plan, update)
    for maxima in _coarser(profile):
        if _calibration_s(single) <= _CALIBRATION_PART * usable_s:
            break
        update |= {"maxima": maxima}
        single = _with(plan, update)
    duration = profile.duration
    while _expected_s(single) > usable_s and duration > _SHORTEST_S:
        duration = max(_SHORTEST_S, _SHORTER * duration)
        warm_up = profile.warm_up and profile.warm_up * duration / profile.duration
        update |= {"duration": round(duration, 3), "warm_up": warm_up}
        single = _with(plan, update)
    one_s = _expected_s(single)
    if one_s > budget_s:
        raise UsageError(
            f"--time-budget: one repetition of everything takes {one_s:,.0f} s, with trials of {duration:g} s; allow "
            "more time, or choose fewer UUTs, scenarios, frame sizes or loads (--uut, --scenario, --set)"
        )
    repetition_s = _expected_s(_with(plan, {**update, "repetitions": 2})) - one_s
    more = int(max(0.0, usable_s - one_s) / repetition_s) if repetition_s > 0 else 0
    return _with(plan, {**update, "repetitions": min(1 + more, MOST_REPETITIONS)})


def _coarser(profile: Profile) -> list[MaximaSpec]:
    """Return increasingly coarse searches for the maxima; none if they are not searched for."""
    spec = profile.maxima or MaximaSpec()
    if spec.kind != MaximaSpec().kind:
        return []
    specs = []
    for sum_s in (1.0, 0.5, 0.2, _COARSE_S):
        seconds = min(sum_s / 2, spec.duration or profile.duration, profile.duration)
        options = {**spec.options, "duration_sum": sum_s, "width": _COARSE_WIDTH}
        specs.append(MaximaSpec.model_validate({**options, "kind": spec.kind, "duration": seconds}))
    return specs


def _with(plan: CampaignPlan, update: dict[str, object]) -> CampaignPlan:
    return replace(plan, profile=plan.profile.model_copy(update=update))


def _expected_s(plan: CampaignPlan) -> float:
    return make_schedule(plan).expected_s(()) or 0.0


def _calibration_s(plan: CampaignPlan) -> float:
    """Return the seconds of the trials that find maxima."""
    schedule = make_schedule(plan)
    return (schedule.expected_s(()) or 0.0) - plan.costs.expected_s(schedule.planned)
