"""The frame loss rate at falling loads (RFC 2544, section 26.3)."""

from netbench.search.method import Bounds, Goal, Measure, Method

STEP = 0.1  # of the highest load, at most (section 26.3: "a maximum granularity of 10%")
_CLEAN_IN_A_ROW = 2


class LossRate(Method):
    """Trials at 100 %, 90 %, 80 %, … of the highest load, until two loads in a row lose nothing.

    What is asked for are the losses themselves, which the trials have. The lower bound is the higher one of those two
    loads, the upper one what was measured above it.
    """

    def __init__(self, goal: Goal, *, trial_s: float) -> None:
        self.goals, self.width = (goal,), STEP
        self._trial_s = trial_s
        self._bounds = Bounds()

    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """Downwards."""
        self._bounds = Bounds()
        (goal,) = self.goals
        clean: list[float] = []
        # Below the lowest load nothing is offered, so the lowest one takes the place of all loads below it.
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
        """One is enough."""
        return bad > 0

    def expected(self) -> tuple[int, float]:
        """All of them, at most."""
        trials = round(1 / STEP)
        return trials, trials * self._trial_s

    def bounds(self, goal: Goal) -> Bounds:
        """Of what was measured so far."""
        return self._bounds
