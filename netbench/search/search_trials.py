"""The trials of one search, read from the stored results: a missing one is the next trial to run."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from netbench.model.frame_size import FrameSize
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import ReasonKind
from netbench.model.workload import Workload
from netbench.plan.schedule import CampaignPlan
from netbench.search.methods import GivenUpError, Measured, Method, rounded
from netbench.search.search_options import BACK_TO_BACK, RESET, SYSTEM_RECOVERY

# A rate is sustained if the sources sustain it twice in a row; after so many rates they sustain none.
TIMES_SUSTAINED, MOST_RATES = 2, 8
# A trial that the tester disturbed is run so many times in all. After that its load counts as limited by the tester.
# After so many such loads in a row the search is given up.
_MOST_INCONCLUSIVE, _MOST_LIMITED = 3, 12
# After so many trials without counts in a row a search is given up: the UUT does not come up, or dies each time.
_MOST_UNMEASURED = 3


@dataclass(frozen=True, slots=True)
class SearchCell:
    """The parameters of one search: of a rate of frames, or of a workload."""

    uut: str
    scenario: str
    sources: int
    traffic: FrameSize | Workload
    repetition: int


@dataclass(slots=True)
class Progress:
    """The trials so far: their number, the number at each load, and the number in which the UUT failed."""

    trials: int = 0
    times: Counter[str] = field(default_factory=Counter)
    failures: int = 0


class MissingTrialError(Exception):
    """The trial `spec` has no result yet; it is next."""

    def __init__(self, spec: TrialSpec) -> None:
        super().__init__(spec.key)
        self.spec = spec


# The measurement of a trial, or the reason why it measured nothing at all.
ReadTrial = Callable[[TrialResult], Measured | str]


class SearchTrials:
    """The trials of one search; `counted` are those that count for its bounds.

    `result_of` returns the result of a trial by its key; None if it is missing. `read` measures it, at rates in the
    `unit`. `progress` is that before this search, and is advanced. Every method raises MissingTrialError with the trial
    to run if its result is missing, and GivenUpError after several trials in a row that measured nothing.
    """

    def __init__(
        self,
        plan: CampaignPlan,
        method: Method,
        cell: SearchCell,
        result_of: Callable[[str], TrialResult | None],
        progress: Progress,
        read: ReadTrial,
        unit: LoadKind = LoadKind.FRAME_RATE,
    ) -> None:
        self.counted: list[Measured] = []
        self._plan, self._method, self._cell, self._result_of = plan, method, cell, result_of
        self._progress, self._read, self._unit = progress, read, unit
        self._limited: set[float] = set()  # successive loads at which the tester was the limit
        self._unmeasured = 0

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Keep the trials of the block out of the search."""
        counted = list(self.counted)
        try:
            yield
        finally:
            self.counted = counted

    def steady(self, seconds: float, rate: float) -> Measured:
        """Return a trial at one load; inconclusive trials are repeated, and after several the tester is the limit.

        GivenUpError after several loads in a row at which the tester was the limit.
        """
        trial = self._at_rate(seconds, rate)
        self._limited = self._limited | {trial.load} if trial.limited_by else set()
        if len(self._limited) == _MOST_LIMITED:
            raise GivenUpError(f"the tester limits the search: {trial.limited_by}")
        return trial

    def closed_loop(self, seconds: float) -> Measured:
        """Return a trial in which clients wait for their responses; it is repeated while it is inconclusive."""
        return self._repeated(seconds, Load(LoadKind.MAX))

    def burst(self, frames: int, fps: float) -> Measured:
        """Send exactly so many frames of each stream at one rate."""
        fps = rounded(fps)
        return self.measure(frames / fps, Load.of_fps(fps), benchmark=BACK_TO_BACK)

    def reduced(self, first: tuple[float, float], then: tuple[float, float]) -> Measured:
        """Send at one rate, in frames/s, for so many seconds, and immediately afterwards at another rate."""
        frames, seconds = round(first[0] * first[1]) + round(then[0] * then[1]), first[1] + then[1]
        return self.measure(seconds, Load.of_fps(rounded(frames / seconds)), first=first, benchmark=SYSTEM_RECOVERY)

    def restarted(self, seconds: float, fps: float, restart_at_s: float) -> Measured:
        """Send at a steady load and restart the UUT after so many seconds."""
        return self.measure(seconds, Load.of_fps(rounded(fps)), benchmark=RESET, restart_at_s=restart_at_s)

    def sustained(self, fps: float, seconds: float, part: float) -> Measured:
        """Return a trial at this rate, or at the highest lower rate that the sources sustain for so many seconds.

        Each miss reduces the rate to `part` of the offered rate. These trials are not part of the search. GivenUpError
        if the sources sustain none of several rates.
        """
        times = rates = 0
        with self.apart():
            while times < TIMES_SUSTAINED:
                trial = self._at_rate(seconds, fps)
                if is_too_fast(trial):
                    trial = nearer(trial, self._at_rate(seconds, fps))
                if not trial.is_short:
                    times += 1
                elif (rates := rates + 1) < MOST_RATES:
                    times, fps = 0, rounded(part * min(fps, trial.offered_load))
                else:
                    raise GivenUpError(f"the sources sustain no rate for {seconds:g} s: {trial.limited_by}")
        return trial

    def _at_rate(self, seconds: float, rate: float) -> Measured:
        return self._repeated(seconds, Load(self._unit, rounded(rate)))

    def _repeated(self, seconds: float, load: Load) -> Measured:
        """Return a trial at one load, repeated while it is inconclusive; discarded attempts count as repetitions."""
        attempts = 0
        while True:
            trial = self.measure(seconds, load)
            attempts += trial.attempts
            if not trial.inconclusive or attempts >= _MOST_INCONCLUSIVE:
                return trial

    def measure(
        self,
        seconds: float,
        load: Load,
        *,
        first: tuple[float, float] | None = None,
        benchmark: str = "",
        restart_at_s: float | None = None,
    ) -> Measured:
        """Return a trial from the results; MissingTrialError with the trial to run if it is missing."""
        # Late sources may exceed the rate by no more than the goals tolerate.
        catch_up = max(self._method.width / 2, *(goal.loss_ratio or 0.0 for goal in self._method.goals))
        progress = self._progress
        while True:
            progress.times[str(load)] += 1
            spec = self._plan.trial(
                self._cell.uut,
                self._plan.profile.scenario(self._cell.scenario),
                self._cell.traffic,
                load,
                progress.times[str(load)],
                index=progress.trials,
                sources=self._cell.sources,
                boot=progress.failures + 1,  # a failed UUT is started again, without a limit
                duration_s=seconds,
                first=first,
                benchmark=benchmark,
                restart_at_s=restart_at_s,
                catch_up=catch_up if load.kind is LoadKind.FRAME_RATE and not benchmark else None,
            )
            result = self._result_of(spec.key)
            if result is None:
                raise MissingTrialError(spec)
            progress.trials += 1
            progress.failures += any(reason.kind is ReasonKind.UUT_FAILED for reason in result.reasons)
            measured = self._read(result)
            if isinstance(measured, Measured):
                self._unmeasured = 0
                self.counted.append(measured)
                return measured
            self._unmeasured += 1
            if self._unmeasured == _MOST_UNMEASURED:
                raise GivenUpError(measured)


def is_too_fast(trial: Measured) -> bool:
    """Return True if the sources did not offer the load although nothing disturbed them."""
    return trial.is_short and not trial.inconclusive


def nearer(trial: Measured, other: Measured) -> Measured:
    """Return the one of two trials at one load whose sources offered more of it."""
    return max(trial, other, key=lambda attempt: (not attempt.limited_by, attempt.offered_load))
