"""The search for the highest rate of a workload at which a service meets its service level, and its schedule."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import NamedTuple

from netbench.errors import UsageError
from netbench.model.flow_result import FlowResult, Latencies
from netbench.model.limits import LimitCause, LimitKind
from netbench.model.trial import TrialResult
from netbench.model.units import Load, LoadKind, nearest_rate
from netbench.model.verdict import ReasonKind, Verdict
from netbench.plan.schedule import FLOWS, CampaignPlan
from netbench.search.cell_search import CellSearch
from netbench.search.measurement import PASSING, failed, first_reason
from netbench.search.methods import Bisection, GivenUpError, Measured, MeasuredService
from netbench.search.search_schedule import SearchSchedule
from netbench.search.search_trials import Progress, SearchCell, SearchTrials
from netbench.search.service_level import ServiceGoal, ServiceOptions

METHOD = "slo"
_EXAMPLE = 1000.0  # a rate that shows whether a tool has such rates
# Operations of a client, or bits, in progress at an end of the measured time: tools write blocks of 128 KiB.
_ON_THE_WAY = {LoadKind.OPERATION_RATE: 1, LoadKind.L1_BIT_RATE: 8 * 128 * 1024}
# The kinds of times that a service level is about: the first that a tool has.
_KINDS = ("response", "rtt")
_CLOSED_LOOPS = 2  # trials that find the highest rate: a single one may be slow by chance


class ServiceLevelSearch(SearchSchedule):
    """Searches for the highest rate at which a service meets its service level, by bisection with verification."""

    Options = ServiceOptions
    MaximaOptions = ServiceOptions
    traffic = frozenset({FLOWS})

    def __init__(self, plan: CampaignPlan, options: ServiceOptions) -> None:
        super().__init__(plan, options, options.highest)
        self._options = options
        if not plan.profile.warm_up_s:
            raise UsageError(
                f"profile {plan.profile.name}: warm_up: 0 s, and a search for a service level needs a warm-up: the "
                "responses to its requests take the place of those that come after the end; leave it out, or use 1s"
            )

    @property
    def tried_loads(self) -> Sequence[Load]:
        """The bounds, and an example of its rates. The lowest rate may depend on a closed loop: then it is left out."""
        highest, unit, profile = self._options.highest, self._options.unit, self.plan.profile
        lowest = self._options.lowest
        if lowest is None and highest.kind is not LoadKind.MAX:
            rate = self._options.lowest_of(highest.value, profile.duration - profile.warm_up_s)
            lowest = Load(unit, nearest_rate(rate, unit))
        return tuple(load for load in (highest, lowest, Load(unit, _EXAMPLE)) if load is not None)

    @property
    def response_limit_s(self) -> float | None:
        """The limit of the percentile of response times, in seconds."""
        return self._options.below

    @property
    def objective(self) -> str:
        """The objective, and the range of rates."""
        return self._options.objective

    def _search_of(
        self, cell: SearchCell, result_of: Callable[[str], TrialResult | None], progress: Progress
    ) -> "ServiceSearch":
        return ServiceSearch(self.plan, self._options, cell, result_of, progress)

    def _expected(self, cell: SearchCell) -> tuple[int, float]:
        usual = _method(self._options, self.plan.profile.duration).expected()
        trials, traffic_s = self._of_finished(*usual)
        closed = self._options.highest.kind is LoadKind.MAX
        return trials + closed * _CLOSED_LOOPS, traffic_s + closed * _CLOSED_LOOPS * self.plan.profile.duration


class ServiceSearch(CellSearch):
    """The search for one workload; `result_of` and `progress` are as in SearchTrials."""

    def __init__(
        self,
        plan: CampaignPlan,
        options: ServiceOptions,
        cell: SearchCell,
        result_of: Callable[[str], TrialResult | None],
        progress: Progress,
    ) -> None:
        method = _method(options, plan.profile.duration)
        read = partial(service_measurement, goal=options.goal, unit=options.unit)
        trials = SearchTrials(plan, method, cell, result_of, progress, read, options.unit)
        super().__init__(plan, cell, method, trials, method_name=METHOD, unit=options.unit)
        self._options = options

    def _highest_load(self) -> float:
        """Return the requested rate, or the higher one of two trials in which clients wait for their responses."""
        if self._options.highest.kind is not LoadKind.MAX:
            return self._options.highest.value
        with self._trials.apart():
            trials = [self._trials.closed_loop(self._trial_s) for _ in range(_CLOSED_LOOPS)]
            trial = max(trials, key=lambda trial: trial.offered_load)
        if trial.failed or not trial.offered_load:
            why = trial.failed or trial.limited_by or "nothing succeeded"
            raise GivenUpError(f"no rate of a closed loop: {why}")
        return nearest_rate(trial.offered_load, self._unit)

    def _lowest_load(self, highest: float) -> float:
        measured_s = self._trial_s - self._plan.profile.warm_up_s
        return nearest_rate(self._options.lowest_of(highest, measured_s), self._unit)

    def _limit_at_highest(self) -> LimitCause:
        is_closed = self._options.highest.kind is LoadKind.MAX
        return LimitCause(LimitKind.CLOSED_LOOP if is_closed else LimitKind.REQUESTED_LOAD)


def service_measurement(result: TrialResult, *, goal: ServiceGoal, unit: LoadKind) -> Measured | str:
    """Return the measurement of a trial with flows, or the reason why it measured nothing.

    An invalid trial is inconclusive: its figures are not attributed to the service. The same applies if a client that
    was too busy or too late may be the cause that the goal was missed. Counts are operations, or bits of payload.
    """
    spec, failure, flows = result.spec, failed(result), result.victim.flows
    if not failure and not flows:
        return str(result.reasons[0]) if result.reasons else "no flow was measured"
    invalid = [str(reason) for reason in result.reasons if reason.kind.verdict is Verdict.INVALID]
    limit = "" if failure else next(iter(invalid), first_reason(result, PASSING))
    read = _operations if unit is LoadKind.OPERATION_RATE else _bits
    counts = [_Counts(0, 0, 0, 0, 0)] if failure or limit else [read(flow, spec.load) for flow in flows]
    intended, started, completed, in_time, lost = map(sum, zip(*counts, strict=True))
    seconds = fmean(flow.duration_s for flow in flows) if flows else spec.duration_s
    is_closed = spec.load.kind is LoadKind.MAX
    by_kind = (Latencies.merged(_times_of(flows, kind)) for kind in _KINDS)
    measured = Measured(
        duration_s=spec.duration_s,
        load=spec.load.value,
        offered_load=in_time / seconds / len(counts) if is_closed and seconds else spec.load.value,
        intended=intended,
        offered=started,
        forwarded=completed,
        limited_by=limit,
        inconclusive=limit,
        failed=failure,
        attempts=result.attempt,
        service=MeasuredService(_ON_THE_WAY[unit] * len(flows), lost, in_time, next(filter(None, by_kind), None)),
    )
    if is_closed or failure or goal.is_met_by(measured):
        return measured
    limit = limit or first_reason(result, frozenset({ReasonKind.TESTER_LIMITED}))
    return replace(measured, limited_by=limit, inconclusive=limit)


class _Counts(NamedTuple):
    """The operations, or bits of payload, of one client; `lost` ones failed."""

    intended: int
    started: int
    completed: int
    in_time: int
    lost: int


def _operations(flow: FlowResult, load: Load) -> _Counts:
    completed, lost = flow.completed or 0, sum(flow.errors.values())
    started = completed + lost if flow.started is None else flow.started
    intended = round(load.value * flow.duration_s) if load.kind is LoadKind.OPERATION_RATE else started
    in_time = completed if flow.completed_in_time is None else flow.completed_in_time
    return _Counts(intended if flow.intended is None else flow.intended, started, completed, in_time, lost)


def _bits(flow: FlowResult, load: Load) -> _Counts:
    arrived = 8 * ((flow.to_server_bytes or 0) + (flow.to_client_bytes or 0))
    part = sum(flow.errors.values()) / flow.started if flow.started else 0.0
    sent = round(arrived / (1 - part)) if part < 1 else arrived
    intended = round(load.value * flow.duration_s) if load.kind is LoadKind.L1_BIT_RATE else sent
    return _Counts(intended, sent, arrived, arrived, sent - arrived)


def _times_of(flows: Iterable[FlowResult], kind: str) -> Iterator[Latencies]:
    return (times for flow in flows for times in flow.latencies if times.kind == kind)


def _method(options: ServiceOptions, trial_s: float) -> Bisection:
    nearest = partial(nearest_rate, unit=options.unit)
    return Bisection(options.goal, options.width, trial_s=trial_s, verified=options.verified, nearest=nearest)
