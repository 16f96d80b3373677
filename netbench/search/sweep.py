"""The highest forwarded rate of a sweep over loads: the maximum of Schlosser et al. 2011 (section 3.4)."""

from collections.abc import Sequence
from statistics import fmean

from netbench.search.method import Bounds, Goal, Measure, Method

_LOST = 0.005  # from this loss ratio on, a load exceeds the forwarded rate
_MORE = 1.005  # a higher load must forward more by this factor to be the new maximum


class SweepSearch(Method):
    """Trials at fixed parts of the highest load, so many at each, regardless of loss."""

    def __init__(self, shares: Sequence[float], *, trial_s: float, times: int) -> None:
        self.goals = (Goal("maximum of the sweep", None, 0.0),)
        self._shares, self._trial_s, self._times = sorted(shares), trial_s, times
        self.width = max(
            (above - below) / above for below, above in zip((0.0, *self._shares), self._shares, strict=False)
        )
        self._bounds = Bounds()

    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """Measure all loads upwards; frames still in queues at the end do not count as forwarded at that load."""
        self._bounds = Bounds()
        (goal,) = self.goals
        best, most = None, 0.0
        for place, load in enumerate(dict.fromkeys(max(lowest, share * highest) for share in self._shares)):
            trials = [measure(self._trial_s, load) for _ in range(self._times)]
            lost = [trial.loss_ratio_beyond(goal.buffered) for trial in trials]
            out = fmean(trial.offered_fps * (1 - loss) for trial, loss in zip(trials, lost, strict=True))
            if all(map(goal.is_met_by, trials)) and out > most * _MORE:
                best, most = place, out
                # If nothing is lost at the highest load, the maximum is unknown.
                self._bounds = Bounds(load, load if max(lost) > _LOST else None, fmean(lost))
            elif best is not None and place == best + 1:
                self._bounds = Bounds(self._bounds.lower, load, self._bounds.loss_ratio)

    def is_upper(self, bad: int, good: int) -> bool:
        """Return True: every measured load counts."""
        return True

    def expected(self) -> tuple[int, float]:
        """Return the exact number of trials and their duration."""
        trials = len(self._shares) * self._times
        return trials, trials * self._trial_s

    def bounds(self, goal: Goal) -> Bounds:
        """Return the load with the highest forwarded rate, and the next load, or the same one if frames were lost."""
        return self._bounds
