"""A schedule that replaces shares of a maximum by the absolute rates of an earlier campaign."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from netbench.errors import UsageError
from netbench.model.replayed_loads import ReplayedLoads
from netbench.model.trial import TrialResult, TrialSpec
from netbench.plan.schedule import AroundSchedule, CampaignPlan, Schedule

_LISTED = 3


class ReplayedSchedule(AroundSchedule):
    """The trials of `main` with the loads of the earlier campaign, without a search for maxima."""

    def __init__(self, main: Schedule, loads: ReplayedLoads) -> None:
        """UsageError if the earlier campaign has no rate for a load."""
        super().__init__(main)
        self._loads = loads
        missing: list[str] = []
        planned = []
        for trial in main.planned:
            try:
                planned.append(loads.resolved(trial))
            except KeyError as error:
                missing.append(str(error.args[0]))
        if missing := list(dict.fromkeys(missing)):
            more = f", and {len(missing) - _LISTED:,} more" if len(missing) > _LISTED else ""
            raise UsageError(
                f"--loads-from {loads.directory}: it has no rate for {'; '.join(missing[:_LISTED])}{more}; measure "
                "what it measured (--uut, --scenario, --set), or leave out --loads-from"
            )
        self._planned = tuple(planned)

    @property
    def trials(self) -> Sequence[TrialSpec] | None:
        """The trials of the main schedule, with rates; None if they depend on results."""
        return None if self._main.trials is None else self._planned

    @property
    def planned(self) -> Sequence[TrialSpec]:
        """The planned trials of the main schedule, with rates."""
        return self._planned

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | TrialResult | None:
        """Return the next trial of the main schedule, with rates; UsageError if its rate is missing."""
        following = self._main.next(results)
        if not isinstance(following, TrialSpec):
            return following
        try:
            return self._loads.resolved(following)
        except KeyError as error:
            raise UsageError(f"--loads-from {self._loads.directory}: it has no rate for {error.args[0]}") from error


def without_maxima(plan: CampaignPlan) -> CampaignPlan:
    """Return the plan without the search for maxima among the loads, because all rates are known."""
    return replace(plan, profile=plan.profile.model_copy(update={"maxima": None}))
