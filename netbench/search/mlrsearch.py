"""Search for several loss ratios at once by MLRsearch (draft-ietf-bmwg-mlrsearch), with the library of FD.io CSIT."""

from collections.abc import Sequence

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from netbench.search.methods import Bounds, Goal, Measure, Method

# A limit by the library's own clock, which is not that of the trials: the same search may be computed repeatedly.
_NEVER_S = 1e12
_COARSE = 6  # approximate number of short trials


class MlrSearch(Method):
    """Search for bounds, with short trials at each load until `duration_sum_s` seconds of them agree.

    Up to the part `exceed_ratio` of that time may have more loss than the goal. `initial_s` is the duration of the
    first, coarse trials, `final_s` that of the trials that count.
    """

    def __init__(
        self,
        goals: Sequence[Goal],
        width: float,
        *,
        initial_s: float,
        final_s: float,
        duration_sum_s: float,
        exceed_ratio: float = 0.5,
    ) -> None:
        super().__init__(goals, width, final_s)
        self._initial_s, self._duration_sum_s, self._exceed_ratio = initial_s, duration_sum_s, exceed_ratio
        self._goals_of_library = {
            goal: SearchGoal(
                loss_ratio=goal.loss_ratio or 0.0,
                exceed_ratio=exceed_ratio,
                relative_width=width,
                initial_trial_duration=initial_s,
                final_trial_duration=final_s,
                duration_sum=duration_sum_s,
                fail_fast=False,
            )
            for goal in self.goals
        }
        self._search: MultipleLossRatioSearch | None = None

    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """Run the library's search: first at the highest load, then from the rate forwarded there to the bounds."""
        config = Config()
        config.goals = list(self._goals_of_library.values())
        config.min_load = lowest  # set first: the library's default highest load is above it
        config.max_load = highest
        config.search_duration_max = _NEVER_S
        config.warmup_duration = 0.0
        self._search = MultipleLossRatioSearch(config=config)
        self._search.search(_Measurer(measure, self.goals), debug=lambda _: None)

    def is_upper(self, bad: int, good: int) -> bool:
        """Return True if more than the part `exceed_ratio` of the trials missed the goal."""
        return bad > self._exceed_ratio * (bad + good)

    def expected(self) -> tuple[int, float]:
        """Estimate by benchmarks/search.py: a lower bound takes `duration_sum_s`, an upper bound about half of it."""
        seconds = 1.5 * len(self.goals) * self._duration_sum_s
        return _COARSE + round(seconds / self.trial_s), _COARSE * self._initial_s + seconds

    def bounds(self, goal: Goal) -> Bounds:
        """Return the relevant bounds: no load above the upper bound counts as a lower bound."""
        search = self._search
        if search is None or getattr(search, "database", None) is None:
            return Bounds()
        target = search.scaling.goal_to_final_target[self._goals_of_library[goal]]
        bounds = search.database.get_relevant_bounds(target=target)
        lower, upper = bounds.clo, bounds.chi
        loss_ratio = 0.0 if lower is None else next(iter(lower.target_to_stat.values())).pessimistic_loss_ratio
        return Bounds(None if lower is None else float(lower), None if upper is None else float(upper), loss_ratio)


class _Measurer(AbstractMeasurer):  # type: ignore[misc]  # the library comes without types
    """Adapter by which the library measures a trial."""

    def __init__(self, measure: Measure, goals: Sequence[Goal]) -> None:
        self._measure = measure
        self._most_loss = max(goal.loss_ratio or 0.0 for goal in goals)
        self._buffered = min(goal.buffered for goal in goals)

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        trial = self._measure(intended_duration, intended_load)
        most = max(trial.intended, trial.offered, 1)
        forwarded = round(most * (1 - trial.loss_ratio_beyond(self._buffered)))
        if trial.limited_by or trial.failed:  # it meets no goal and suggests no rate
            forwarded = min(forwarded, int(most * (1 - self._most_loss) / 2))
        return MeasurementResult(
            intended_duration, intended_load, offered_count=most, intended_count=most, forwarding_count=forwarded
        )
