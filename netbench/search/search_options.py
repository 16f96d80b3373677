"""The search options of a profile."""

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from netbench.errors import KeyedError
from netbench.model.fields import LoadField, Percent, Seconds, listed
from netbench.model.frame_size import FrameSize
from netbench.model.profile import MAX_SECONDS, Count
from netbench.model.units import Load, LoadKind
from netbench.search.methods import Bisection, Goal, LossRate, Method, SweepSearch

_LOWEST_PART = 0.001
# With these, 99.7 % of the searches of benchmarks/search.py on noisy UUTs are correct.
_INITIAL_S, _DURATION_SUM_S = 0.2, 5.0
_FIRST_PART, _FIRST_LEAST_S = 0.1, 0.1
# Trials at one load of a search for a maximum; the majority decides: two of three.
_TRIALS_PER_LOAD = 3

# The tests of RFC 2544 after the throughput test: sections 26.2 to 26.6.
LATENCY, FRAME_LOSS_RATE, BACK_TO_BACK = "latency", "frame-loss-rate", "back-to-back"
SYSTEM_RECOVERY, RESET = "system-recovery", "reset"
Test = Literal["latency", "frame-loss-rate", "back-to-back", "system-recovery", "reset"]


def _in_order(tests: tuple[Test, ...]) -> tuple[Test, ...]:
    """Return the tests in the order of the RFC, each once."""
    return tuple(sorted(set(tests), key=get_args(Test).index))


Duration = Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)]
LossRatios = Annotated[tuple[Annotated[Percent, Field(lt=1)], ...], BeforeValidator(listed), Field(min_length=1)]
Shares = Annotated[tuple[Annotated[Percent, Field(gt=0, le=1)], ...], BeforeValidator(listed)]
Width = Annotated[Percent, Field(ge=0.0001, le=0.5)]
Overload = Annotated[Percent, Field(gt=1, le=100)] | None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LatencyOptions(_Strict):
    """RFC 2544, section 26.2: the duration and the number of trials."""

    duration: Duration = 120.0
    """Sending time of each trial."""
    times: Count = 20
    """Number of trials."""


class BackToBackOptions(_Strict):
    """RFC 2544, section 26.4, and RFC 9004: the duration of the longest burst and the number of searches."""

    longest: Duration = 2.0
    """Duration of the longest burst."""
    times: Count = 50
    """Number of searches."""


class RecoveryOptions(_Strict):
    """RFC 2544, section 26.5: the durations of the overload and of the reduced rate, and the number of trials."""

    duration: Duration = 60.0
    """Duration of the overload."""
    reduced: Duration = 30.0
    """Duration of the reduced rate."""
    times: Count = 5
    """Number of trials."""


class ResetOptions(_Strict):
    """RFC 2544, section 26.6: the duration of sending, the time before the reset, and the number of trials."""

    duration: Duration = 60.0
    """Sending time."""
    before: Duration = 5.0
    """Time before the UUT restarts."""
    times: Count = 1
    """Number of trials."""

    @model_validator(mode="after")
    def _comes_back(self) -> Self:
        if self.before >= self.duration:
            raise KeyedError("before", "less than the duration, or nothing is sent after the reset")
        return self


class SearchOptions(_Strict):
    """Options of the search for the highest load. Trials that count are as long as the profile's `duration`.

    `method`: `mlrsearch` searches for several loss ratios at once. `rfc2544` halves the interval; a trial fails at the
    first lost frame. `tst009` does the same, but makes a trial with loss up to `verified` times in all. `loss-rate`
    measures RFC 2544's falling loads until two in a row lose nothing. `sweep` finds the highest forwarded rate at any
    of `shares` of the highest load.
    `loss`: the loss ratios of the goals; 0 is NDR.
    `width`: the allowed distance of the final bounds, as a part of the upper bound.
    `highest` and `lowest` limit the load of each stream. `max` is the rate at which the sources can be paced, found by
    a calibration. The default of `lowest` is a thousandth of the highest load, or less: the load at which `width` is
    one frame in a trial.
    `initial` and `duration_sum` (mlrsearch): the duration of its first trials, and the total time at one load. The part
    `exceed` of that time may have more loss.
    After the search, delays are measured at the parts `delay_at` of the load found for the first of `loss`. Then the
    other `tests` of RFC 2544 run in the order of the RFC. Last, the throughput under overload is measured at `overload`
    times the upper bound (more than 100 %).
    """

    method: Literal["mlrsearch", "rfc2544", "tst009", "loss-rate", "sweep"] = "mlrsearch"
    """Search method: MLRsearch, the binary search of RFC 2544, that of TST 009, the frame loss rates, or a sweep."""
    loss: LossRatios = (0.0,)
    """Loss ratios of the goals. Several with mlrsearch; only 0% with rfc2544 and loss-rate."""
    width: Width = 0.005
    """Allowed distance of the final bounds, as a part of the upper one."""
    highest: LoadField = Load(LoadKind.MAX)
    """Highest load of each stream; `max`: the calibrated paced rate."""
    lowest: LoadField | None = None
    """Lowest load, at most half of the highest. Default: a thousandth of it, or less."""
    initial: Duration | None = None
    """mlrsearch: duration of the first trials. Default: 200 ms."""
    duration_sum: Duration | None = None
    """mlrsearch: total time at a load that counts. Default: 5 s."""
    exceed: Annotated[Percent, Field(lt=1)] = 0.5
    """mlrsearch: part of that time that may have more loss."""
    verified: Annotated[int, Field(strict=True, ge=2, le=100)] = 2
    """tst009: lossy trials in a row that make a load too high."""
    shares: Annotated[Shares, Field(min_length=1)] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    """sweep: loads as parts of the highest."""
    times: Count = 1
    """sweep: repetitions of each load."""
    delay_at: Shares = ()
    """Parts of the limit at which delay is measured afterwards."""
    tests: Annotated[tuple[Test, ...], BeforeValidator(listed), AfterValidator(_in_order)] = ()
    """Tests of RFC 2544 that follow the search."""
    latency: LatencyOptions = LatencyOptions()
    """Options of that test."""
    back_to_back: BackToBackOptions = BackToBackOptions()
    """Options of that test."""
    recovery: RecoveryOptions = RecoveryOptions()
    """Options of that test."""
    reset: ResetOptions = ResetOptions()
    """Options of that test."""
    overload: Overload = None
    """Part of the upper bound, above 100%, at which throughput under overload is measured."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if len(set(self.loss)) < len(self.loss):
            raise KeyedError("loss", "a ratio is defined twice")
        if self.method in ("rfc2544", "tst009") and len(self.loss) > 1:
            raise KeyedError("loss", f"method {self.method} has one ratio; mlrsearch searches for several")
        if self.method in ("rfc2544", "loss-rate") and self.loss != (0.0,):
            raise KeyedError("loss", "RFC 2544 (section 26) knows no loss but 0; take method tst009 or mlrsearch")
        if LoadKind.OF_MAXIMUM in {load.kind for load in (self.lowest, self.highest) if load}:
            raise ValueError("lowest, highest: a load such as 1000fps; the maximum is what is searched for")
        if self.lowest is not None and self.lowest.kind is LoadKind.MAX:
            raise KeyedError("lowest", "a load such as 1000fps, not max")
        if self.tests and (self.loss[0] > 0 or self.method in ("loss-rate", "sweep")):
            raise KeyedError(
                "tests",
                "those of RFC 2544 begin with the throughput without loss; take method rfc2544, tst009 or "
                "mlrsearch, and 0% as the first of loss",
            )
        return self

    def method_of(self, trial_s: float) -> Method:
        """Return the search method, with trials of this duration in seconds."""
        goals = [Goal(goal_name(self.method, ratio), ratio, self.width / 2) for ratio in self.loss]
        match self.method:
            case "mlrsearch":
                from netbench.search.mlrsearch import MlrSearch  # noqa: PLC0415  # takes 0.5 s, few runs need it

                return MlrSearch(
                    goals,
                    self.width,
                    initial_s=min(self.initial or _INITIAL_S, trial_s),
                    final_s=trial_s,
                    duration_sum_s=max(self.duration_sum or _DURATION_SUM_S, trial_s),
                    exceed_ratio=self.exceed,
                )
            case "sweep":
                return SweepSearch(self.shares, trial_s=trial_s, times=self.times)
            case "loss-rate":
                return LossRate(goals[0], trial_s=trial_s)
            case "rfc2544":
                return Bisection(goals[0], self.width, trial_s=trial_s)
            case "tst009":
                return Bisection(goals[0], self.width, trial_s=trial_s, verified=self.verified)

    def first_s(self, trial_s: float) -> float:
        """Return the duration of a trial that measures the rate of the sources, in seconds."""
        return min(trial_s, max(_FIRST_LEAST_S, _FIRST_PART * trial_s))

    def sustained_s(self, trial_s: float) -> float:
        """Return for how many seconds a test needs the highest rate sustained, which a calibration does not show.

        0 if no test needs it.
        """
        seconds_of = {FRAME_LOSS_RATE: trial_s, BACK_TO_BACK: self.back_to_back.longest}
        return max((seconds for test, seconds in seconds_of.items() if test in self.tests), default=0.0)

    def lowest_of(self, highest: float, frame_size: FrameSize, link_bps: float, trial_s: float) -> float:
        """Return the lowest load of the search, in frames/s of each stream; it is below the highest load.

        By default this is a thousandth of the highest load, or the load at which the width is one frame in a trial: a
        thousandth of the rate of a source may be more than a guest with an emulated CPU forwards.
        """
        lowest = None if self.lowest is None else self.lowest.fps(frame_size, link_bps)
        return min(lowest or min(highest * _LOWEST_PART, 1 / (self.width * trial_s)), highest / 2)


class MaximaOptions(SearchOptions):
    """Options of the short, coarse search for the maximum to which relative loads refer, with one loss ratio.

    The maximum is the highest forwarded rate: at the highest load that loses no more than `loss`, or under overload. If
    a UUT breaks down under overload, the maximum is less than its rate without loss by at most that ratio. RFC 2544's
    methods have a ratio of 0.
    """

    loss: Annotated[
        tuple[Annotated[Percent, Field(lt=1)], ...], BeforeValidator(listed), Field(min_length=1, max_length=1)
    ] = (0.05,)
    width: Width = 0.02
    duration_sum: Duration | None = 2.0
    delay_at: Annotated[tuple[float, ...], Field(max_length=0)] = ()
    tests: Annotated[tuple[Test, ...], Field(max_length=0)] = ()
    overload: Overload = 1.5

    def method_of(self, trial_s: float) -> Method:
        """Return the search method, with trials short enough for several at each load within `duration_sum`."""
        if self.method == "mlrsearch":
            trial_s = min(trial_s, max(_INITIAL_S, (self.duration_sum or _DURATION_SUM_S) / _TRIALS_PER_LOAD))
            enough = self.model_copy(update={"duration_sum": max(self.duration_sum or 0.0, _TRIALS_PER_LOAD * trial_s)})
            return SearchOptions.method_of(enough, trial_s)
        return super().method_of(trial_s)

    @model_validator(mode="before")
    @classmethod
    def _without_loss_by_rfc_2544(cls, data: object) -> object:
        if isinstance(data, dict) and data.get("method") in ("rfc2544", "loss-rate"):
            return {"loss": ["0%"], **data}
        return data


def goal_name(method: str, loss_ratio: float) -> str:
    """Return the usual name of the highest load with at most this loss: NDR, PDR with its ratio, or throughput."""
    if method == "loss-rate":
        return "no loss (RFC 2544)"
    if method in ("rfc2544", "tst009"):
        standard = "RFC 2544" if method == "rfc2544" else "TST 009"
        return f"throughput ({standard}{f', loss {100 * loss_ratio:.10g} %' if loss_ratio else ''})"
    return "NDR" if not loss_ratio else f"PDR {100 * loss_ratio:.10g} %"
