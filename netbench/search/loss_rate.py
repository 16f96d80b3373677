"""The frame loss rate at falling loads (RFC 2544, section 26.3)."""

from netbench.search.method import Bounds, Goal, Measure, Method

STEP = 0.1  # of the highest load, at most (section 26.3: "a maximum granularity of 10%")
_CLEAN_IN_A_ROW = 2


class LossRate(Method):
    """Trials at 100 %, 90 %, 80 %, … of the highest load, until two loads in a row lose nothing.

    The results are the losses of the trials. The lower bound is the higher of those two loads, the upper bound the load
    that was measured above it.
    """

    def __init__(self, goal: Goal, *, trial_s: float) -> None:
        self.goals, self.width = (goal,), STEP
        self._trial_s = trial_s
        self._bounds = Bounds()

    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """Measure from the highest load downwards."""
        self._bounds = Bounds()
        (goal,) = self.goals
        clean: list[float] = []
        # No load below the lowest one is offered: the lowest load replaces all loads below it.
        steps = dict.fromkeys(max(lowest, highest * (1 - step * STEP)) for step in range(round(1 / STEP)))
        for load in steps:
            if goal.is_met_by(measure(self._trial_s, load)):
                clean.append(load)
                self._bounds = Bounds(clean[0], self._bounds.upper)
            else:
                clean = []
                self._bounds = Bounds(None, load)
            if len(clean) == _CLEAN_IN_A_ROW:
                return

    def is_upper(self, bad: int, good: int) -> bool:
        """Return True: one trial with loss is enough."""
        return bad > 0

    def expected(self) -> tuple[int, float]:
        """Count all loads, which is the maximum."""
        trials = round(1 / STEP)
        return trials, trials * self._trial_s

    def bounds(self, goal: Goal) -> Bounds:
        """Return the bounds by the trials so far."""
        return self._bounds
