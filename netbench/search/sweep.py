"""The most that comes out at any of some loads, as Schlosser et al. 2011 (section 3.4) take a maximum."""

from collections.abc import Sequence
from statistics import fmean

from netbench.search.method import Bounds, Goal, Measure, Method

_LOST = 0.005  # from here on a load was more than comes out
_MORE = 1.005  # what comes out at a higher load only by chance is the maximum of the lower one


class Sweep(Method):
    """Every load as a part of the highest one, so many times each, whatever is lost."""

    def __init__(self, shares: Sequence[float], *, trial_s: float, times: int) -> None:
        self.goals = (Goal("maximum of the sweep", None, 0.0),)
        self._shares, self._trial_s, self._times = sorted(shares), trial_s, times
        self.width = max(
            (above - below) / above for below, above in zip((0.0, *self._shares), self._shares, strict=False)
        )
        self._bounds = Bounds()

    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """All of them, upwards. What was still in queues did not come out at that load."""
        self._bounds = Bounds()
        (goal,) = self.goals
        best, most = None, 0.0
        for place, load in enumerate(dict.fromkeys(max(lowest, share * highest) for share in self._shares)):
            trials = [measure(self._trial_s, load) for _ in range(self._times)]
            lost = [one.loss_ratio_beyond(goal.buffered) for one in trials]
            out = fmean(one.offered_fps * (1 - loss) for one, loss in zip(trials, lost, strict=True))
            if all(map(goal.is_met_by, trials)) and out > most * _MORE:
                best, most = place, out
                # With nothing lost at the highest load nobody knows what the most is.
                self._bounds = Bounds(load, load if max(lost) > _LOST else None, fmean(lost))
            elif best is not None and place == best + 1:
                self._bounds = Bounds(self._bounds.lower, load, self._bounds.loss_ratio)

    def is_upper(self, bad: int, good: int) -> bool:
        """Every load that was measured tells."""
        return True

    def expected(self) -> tuple[int, float]:
        """Exactly."""
        trials = len(self._shares) * self._times
        return trials, trials * self._trial_s

    def bounds(self, goal: Goal) -> Bounds:
        """The load at which most came out, and the one above it, or itself where frames were lost there."""
        return self._bounds
