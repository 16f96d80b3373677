"""What happens in a campaign, as it is told to the console, the log and tests alike."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from netbench.model.campaign import EndedSweep
from netbench.model.search import SearchResult


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; `kind` is its name in events.jsonl, its fields are the details there."""

    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class CampaignStarted(Event):
    """Trials are about to be measured. `planned` and `expected_s` are None where results decide what comes next."""

    kind = "campaign-started"
    topology: str
    profile: str
    planned: int | None
    done: int
    expected_s: float | None
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class CampaignFinished(Event):
    """Everything is measured."""

    kind = "campaign-finished"
    trials: int


@dataclass(frozen=True, slots=True)
class CampaignStopped(Event):
    """It was stopped, or the testbed broke; what was measured is kept."""

    kind = "campaign-stopped"
    why: str


@dataclass(frozen=True, slots=True)
class CampaignWaits(Event):
    """It begins when another netbench that measures on this machine, and nobody else, has ended."""

    kind = "campaign-waits"
    pid: int
    topology: str


@dataclass(frozen=True, slots=True)
class CampaignDisturbed(Event):
    """Something on this machine disturbs the measurements, such as another netbench; `text` says what that means."""

    kind = "campaign-disturbed"
    text: str


@dataclass(frozen=True, slots=True)
class UutReady(Event):
    """A UUT forwards."""

    kind = "uut-ready"
    uut: str


@dataclass(frozen=True, slots=True)
class UutFailed(Event):
    """A UUT was given up: what is left of its trials on this boot is not measured."""

    kind = "uut-failed"
    uut: str
    why: str


@dataclass(frozen=True, slots=True)
class MachineGone(Event):
    """A machine that the testbed stands on is gone, while a UUT was there or being brought up."""

    kind = "machine-gone"
    uut: str
    why: str


@dataclass(frozen=True, slots=True)
class NeighboursReady(Event):
    """These neighbours are there beside a UUT."""

    kind = "neighbours-ready"
    uut: str
    neighbours: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NeighboursFailed(Event):
    """These neighbours were given up: trials on this boot that need them are not measured."""

    kind = "neighbours-failed"
    uut: str
    neighbours: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class SweepEnded(Event):
    """A sweep is over before its end, as of `stop_when_saturated`: what it leaves out is not measured."""

    kind = "sweep-ended"
    sweep: EndedSweep


@dataclass(frozen=True, slots=True)
class BoundsNarrowed(Event):
    """A search knows more of one of its goals than before."""

    kind = "bounds-narrowed"
    found: SearchResult


@dataclass(frozen=True, slots=True)
class CapturesFull(Event):
    """Captures are not kept any more: those of this trial would have made them more than they may be, in MiB."""

    kind = "captures-full"
    key: str
    limit_mib: int


@dataclass(frozen=True, slots=True)
class WarmUpTrialStored(Event):
    """A warm-up trial of a boot was made, and is on disk; numbers are from 1 on each boot."""

    kind = "warm-up-trial-stored"
    uut: str
    boot: int
    number: int
    verdict: str


@dataclass(frozen=True, slots=True)
class NoiseFloorMeasured(Event):
    """One fixed trial was repeated: 95 % of its repeats are within their mean ± `half_width`, a ratio of that mean."""

    kind = "noise-floor-measured"
    half_width: float
    repeats: int
    trial: str


@dataclass(frozen=True, slots=True)
class TrialStarted(Event):
    """A trial begins; attempts are counted from 1."""

    kind = "trial-started"
    key: str
    index: int
    attempt: int


@dataclass(frozen=True, slots=True)
class TrialFinished(Event):
    """It was made; whether it is kept or made again follows."""

    kind = "trial-finished"
    key: str
    index: int
    attempt: int
    verdict: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrialStored(Event):
    """Its result is on disk: rates of all sources together in Mbit/s (L1), None where unknown, the kinds of its
    reasons, in how many seconds the campaign should be over, about, and how many trials it should have then, where
    results decide that.
    """

    kind = "trial-stored"
    key: str
    index: int
    verdict: str
    reasons: tuple[str, ...] = ()
    offered_mbps: float | None = None
    throughput_mbps: float | None = None
    loss_ratio: float | None = None
    left_s: float | None = None
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class TrialRejudged(Event):
    """Frames that a stored trial counts as lost arrived later: its result was changed."""

    kind = "trial-rejudged"
    key: str
    index: int
    verdict: str


class Observer(Protocol):
    """Anything that wants to know."""

    def on(self, event: Event) -> None:
        """Take note of an event."""
