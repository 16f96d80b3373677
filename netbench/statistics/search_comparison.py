"""Searches compared: by how much the highest load of a UUT changed, as far as the bounds tell.

A search ends with two loads between which the limit is, give or take its width; several, with the lowest and the
highest of their bounds. A change is told where these ranges have nothing in common. What they leave out is no matter of
chance alone, so there is no p: a range is as wide as the searches were, and grows with how far repeated ones are apart.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import FrameSize, size_text
from netbench.model.search import SearchResult, SearchState
from netbench.model.verdict import ReasonKind
from netbench.statistics.comparison import of_different_emulation
from netbench.statistics.groups import grouped

_SWEEP = "sweep"
_WITHOUT_RANGE = (SearchState.FAILED, SearchState.SEARCHING)


@dataclass(frozen=True, slots=True)
class Searched:
    """What one goal of a search is about."""

    uut: str
    scenario: str
    sources: int
    frame_size: FrameSize  # bytes with FCS
    goal: str

    @classmethod
    def of(cls, found: SearchResult) -> "Searched":
        """That of a result."""
        return cls(found.uut, found.scenario, len(found.streams), found.frame_size, found.goal)

    def __str__(self) -> str:
        sources = f"{self.sources} source{'s' * (self.sources > 1)}"
        return f"{self.uut}, {self.scenario}, {sources}, {size_text(self.frame_size, ' bytes')}, {self.goal}"


@dataclass(frozen=True, slots=True)
class Range:
    """Where a limit is, in frames/s of each stream: `high` is infinite where it was not reached.

    Bounds are right within the width that the search was made with, and so this far beyond them.
    """

    low: float
    high: float
    width: float = 0.0

    @classmethod
    def of(cls, results: Iterable[SearchResult]) -> "Range | None":
        """That of repeated searches; None where none of them came to an end."""
        known = [one for one in results if one.state not in _WITHOUT_RANGE]
        if not known:
            return None
        tops = [inf if one.state is SearchState.AT_LEAST or one.upper_fps is None else one.upper_fps for one in known]
        return cls(min(one.lower_fps or 0.0 for one in known), max(tops), known[0].width)

    @property
    def floor(self) -> float:
        """What it is above, surely."""
        return self.low * (1 - self.width)

    @property
    def ceiling(self) -> float:
        """What it is below."""
        return self.high * (1 + self.width)


@dataclass(frozen=True, slots=True)
class SearchDifference:
    """A limit in two campaigns, and the least and the greatest factor between them that their ranges allow."""

    what: Searched
    base: Range
    new: Range
    unstable: bool  # by what any of the searches says

    @property
    def least(self) -> float:
        """New ÷ base at least."""
        return self.new.floor / self.base.ceiling if self.base.ceiling else inf

    @property
    def greatest(self) -> float:
        """New ÷ base at most."""
        return self.new.ceiling / self.base.floor if self.base.floor else inf

    @property
    def change(self) -> float | None:
        """By how much it changed, relative to the base; None where it may be the same.

        Between the ends of both ranges, where these are known; else the least that it must be.
        """
        if self.least <= 1 <= self.greatest:
            return None
        if inf in (self.base.high, self.new.high) or 0 in (self.base.low, self.new.low):
            return min((self.least, self.greatest), key=lambda factor: abs(factor - 1)) - 1
        return (self.new.low + self.new.high) / (self.base.low + self.base.high) - 1

    @property
    def excluded(self) -> float | None:
        """A change above this, up or down, can be excluded; None where one of the limits was not reached."""
        if self.greatest == inf or not self.least:
            return None
        return max(abs(self.least - 1), abs(self.greatest - 1))

    def is_judged(self, more_than: float) -> bool:
        """Whether it can be told that it is lower by more than this part of the base, or not."""
        if self.change is not None:
            return True
        return bool(self.least) and 1 - self.least <= more_than

    def is_regression(self, more_than: float) -> bool:
        """Whether it is lower by more than this part of the base."""
        return self.change is not None and -self.change > more_than


@dataclass(frozen=True, slots=True)
class LeftOutSearch:
    """What is not compared, and why; `dead`: its UUT failed in the new campaign alone."""

    what: Searched
    why: str
    dead: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class SearchComparison:
    """The searches of the campaign `new` against those of `base`; `left_out` says why of what does not compare."""

    base: str
    new: str
    differences: tuple[SearchDifference, ...]
    left_out: tuple[LeftOutSearch, ...]


def compare_searches(base: str, before: CampaignResults, new: str, after: CampaignResults) -> SearchComparison:
    """Everything that both have searched for, in the order of the base."""
    apart = of_different_emulation((base, before.settings), (new, after.settings))
    sides = [grouped(side.searches, Searched.of) for side in (before, after)]
    found, left_out = [], []
    for what in dict.fromkeys((*sides[0], *sides[1])):
        own = [side.get(what, []) for side in sides]
        first, second = map(Range.of, own)
        if what.uut in apart:
            left_out.append(LeftOutSearch(what, apart[what.uut]))
        elif _SWEEP in (one.method for one in (*own[0], *own[1])):
            why = "the most of a sweep has no bounds; compare campaigns of `netbench run`"
            left_out.append(LeftOutSearch(what, why))
        elif not all(own):
            left_out.append(LeftOutSearch(what, f"only in {base if own[0] else new}"))
        elif first is not None and all(map(_failed, own[1])):
            left_out.append(LeftOutSearch(what, f"its UUT failed in {new}", dead=True))
        elif first is None or second is None:
            left_out.append(LeftOutSearch(what, f"not finished, or failed, in {base if first is None else new}"))
        else:
            found.append(SearchDifference(what, first, second, any(one.unstable for one in (*own[0], *own[1]))))
    return SearchComparison(base, new, tuple(found), tuple(left_out))


def compare_maxima(base: str, before: CampaignResults, new: str, after: CampaignResults) -> SearchComparison:
    """Likewise of the searches for the maxima that loads are a share of."""
    before, after = (replace(one, searches=one.maxima_searches) for one in (before, after))
    return compare_searches(base, before, new, after)


def _failed(found: SearchResult) -> bool:
    return found.state is SearchState.FAILED and found.why.startswith(ReasonKind.UUT_FAILED.value)
