"""Comparison of searches: by how much the highest load of a UUT changed, within the bounds of the searches.

A search ends with two loads; the limit lies between them, within the width of the search. At least three searches show
the variation between repeated ones: the interval is that of the ratio of means, widened by the bounds. Fewer searches
are assumed to repeat within `SINGLE_SEARCH`, or within the noise floor of the campaign if that is larger.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean, stdev

from netbench.model.campaign import CampaignResults
from netbench.model.search import SearchResult, SearchState
from netbench.model.verdict import ReasonKind
from netbench.model.workload import traffic_text
from netbench.statistics.change_interval import RUN_PART, SideMean, change_interval, deviation_of_noise_floor
from netbench.statistics.compared_cells import ALL_CELLS, Absence, CellSelection, LeftOut, Searched
from netbench.statistics.comparison import doubt_of, of_different_emulation, of_different_packets, only_in
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import RatioOfMeans
from netbench.statistics.significance import FEWEST

# Searches of the same UUT minutes apart ended up to 7 % apart on virtual machines.
SINGLE_SEARCH = 0.1
_SWEEP = "sweep"
_WITHOUT_RANGE = (SearchState.FAILED, SearchState.SEARCHING)


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a limit, as a rate of each stream: `high` is infinite if the limit was not reached.

    For several searches these are the lowest and the highest bound. The limit may lie beyond a bound by the `width` of
    the search, a ratio. `spread` is how far other searches may deviate from these, as a ratio. `middle` is the mean of
    the middles of `searches`, `reach` the distance of their bounds from these, as a ratio.
    """

    low: float
    high: float
    width: float = 0.0
    searches: int = 1
    spread: float = 0.0
    middle: SideMean | None = None
    reach: float = 0.0

    @classmethod
    def of(cls, results: Iterable[SearchResult], noise_floor: float | None = None) -> "Range | None":
        """Return the range of repeated searches; None if none of them finished."""
        known = [result for result in results if result.state not in _WITHOUT_RANGE]
        if not known:
            return None
        width = known[0].width
        lows, highs = [result.lower or 0.0 for result in known], [_upper(result) for result in known]
        bounds = cls(min(lows), max(highs), width, len(known))
        if len(known) < FEWEST or inf in highs or 0.0 in lows:
            return replace(bounds, spread=max(SINGLE_SEARCH, noise_floor or 0.0))
        middles = [(low + high) / 2 for low, high in zip(lows, highs, strict=True)]
        mean, deviation = fmean(middles), stdev(middles)
        run = max(RUN_PART * deviation, deviation_of_noise_floor(noise_floor or 0.0) * mean)
        middle = SideMean(mean, len(known), deviation, run)
        return replace(bounds, middle=middle, reach=(fmean(highs) - fmean(lows)) / 2 / mean + width)

    @property
    def floor(self) -> float:
        """The lowest possible limit."""
        return self.low * (1 - self.width) * (1 - self.spread)

    @property
    def ceiling(self) -> float:
        """The highest possible limit."""
        return self.high * (1 + self.width) * (1 + self.spread)


def _upper(found: SearchResult) -> float:
    """Return the upper bound; infinite if the UUT is not the cause of it."""
    reached = found.state is not SearchState.AT_LEAST and found.limited_by.is_uut
    return found.upper if reached and found.upper is not None else inf


@dataclass(frozen=True, slots=True)
class SearchDifference:
    """A limit in two campaigns, and the least and the greatest factor between them that their ranges allow.

    `ratio` is that of the means of repeated searches; None if either campaign has fewer than three. `doubt` is the
    reason why a difference would not be due to the UUT; usually empty.
    """

    place: Searched
    base: Range
    new: Range
    unstable: bool  # any of the searches is unstable
    ratio: RatioOfMeans | None = None
    doubt: str = ""

    @property
    def least(self) -> float:
        """The smallest possible new ÷ base."""
        if self.ratio is not None:
            return max(0.0, (self.ratio.low or 0.0) * (1 - self.new.reach)) / (1 + self.base.reach)
        return self.new.floor / self.base.ceiling if self.base.ceiling else inf

    @property
    def greatest(self) -> float:
        """The largest possible new ÷ base."""
        if self.ratio is not None:
            high = self.ratio.high
            return inf if high is None or self.base.reach >= 1 else high * (1 + self.new.reach) / (1 - self.base.reach)
        return self.new.ceiling / self.base.floor if self.base.floor else inf

    @property
    def change(self) -> float | None:
        """The change relative to the base; None if the limits may be equal.

        It is computed from the middles of both ranges if their ends are known; otherwise it is the smallest possible
        change.
        """
        if self.doubt or self.least <= 1 <= self.greatest:
            return None
        if inf in (self.base.high, self.new.high) or 0 in (self.base.low, self.new.low):
            return min((self.least, self.greatest), key=lambda factor: abs(factor - 1)) - 1
        return (self.new.low + self.new.high) / (self.base.low + self.base.high) - 1

    @property
    def largest_change(self) -> float | None:
        """The largest change, up or down, that the ranges still allow; None if one of the limits was not reached."""
        if self.greatest == inf or not self.least:
            return None
        return max(abs(self.least - 1), abs(self.greatest - 1))


@dataclass(frozen=True, slots=True)
class SearchComparison:
    """The searches of the campaign `new` against those of `base`; `left_out` are those not compared, with reasons."""

    base: str
    new: str
    differences: tuple[SearchDifference, ...]
    left_out: tuple[LeftOut, ...]
    doubt: str = ""  # which campaign was disturbed, as text


def compare_searches(
    base: str,
    before: CampaignResults,
    new: str,
    after: CampaignResults,
    *,
    selection: CellSelection = ALL_CELLS,
    accept_disturbed: bool = False,
    of_maxima: bool = False,
) -> SearchComparison:
    """Return the comparison of the selected searches of both, in the order of the base.

    Disturbed campaigns are treated as in `compare`. `of_maxima`: compare the searches for the maxima that loads are a
    share of.
    """
    apart = of_different_emulation(base, before.settings, new, after.settings)
    changed = of_different_packets(base, before.packets, new, after.packets)
    sides = []
    for side in (before, after):
        searches = side.maxima_searches if of_maxima else side.searches
        chosen = (
            search for search in searches if selection.includes(search.uut, search.scenario, search.kind_of_traffic)
        )
        sides.append(grouped(chosen, Searched.of))
    floors = [side.noise_floor.half_width if side.noise_floor else None for side in (before, after)]
    doubt = "" if accept_disturbed else doubt_of((base, before.warnings), (new, after.warnings))
    differences, left_out = [], []
    for what in dict.fromkeys((*sides[0], *sides[1])):
        own = [side.get(what, []) for side in sides]
        first, second = map(Range.of, own, floors)
        if what.uut in apart:
            left_out.append(LeftOut(what, apart[what.uut], Absence.EMULATION))
        elif what.packet in changed:
            left_out.append(LeftOut(what, changed[what.packet], Absence.OTHER_PACKET))
        elif _SWEEP in (search.method for search in (*own[0], *own[1])):
            why = "the highest throughput of a sweep has no bounds; compare campaigns of `netbench run`"
            left_out.append(LeftOut(what, why, Absence.NO_BOUNDS))
        elif not all(own) and any(str(other) == str(what) and other != what for side in sides for other in side):
            same_traffic = any(other.traffic == what.traffic for side in sides for other in side if other != what)
            what_differs = "its rates in another unit" if same_traffic else "other options"
            why = f"{traffic_text(what.traffic)} has {what_differs} in each campaign"
            left_out.append(LeftOut(what, why, Absence.OTHER_LOAD))
        elif not all(own):
            measured, missing, lacking = (base, new, after) if own[0] else (new, base, before)
            is_over = bool(lacking.manifest.get("finished"))
            why = only_in(measured, missing, is_finished=is_over)
            left_out.append(LeftOut(what, why, Absence.ONE_SIDE if is_over else Absence.UNFINISHED))
        elif first is not None and all(search.failure is ReasonKind.UUT_FAILED for search in own[1]):
            left_out.append(LeftOut(what, f"its UUT failed in {new}", Absence.DEAD))
        elif first is None or second is None:
            why = f"not finished, or failed, in {base if first is None else new}"
            left_out.append(LeftOut(what, why, Absence.INVALID))
        else:
            unstable = any(search.unstable for search in (*own[0], *own[1]))
            differences.append(SearchDifference(what, first, second, unstable, doubt=doubt))
    tests = len(differences)
    with_ratios = tuple(replace(difference, ratio=_ratio(difference, tests)) for difference in differences)
    return SearchComparison(base, new, with_ratios, tuple(left_out), doubt)


def _ratio(difference: SearchDifference, tests: int) -> RatioOfMeans | None:
    before, after = difference.base.middle, difference.new.middle
    return None if before is None or after is None else change_interval(after, before, tests)
