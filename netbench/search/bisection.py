"""Search by halving for the highest load without loss: RFC 2544, section 26.1; ETSI GS NFV-TST 009, section 12.3.3."""

from math import ceil, log2

from netbench.search.method import Bounds, Goal, Measure, Method


class Bisection(Method):
    """Search that starts at the highest load and halves the interval; all trials have the same duration.

    A load is above the limit once `verified` trials in a row missed the goal. 1 is RFC 2544's search, which accepts the
    first result. 2 and more are TST 009's binary search with loss verification, which does not mistake a passing
    disturbance for the limit.
    """

    def __init__(self, goal: Goal, width: float, *, trial_s: float, verified: int = 1) -> None:
        self.goals, self.width = (goal,), width
        self._trial_s, self._verified = trial_s, verified
        self._bounds = Bounds()

    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """Measure at the highest load, then at the lowest, then halve the interval."""
        self._bounds = Bounds()
        if self._is_held(highest, measure) or not self._is_held(lowest, measure):
            return
        while self._upper - self._lower > self.width * self._upper:
            self._is_held((self._lower + self._upper) / 2, measure)

    def is_upper(self, bad: int, good: int) -> bool:
        """Return True once as many trials in a row as `verified` missed the goal."""
        return bad >= self._verified

    def expected(self) -> tuple[int, float]:
        """Count both ends and the halvings until the bounds are close enough; every second load is too high."""
        loads = 2 + ceil(log2(1 / self.width))
        trials = round(loads * (1 + self._verified) / 2)
        return trials, trials * self._trial_s

    def bounds(self, goal: Goal) -> Bounds:
        """Return the highest load that met the goal and the lowest load that missed it."""
        return self._bounds

    @property
    def _lower(self) -> float:
        return self._bounds.lower or 0.0

    @property
    def _upper(self) -> float:
        return self._bounds.upper or 0.0

    def _is_held(self, load: float, measure: Measure) -> bool:
        (goal,) = self.goals
        for _ in range(self._verified):
            measured = measure(self._trial_s, load)
            if goal.is_met_by(measured):
                loss_ratio = measured.loss_ratio_beyond(goal.buffered)
                self._bounds = Bounds(load, self._bounds.upper, loss_ratio)
                return True
        self._bounds = Bounds(self._bounds.lower, load, self._bounds.loss_ratio)
        return False
