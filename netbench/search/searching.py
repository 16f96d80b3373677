"""A campaign that searches: for each UUT, scenario, number of streams and frame size, trial after trial."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from operator import add
from statistics import fmean

from netbench.errors import UsageError
from netbench.model.frame_mix import FrameMix, FrameSize, rising
from netbench.model.rfc2544 import Rfc2544Tests
from netbench.model.search import THE_HIGHEST_ASKED, LoadedDelay, OneOfSeveral, SearchResult, SearchState
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind, line_rate_fps
from netbench.model.verdict import ReasonKind, Warning, WarningKind
from netbench.plan.choice import source_numbers
from netbench.plan.schedule import Schedule, Wanted
from netbench.search.further_tests import Throughput, deviations, expected_of_tests, measure_tests
from netbench.search.measured import unmeasured, what_it_tells
from netbench.search.method import Bounds, GivenUpError, Goal, Measured, Method
from netbench.search.options import BACK_TO_BACK, RESET, SYSTEM_RECOVERY, MaximaOptions, SearchOptions
from netbench.statistics.groups import grouped

# As fast as a source can is not what it can be paced at.
_PACED_PART = 0.98
# Sources hold a rate that they held twice in a row. What is tried at first, and after each rate that they did not hold,
# is this part of what they offered: they need room to make up for moments in which they were late.
_HELD_PART, _TIMES_HELD, _MOST_TRIED = 0.8, 2, 8
# Trials without any counts in a row, after which a search is given up: the UUT does not come up, or dies each time.
_MOST_UNMEASURED = 3
# What part of the trials at a load must say otherwise than the bounds do, to say that the UUT is not steady.
_CONTRARY_PART = 1 / 3


@dataclass(frozen=True, slots=True)
class _Cell:
    """What one search is made of."""

    uut: str
    scenario: str
    sources: int
    frame_size: FrameSize
    repetition: int


class _MissingTrialError(Exception):
    """This trial is next."""

    def __init__(self, spec: TrialSpec) -> None:
        super().__init__(spec.key)
        self.spec = spec


class Search(Schedule):
    """Looks for the highest load that loses nothing, or as little as is allowed: MLRsearch, RFC 2544, TST 009, a sweep.

    One search comes after the other, UUT by UUT, each as many times as the profile has repetitions. A search is made
    again from its first trial whenever it is asked what follows, with the results that are there: it ends where one is
    missing. So it can be resumed, and no state of it is kept.
    """

    Options = SearchOptions
    wants_steady = True  # what changes with them at some load would be taken for a limit of the UUT
    MaximaOptions = MaximaOptions

    def __init__(self, wanted: Wanted, options: SearchOptions) -> None:
        """UsageError where the lowest load is no lower one."""
        super().__init__(wanted, options)
        self._asked = options
        self._refuse_nothing_between()
        self._cells = tuple(_cells(wanted))
        self._told: dict[str, TrialResult] = {}
        self._found: dict[_Cell, tuple[SearchResult, ...]] = {}
        self._trials_before: dict[_Cell, int] = {}
        self._times: dict[_Cell, Counter[str]] = {}
        self._failures: dict[_Cell, int] = {}

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | None:
        """The first trial that the first unfinished search lacks."""
        before, times, failures = 0, Counter[str](), 0
        for place, cell in enumerate(self._cells):
            if place == 0 or not _same_trials(cell, self._cells[place - 1]):
                times = Counter()
            if self._is_over(cell):
                before, times, failures = self._trials_before[cell], Counter(self._times[cell]), self._failures[cell]
                continue
            walk = _Walk(self, cell, results, before, times, failures)
            following = walk.follow()
            self._found[cell] = walk.found()
            if following is not None:
                return following
            before, times, failures = walk.index, walk.times, walk.failures
            self._failures[cell] = failures
            self._trials_before[cell], self._times[cell] = before, Counter(times)
            self._told.clear()  # nobody asks for them again
        return None

    @property
    def remarks(self) -> tuple[Warning, ...]:
        """In what it does otherwise than RFC 2544 says, where that was asked for."""
        if not (self._asked.tests or self._asked.method == "rfc2544"):
            return ()
        return tuple(Warning(WarningKind.NOT_AS_RFC_2544, one) for one in deviations(self._asked, self.wanted.profile))

    @property
    def searches(self) -> tuple[SearchResult, ...]:
        """All that were begun, in order."""
        every = [one for found in self._found.values() for one in found]
        apart = {
            what: _disagreement(same) for what, same in grouped(every, lambda one: _without_repetition(one.key)).items()
        }
        return tuple(replace(one, unstable=one.unstable or apart[_without_repetition(one.key)]) for one in every)

    def expected_s(self, done: Collection[str]) -> float:
        """How long the searches that are not over should take, in seconds, about: what they find decides.

        Those that are over say how many trials one takes here.
        """
        alike, boot = [], 1
        for cell in self._cells:
            if not self._is_over(cell):
                trials, traffic_s = self._expected(cell)
                one, resets = self._alike(cell, traffic_s / trials), self._resets(cell)
                alike += [replace(one, boot=boot)] * (trials - resets)
                # What follows a reset is measured on another boot, with warm-up trials of its own.
                alike += [replace(one, boot=boot + number) for number in range(1, resets + 1)]
                boot += resets
        return self.wanted.costs.expected_s(alike)

    def _expected(self, cell: _Cell) -> tuple[int, float]:
        """How many trials a search is, and how many seconds of traffic."""
        profile = self.wanted.profile
        trials, traffic_s = self._asked.method_of(profile.duration).expected()
        over = [self._found[one][0] for one in self._trials_before]
        if over:
            trials, traffic_s = round(fmean(one.trials for one in over)), fmean(one.seconds for one in over)
        more, more_s = expected_of_tests(
            self._asked,
            profile.duration,
            is_smallest=self.is_smallest(cell),
            is_mix=isinstance(cell.frame_size, FrameMix),
        )
        afterwards = len(self._asked.delay_at) + (self._asked.overload is not None)
        held_s = self._asked.held_s(profile.duration)
        trials += 1 + afterwards + more + (_TIMES_HELD if held_s else 0)
        traffic_s += afterwards * profile.duration + more_s + _TIMES_HELD * held_s
        return trials, traffic_s

    def _resets(self, cell: _Cell) -> int:
        return self._asked.reset.times if RESET in self._asked.tests and self.is_smallest(cell) else 0

    def is_smallest(self, cell: _Cell) -> bool:
        """Whether its frames are the smallest ones of the profile."""
        return cell.frame_size == min(self.wanted.profile.frame_sizes, key=rising)

    def _alike(self, cell: _Cell, seconds: float) -> TrialSpec:
        """A trial that stands for all of a search, by how long it takes."""
        case = self.wanted.profile.scenario(cell.scenario)
        load = self._asked.highest
        return self.wanted.trial(
            cell.uut, case, cell.frame_size, load, 1, index=0, sources=cell.sources, duration_s=seconds
        )

    def _refuse_nothing_between(self) -> None:
        """UsageError where the loads that may be tried are none."""
        lowest, highest = self._asked.lowest, self._asked.highest
        link_bps = min(self.wanted.topology.stream_link(one).rate for one in self.wanted.topology.own_streams)
        for size in self.wanted.profile.frame_sizes if lowest else ():
            ends = [None if load is None else load.fps(size, link_bps) for load in (lowest, highest)]
            if None not in ends and (ends[0] or 0.0) * 2 > (ends[1] or 0.0):
                raise UsageError(
                    f"profile {self.wanted.profile.name}: schedule.lowest: {lowest} must be half of schedule.highest, "
                    f"{highest}, at most"
                )

    def _is_over(self, cell: _Cell) -> bool:
        return cell in self._trials_before

    def told(self, key: str, results: Mapping[str, TrialResult]) -> TrialResult | None:
        """A result, read once: a search that goes on is made again after each trial."""
        if key not in self._told:
            if key not in results:
                return None
            self._told[key] = results[key].without_counters
        return self._told[key]


class _Walk:
    """One search, made again with the results that are there."""

    def __init__(
        self,
        search: Search,
        cell: _Cell,
        results: Mapping[str, TrialResult],
        index: int,
        times: Counter[str],
        failures: int,
    ) -> None:
        self._search, self._cell, self._results = search, cell, results
        self.index, self.times, self.failures = index, times, failures
        self._method: Method = search._asked.method_of(search.wanted.profile.duration)
        self._trials: list[Measured] = []
        self._delays: list[LoadedDelay] = []
        self._tests: Rfc2544Tests | None = None
        self._overload_fps: float | None = None
        self._unmeasured = 0
        self._why = ""
        self._highest: float | None = None
        self._is_done = False

    def follow(self) -> TrialSpec | None:
        """The trial that is missing; None when the search is over."""
        try:
            self._highest = highest = self._highest_load()
            trial_s = self._search.wanted.profile.duration
            lowest = self._search._asked.lowest_of(highest, self._cell.frame_size, self._link_bps, trial_s)
            self._method.search(lowest, highest, self._measure_at)
            self._measure_delays()
            self._measure_tests(highest)
            self._measure_overload(highest)
        except _MissingTrialError as missing:
            return missing.spec
        except GivenUpError as why:
            self._why = str(why)
        self._is_done = True
        return None

    def found(self) -> tuple[SearchResult, ...]:
        """What is known of each goal."""
        return tuple(map(self._found_for, self._method.goals))

    @property
    def _link_bps(self) -> float:
        topology = self._search.wanted.topology
        return min(topology.stream_link(one).rate for one in topology.own_streams[: self._cell.sources])

    def _highest_load(self) -> float:
        """In frames/s of each stream: as asked, or what the sources can be paced at here."""
        asked, trial_s = self._search._asked, self._search.wanted.profile.duration
        highest = asked.highest
        fps = highest.fps(self._cell.frame_size, self._link_bps)
        if fps is not None:
            return fps
        for _ in range(_MOST_UNMEASURED):
            fastest = self._measure(asked.first_s(trial_s), highest)
            self._trials.clear()  # it is of no search
            if fastest.offered_fps >= 1 and not fastest.limited_by.startswith(ReasonKind.GENERATOR_FAILED.value):
                if held_s := asked.held_s(trial_s):
                    return self._held(_round(fastest.offered_fps * _HELD_PART), held_s)
                return _round(fastest.offered_fps * _PACED_PART)
        raise GivenUpError(fastest.failed or fastest.limited_by or "the sources send nothing")

    def _held(self, fps: float, seconds: float) -> float:
        """This rate, or the highest one below it that the sources hold for so long: these trials are of no search."""
        times = 0
        for _ in range(_MOST_TRIED):
            one = self._measure_at(seconds, fps)
            if one.limited_by.startswith(ReasonKind.OFFERED_OUT_OF_TOLERANCE.value):
                times, fps = 0, _round(_HELD_PART * min(fps, one.offered_fps))
            elif (times := times + 1) == _TIMES_HELD:
                break
        self._trials.clear()
        return fps

    def _measure_delays(self) -> None:
        """At parts of what was found for the first goal: these trials are none of the search."""
        found, searched = self._found_for(self._method.goals[0]).lower_fps, list(self._trials)
        for share in self._search._asked.delay_at if found is not None else ():
            try:
                one = self._measure_at(self._search.wanted.profile.duration, share * (found or 0.0))
                refused = one.failed or one.limited_by or one.delay_refused
                self._delays.append(LoadedDelay(share, one.offered_fps, None if refused else one.delay, refused))
            except GivenUpError as why:
                self._delays.append(LoadedDelay(share, share * (found or 0.0), None, str(why)))
                break
            finally:
                self._trials = list(searched)

    def _measure_tests(self, highest: float) -> None:
        """The other tests of RFC 2544, at what was found for the first goal: these trials are none of the search."""
        found = self._found_for(self._method.goals[0], is_done=True)
        if not self._search._asked.tests or (found.lower_fps is None and found.state is not SearchState.AT_MOST):
            return

        def keep(tests: Rfc2544Tests) -> None:
            self._tests = tests

        searched = list(self._trials)
        try:
            line_rate = line_rate_fps(self._link_bps, self._cell.frame_size)
            is_smallest = self._search.is_smallest(self._cell)
            throughput = Throughput(
                found.lower_fps or 0.0,
                highest,
                line_rate,
                found.state,
                is_smallest,
                is_mix=isinstance(self._cell.frame_size, FrameMix),
            )
            measure_tests(self._search._asked, self._search.wanted.profile, throughput, self, keep)
        finally:
            self._trials = searched

    def steady(self, seconds: float, fps: float) -> Measured:
        """A trial at one load, in frames/s."""
        return self._measure_at(seconds, fps)

    def burst(self, frames: int, fps: float) -> Measured:
        """So many frames of each stream at one rate, and no more."""
        fps = _round(fps)
        return self._measure(frames / fps, Load.of_fps(fps), benchmark=BACK_TO_BACK)

    def reduced(self, first: tuple[float, float], then: tuple[float, float]) -> Measured:
        """One rate, in frames/s, for so many seconds, and at once another one."""
        frames, seconds = round(first[0] * first[1]) + round(then[0] * then[1]), first[1] + then[1]
        return self._measure(seconds, Load.of_fps(_round(frames / seconds)), first=first, benchmark=SYSTEM_RECOVERY)

    def restarted(self, seconds: float, fps: float, restart_at_s: float) -> Measured:
        """A steady load, while the UUT is ended and started again after so many seconds."""
        return self._measure(seconds, Load.of_fps(_round(fps)), benchmark=RESET, restart_at_s=restart_at_s)

    def _measure_overload(self, highest: float) -> None:
        """Above the upper bound of the first goal, where that is the UUT's: this trial is none of the search either."""
        found, searched, times = (
            self._found_for(self._method.goals[0]),
            list(self._trials),
            self._search._asked.overload,
        )
        if times is None or found.upper_fps is None or found.limited_by:
            return
        try:
            one = self._measure_at(self._search.wanted.profile.duration, min(times * found.upper_fps, highest))
            if not (one.limited_by or one.failed):
                self._overload_fps = one.throughput_fps
        except GivenUpError:
            pass  # what was found stands without it
        finally:
            self._trials = searched

    def _measure_at(self, seconds: float, fps: float) -> Measured:
        return self._measure(seconds, Load.of_fps(_round(fps)))

    def _measure(
        self,
        seconds: float,
        load: Load,
        *,
        first: tuple[float, float] | None = None,
        benchmark: str = "",
        restart_at_s: float | None = None,
    ) -> Measured:
        """A trial as the results have it; _MissingTrialError with the one to be made where they do not."""
        while True:
            self.times[str(load)] += 1
            spec = self._search.wanted.trial(
                self._cell.uut,
                self._search.wanted.profile.scenario(self._cell.scenario),
                self._cell.frame_size,
                load,
                self.times[str(load)],
                index=self.index,
                sources=self._cell.sources,
                boot=self.failures + 1,  # a UUT that failed is started again, however often
                duration_s=seconds,
                first=first,
                benchmark=benchmark,
                restart_at_s=restart_at_s,
            )
            result = self._search.told(spec.key, self._results)
            if result is None:
                raise _MissingTrialError(spec)
            self.index += 1
            why = unmeasured(result)
            self.failures += any(reason.kind is ReasonKind.UUT_FAILED for reason in result.reasons)
            if not why:
                self._unmeasured = 0
                measured = what_it_tells(result, self._method.width)
                self._trials.append(measured)
                return measured
            self._unmeasured += 1
            if self._unmeasured == _MOST_UNMEASURED:
                raise GivenUpError(why)

    def _found_for(self, goal: Goal, *, is_done: bool = False) -> SearchResult:
        """`is_done`: whether the search itself is over, though not all that follows it."""
        bounds, width = self._method.bounds(goal), self._method.width
        at_lower = [one for one in self._trials if bounds.lower is not None and _is_at(one, bounds.lower)]
        at_upper = [one for one in self._trials if bounds.upper is not None and _is_at(one, bounds.upper)]
        lower = fmean(one.offered_fps for one in at_lower) if at_lower else None
        upper = None if bounds.upper is None else max(_round(bounds.upper), lower or 0.0)
        valid = [goal.is_met_by(one) for one in at_upper if not one.limited_by]
        limits = [
            one.limited_by for one in (at_upper if at_upper or lower is not None else self._trials) if one.limited_by
        ]
        by_uut = self._method.is_upper(valid.count(False), valid.count(True))
        limited_by = limits[0] if limits and not by_uut else ""
        fails = next((one.failed for one in at_upper if one.failed), "")
        state = self._state(lower, upper, limited_by, is_done=is_done or self._is_done)
        if state is SearchState.AT_LEAST and not limited_by:
            limited_by = THE_HIGHEST_ASKED
            if self._search._asked.highest.kind is LoadKind.MAX:
                limited_by = f"the source, which can be paced at {self._highest or 0:,.0f} frames/s"
        cell = self._cell
        return SearchResult(
            uut=cell.uut,
            scenario=cell.scenario,
            streams=self._search.wanted.streams[: cell.sources],
            frame_size=cell.frame_size,
            repetition=cell.repetition,
            method=self._search._asked.method,
            goal=goal.name,
            loss_ratio=goal.loss_ratio,
            state=state,
            width=width,
            lower_fps=lower,
            upper_fps=upper,
            throughput_fps=None if lower is None else lower * (1 - bounds.loss_ratio),
            trials=len(self._trials),
            seconds=sum(one.duration_s for one in self._trials),
            limited_by=limited_by,
            unstable=_contradiction(self._trials, goal, width, bounds, cell.sources),
            why=self._why or (fails and f"at the upper bound: {fails}"),
            delays=tuple(self._delays) if goal == self._method.goals[0] else (),
            tests=self._tests if goal == self._method.goals[0] else None,
            overload_fps=self._overload_fps if goal == self._method.goals[0] else None,
            each=_added_up(one for one in at_lower if not (one.limited_by or one.failed)),
        )

    def _state(self, lower: float | None, upper: float | None, limited_by: str, *, is_done: bool) -> SearchState:
        if not is_done:
            return SearchState.SEARCHING
        if self._why or (lower is None and (upper is None or limited_by)):
            return SearchState.FAILED
        if lower is None:
            return SearchState.AT_MOST
        return SearchState.AT_LEAST if upper is None or limited_by else SearchState.FOUND


def _cells(wanted: Wanted) -> Iterator[_Cell]:
    for uut in wanted.uuts:
        for case in wanted.scenarios:
            for sources in source_numbers(wanted.topology, wanted.profile, case):
                for size in wanted.profile.frame_sizes:
                    for repetition in range(1, wanted.profile.repetitions + 1):
                        yield _Cell(uut, case.name, sources, size, repetition)


def _same_trials(one: _Cell, other: _Cell) -> bool:
    """Whether their trials are told apart by their number alone."""
    return replace(one, repetition=1) == replace(other, repetition=1)


def _round(fps: float) -> float:
    """Six digits: a load that people can read, and no further from the other than a source can be paced."""
    return float(f"{fps:.6g}")


def _is_at(measured: Measured, load: float) -> bool:
    return measured.load_fps == _round(load)


def _added_up(trials: Iterable[Measured]) -> tuple[OneOfSeveral, ...]:
    """Stream by stream, over trials of the same streams."""
    by_stream = zip(*(one.each for one in trials), strict=True)
    return tuple(reduce(add, same) for same in by_stream)


def _contradiction(trials: Sequence[Measured], goal: Goal, width: float, bounds: Bounds, sources: int) -> str:
    """The load at which trials went otherwise than the bounds say; empty where there is none.

    Bounds are of each stream, of which there are `sources`; the frames of a trial are those of all.
    One in a way that passes is none, nor is what happens right at the limit. But no queue or credit lets a UUT forward
    more frames in a short trial than it can in a long one: a single trial that did so is one too many.
    """
    if goal.loss_ratio is None:
        return ""
    lower, upper = bounds.lower, bounds.upper
    longest_s = max((one.duration_s for one in trials if upper is not None and _is_at(one, upper)), default=inf)
    for one in trials:
        done = one.forwarded - one.buffered
        if upper is not None and goal.is_met_by(one) and done > upper * sources * (1 + 2 * width) * longest_s:
            return (
                f"{done:,} frames came out of a trial of {one.duration_s:g} s at {one.load_fps:,.0f} frames/s that "
                "lost no more, though that is above the bounds"
            )
    for load in sorted({one.load_fps for one in trials}):
        there = [goal.is_met_by(one) for one in trials if one.load_fps == load and not one.limited_by]
        good = sum(there)
        bad = len(there) - good
        if lower is not None and load < lower * (1 - 2 * width) and _counts(bad, there):
            return f"{bad} of {len(there)} trials at {load:,.0f} frames/s lost more, though that is below the bounds"
        if upper is not None and load > upper * (1 + 2 * width) and _counts(good, there):
            return (
                f"{good} of {len(there)} trials at {load:,.0f} frames/s lost no more, though that is above the bounds"
            )
    return ""


def _without_repetition(key: str) -> str:
    """What repeated searches have in common."""
    *where, _, goal = key.rsplit("/", 2)
    return "/".join((*where, goal))


def _disagreement(same: Sequence[SearchResult]) -> str:
    """What speaks against one limit in repeated searches; empty: nothing, or they are not all there."""
    known = [one for one in same if one.state not in (SearchState.SEARCHING, SearchState.FAILED)]
    if len(known) < 2:
        return ""
    width = known[0].width
    # Each is right within its own width; one that is "≥" has no end, and "<" no beginning.
    ends = [inf if one.state is SearchState.AT_LEAST else (one.upper_fps or 0.0) * (1 + width) for one in known]
    begins = [(one.lower_fps or 0.0) * (1 - width) for one in known]
    if max(begins) <= min(ends):
        return ""
    limits = [one.lower_fps or 0.0 for one in known]
    return f"{len(known)} searches ended between {min(limits):,.0f} and {max(limits):,.0f} frames/s"


def _counts(contrary: int, trials: Sequence[bool]) -> bool:
    """Whether so many trials that say otherwise are more than a passing disturbance."""
    return contrary >= 2 and _CONTRARY_PART * len(trials) <= contrary
