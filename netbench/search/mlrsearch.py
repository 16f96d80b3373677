"""Several loss ratios in one search, by MLRsearch (draft-ietf-bmwg-mlrsearch; the library of FD.io CSIT)."""

from collections.abc import Sequence

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from netbench.search.method import Bounds, Goal, Measure, Method

# Of the library's own clock, which is not that of the trials: it may be asked again and again for the same search.
_NEVER_S = 1e12
_COARSE = 6  # short trials, about


class MlrSearch(Method):
    """Bounds that hold for `exceed_ratio` of the time: short trials at one load, until `duration_sum_s` agree.

    `initial_s` is how long the first, coarse trials are, `final_s` those that count.
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
        self.goals, self.width = tuple(goals), width
        self._exceed_ratio = exceed_ratio
        self._initial_s, self._final_s, self._duration_sum_s = initial_s, final_s, duration_sum_s
        self._theirs = {
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
        """As of the library: first at the highest load, and from what came out there towards the bounds."""
        config = Config()
        config.goals = list(self._theirs.values())
        config.min_load = lowest  # first: it is below the highest that is there
        config.max_load = highest
        config.search_duration_max = _NEVER_S
        config.warmup_duration = 0.0
        self._search = MultipleLossRatioSearch(config=config)
        self._search.search(_Measurer(measure, self.goals), debug=_silent)

    def is_upper(self, bad: int, good: int) -> bool:
        """By the part of the time that may have more loss."""
        return bad > self._exceed_ratio * (bad + good)

    def expected(self) -> tuple[int, float]:
        """By benchmarks/search.py: a lower bound takes its whole time, an upper one about half of it."""
        seconds = 1.5 * len(self.goals) * self._duration_sum_s
        return _COARSE + round(seconds / self._final_s), _COARSE * self._initial_s + seconds

    def bounds(self, goal: Goal) -> Bounds:
        """The relevant bounds: an upper one has no lower one above it, however the trials there went."""
        found = self._search
        if found is None or getattr(found, "database", None) is None:
            return Bounds()
        target = found.scaling.goal_to_final_target[self._theirs[goal]]
        there = found.database.get_relevant_bounds(target=target)
        lower, upper = there.clo, there.chi
        loss_ratio = 0.0 if lower is None else next(iter(lower.target_to_stat.values())).pessimistic_loss_ratio
        return Bounds(None if lower is None else float(lower), None if upper is None else float(upper), loss_ratio)


class _Measurer(AbstractMeasurer):  # type: ignore[misc]  # the library comes without types
    """A trial as the library wants it measured."""

    def __init__(self, measure: Measure, goals: Sequence[Goal]) -> None:
        self._measure = measure
        self._most_loss = max(goal.loss_ratio or 0.0 for goal in goals)
        self._buffered = min(goal.buffered for goal in goals)

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        one = self._measure(intended_duration, intended_load)
        most = max(one.intended, one.offered, 1)
        forwarded = round(most * (1 - one.loss_ratio_beyond(self._buffered)))
        if one.limited_by or one.failed:  # no goal is met by it, and it hints at no rate
            forwarded = min(forwarded, int(most * (1 - self._most_loss) / 2))
        return MeasurementResult(
            intended_duration, intended_load, offered_count=most, intended_count=most, forwarding_count=forwarded
        )


def _silent(text: str) -> None:
    """The library tells each of its steps."""
