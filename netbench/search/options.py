"""How a profile describes a search."""

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from netbench.model.fields import LoadField, Percent, Seconds, listed
from netbench.model.frame_mix import FrameSize
from netbench.model.profile import MAX_SECONDS, Count
from netbench.model.units import Load, LoadKind
from netbench.search.bisection import Bisection
from netbench.search.loss_rate import LossRate
from netbench.search.method import Goal, Method
from netbench.search.sweep import Sweep

_LOWEST_PART = 0.001
# With these, 99.7 % of the searches of benchmarks/search.py on noisy UUTs are right.
_INITIAL_S, _DURATION_SUM_S = 0.2, 5.0
_FIRST_PART, _FIRST_LEAST_S = 0.1, 0.1
# Trials at one load of a search for a maximum, of which the most decide: two of three.
_FEWEST = 3

# The tests of RFC 2544 that follow that of throughput: sections 26.2 to 26.6.
LATENCY, FRAME_LOSS_RATE, BACK_TO_BACK = "latency", "frame-loss-rate", "back-to-back"
SYSTEM_RECOVERY, RESET = "system-recovery", "reset"
Test = Literal["latency", "frame-loss-rate", "back-to-back", "system-recovery", "reset"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _in_order(tests: tuple[Test, ...]) -> tuple[Test, ...]:
    """As the RFC has them."""
    return tuple(sorted(set(tests), key=get_args(Test).index))


class LatencyOptions(_Strict):
    """Section 26.2: how long a trial is, and how many there are."""

    duration: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] = 120.0
    times: Count = 20


class BackToBackOptions(_Strict):
    """Section 26.4 and RFC 9004: how long the longest burst is that is tried, and how many searches there are."""

    longest: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] = 2.0
    times: Count = 50


class RecoveryOptions(_Strict):
    """Section 26.5: how long the overload is, how long the reduced rate after it, and how many trials there are."""

    duration: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] = 60.0
    reduced: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] = 30.0
    times: Count = 5


class ResetOptions(_Strict):
    """Section 26.6: how long frames are sent, how long before the reset, and how many trials there are."""

    duration: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] = 60.0
    before: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] = 5.0
    times: Count = 1

    @model_validator(mode="after")
    def _comes_back(self) -> Self:
        if self.before >= self.duration:
            raise ValueError("before: less than the duration, or nothing is sent after the reset")
        return self


class SearchOptions(_Strict):
    """How the highest load is looked for. Trials that count are as long as the profile's `duration`.

    `method`: `mlrsearch`, for several loss ratios at once; `rfc2544`, by halving, with the first frame lost ending a
    trial's claim; `tst009`, likewise, but a trial with loss is made again, `verified` times in all; `loss-rate`,
    RFC 2544's falling loads until two in a row lose nothing; `sweep`, the most that comes out at any of `shares` of the
    highest load. `loss` are the loss ratios that goals accept: 0 is NDR.
    `width` is how far apart bounds may be in the end, as a part of the upper one. `highest` and `lowest` limit the
    loads of each stream: `max` is what the sources can be paced at, as a first trial tells; left out, the lowest is a
    thousandth of the highest, or where that is less the load of which `width` is a frame in a trial. `initial` and
    `duration_sum` are of mlrsearch: how long its first trials are, and for how long a load is measured in all, of which
    `exceed` may have more loss. Once the search is over, delays are measured at these parts, `delay_at`, of the load
    that was found for the first of `loss`, and the other `tests` of RFC 2544 are made, in the order of the RFC; and
    what comes out under overload is measured, at the part `overload` of the upper bound, which is more than all of it.
    """

    method: Literal["mlrsearch", "rfc2544", "tst009", "loss-rate", "sweep"] = "mlrsearch"
    loss: Annotated[tuple[Annotated[Percent, Field(lt=1)], ...], BeforeValidator(listed), Field(min_length=1)] = (0.0,)
    width: Annotated[Percent, Field(ge=0.0001, le=0.5)] = 0.005
    highest: LoadField = Load(LoadKind.MAX)
    lowest: LoadField | None = None
    initial: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] | None = None
    duration_sum: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] | None = None
    exceed: Annotated[Percent, Field(lt=1)] = 0.5
    verified: Annotated[int, Field(strict=True, ge=2, le=100)] = 2
    shares: Annotated[
        tuple[Annotated[Percent, Field(gt=0, le=1)], ...], BeforeValidator(listed), Field(min_length=1)
    ] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    times: Count = 1
    delay_at: Annotated[tuple[Annotated[Percent, Field(gt=0, le=1)], ...], BeforeValidator(listed)] = ()
    tests: Annotated[tuple[Test, ...], BeforeValidator(listed), AfterValidator(_in_order)] = ()
    latency: LatencyOptions = LatencyOptions()
    back_to_back: BackToBackOptions = BackToBackOptions()
    recovery: RecoveryOptions = RecoveryOptions()
    reset: ResetOptions = ResetOptions()
    overload: Annotated[Percent, Field(gt=1, le=100)] | None = None

    @model_validator(mode="after")
    def _goes_together(self) -> "SearchOptions":
        if len(set(self.loss)) < len(self.loss):
            raise ValueError("loss: a ratio is there twice")
        if self.method in ("rfc2544", "tst009") and len(self.loss) > 1:
            raise ValueError(f"loss: method {self.method} has one ratio; mlrsearch searches for several")
        if self.method in ("rfc2544", "loss-rate") and self.loss != (0.0,):
            raise ValueError("loss: RFC 2544 (section 26) knows no loss but 0; take method tst009 or mlrsearch")
        if LoadKind.OF_MAXIMUM in {load.kind for load in (self.lowest, self.highest) if load}:
            raise ValueError("lowest, highest: a load such as 1000fps; the maximum is what is searched for")
        if self.lowest is not None and self.lowest.kind is LoadKind.MAX:
            raise ValueError("lowest: a load such as 1000fps, not max")
        if self.tests and (self.loss[0] > 0 or self.method in ("loss-rate", "sweep")):
            raise ValueError(
                "tests: those of RFC 2544 begin with the throughput without loss; take method rfc2544, tst009 or "
                "mlrsearch, and 0% as the first of loss"
            )
        return self

    def method_of(self, trial_s: float) -> Method:
        """The search itself, with trials of this length, in seconds."""
        goals = [Goal(goal_name(self.method, ratio), ratio, self.width / 2) for ratio in self.loss]
        match self.method:
            case "mlrsearch":
                from netbench.search.mlrsearch import MlrSearch  # noqa: PLC0415  # half a second, which few runs need

                return MlrSearch(
                    goals,
                    self.width,
                    initial_s=min(self.initial or _INITIAL_S, trial_s),
                    final_s=trial_s,
                    duration_sum_s=max(self.duration_sum or _DURATION_SUM_S, trial_s),
                    exceed_ratio=self.exceed,
                )
            case "sweep":
                return Sweep(self.shares, trial_s=trial_s, times=self.times)
            case "loss-rate":
                return LossRate(goals[0], trial_s=trial_s)
            case "rfc2544":
                return Bisection(goals[0], self.width, trial_s=trial_s)
            case "tst009":
                return Bisection(goals[0], self.width, trial_s=trial_s, verified=self.verified)

    def first_s(self, trial_s: float) -> float:
        """How long the trial takes that tells how fast sources are, in seconds."""
        return min(trial_s, max(_FIRST_LEAST_S, _FIRST_PART * trial_s))

    def held_s(self, trial_s: float) -> float:
        """For how many seconds a test needs the highest rate held, which is more than to try it; 0: none does."""
        lasting = {FRAME_LOSS_RATE: trial_s, BACK_TO_BACK: self.back_to_back.longest}
        return max((seconds for test, seconds in lasting.items() if test in self.tests), default=0.0)

    def lowest_of(self, highest: float, frame_size: FrameSize, link_bps: float, trial_s: float) -> float:
        """The lowest load that is tried, in frames/s of each stream, below the highest.

        A thousandth of what a source can do may be more than a guest forwards whose CPU is emulated.
        """
        lowest = None if self.lowest is None else self.lowest.fps(frame_size, link_bps)
        return min(lowest or min(highest * _LOWEST_PART, 1 / (self.width * trial_s)), highest / 2)


class MaximaOptions(SearchOptions):
    """How a search finds the maximum that loads are a share of: in seconds, coarsely, with one loss ratio.

    What counts is the most that comes out, at the highest load of which no more is lost, or under overload. Where a UUT
    breaks down there, that is at most by that ratio less than what it forwards without loss. RFC 2544's methods have a
    ratio of 0.
    """

    loss: Annotated[
        tuple[Annotated[Percent, Field(lt=1)], ...], BeforeValidator(listed), Field(min_length=1, max_length=1)
    ] = (0.05,)
    width: Annotated[Percent, Field(ge=0.0001, le=0.5)] = 0.02
    duration_sum: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] | None = 2.0
    delay_at: Annotated[tuple[float, ...], Field(max_length=0)] = ()
    tests: Annotated[tuple[Test, ...], Field(max_length=0)] = ()
    overload: Annotated[Percent, Field(gt=1, le=100)] | None = 1.5

    def method_of(self, trial_s: float) -> Method:
        """With trials short enough for several to decide at a load, as far as `duration_sum` allows it."""
        if self.method == "mlrsearch":
            trial_s = min(trial_s, max(_INITIAL_S, (self.duration_sum or _DURATION_SUM_S) / _FEWEST))
            enough = self.model_copy(update={"duration_sum": max(self.duration_sum or 0.0, _FEWEST * trial_s)})
            return SearchOptions.method_of(enough, trial_s)
        return super().method_of(trial_s)

    @model_validator(mode="before")
    @classmethod
    def _without_loss_by_rfc_2544(cls, data: object) -> object:
        if isinstance(data, dict) and data.get("method") in ("rfc2544", "loss-rate"):
            return {"loss": ["0%"], **data}
        return data


def goal_name(method: str, loss_ratio: float) -> str:
    """What people call the highest load with no more loss than this: NDR, PDR with its ratio, throughput."""
    if method == "loss-rate":
        return "no loss (RFC 2544)"
    if method in ("rfc2544", "tst009"):
        named = "RFC 2544" if method == "rfc2544" else "TST 009"
        return f"throughput ({named})" if not loss_ratio else f"throughput ({named}, loss {100 * loss_ratio:.10g} %)"
    return "NDR" if not loss_ratio else f"PDR {100 * loss_ratio:.10g} %"
