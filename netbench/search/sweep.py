"""The most that comes out at any of some loads, as Schlosser et al. 2011 (section 3.4) take a maximum."""

from collections.abc import Sequence
from statistics import fmean

from netbench.search.method import Bounds, Goal, Measure, Method

_MORE = 1 + 1e-6  # the lowest of loads at which the same comes out


class Sweep(Method):
    """Every load as a part of the highest one, so many times each, whatever is lost."""

    def __init__(self, shares: Sequence[float], *, trial_s: float, times: int) -> None:
        self.goals = (Goal("maximum of the sweep", None, 1.0),)
        self._shares, self._trial_s, self._times = sorted(shares), trial_s, times
        self.width = max(
            (above - below) / above for below, above in zip((0.0, *self._shares), self._shares, strict=False)
        )
        self._bounds = Bounds()

    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """All of them, upwards."""
        self._bounds = Bounds()
        best, most = None, 0.0
        for place, load in enumerate(share * highest for share in self._shares):
            trials = [measure(self._trial_s, max(lowest, load)) for _ in range(self._times)]
            out = fmean(one.offered_fps * (1 - one.loss_ratio) for one in trials)
            if not any(one.limited_by for one in trials) and out > most * _MORE:
                best, most = place, out
                self._bounds = Bounds(load, None, fmean(one.loss_ratio for one in trials))
            elif best is not None and place == best + 1:
                self._bounds = Bounds(self._bounds.lower, load, self._bounds.loss_ratio)

    def expected(self) -> tuple[int, float]:
        """Exactly."""
        trials = len(self._shares) * self._times
        return trials, trials * self._trial_s

    def bounds(self, goal: Goal) -> Bounds:
        """The load at which most came out, and the one above it."""
        return self._bounds
