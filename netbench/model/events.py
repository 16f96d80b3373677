"""The events of a campaign, as sent to the console, the log and tests."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from netbench.model.campaign import EndedSweep
from netbench.model.search import SearchResult


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `kind` is its name in events.jsonl, its fields are the details there."""

    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class CampaignStarted(Event):
    """Trials are about to be measured. `planned` and `expected_s` are None where results decide the next trials."""

    kind = "campaign-started"
    topology: str
    profile: str
    planned: int | None
    done: int
    expected_s: float | None
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class CampaignFinished(Event):
    """All trials are measured."""

    kind = "campaign-finished"
    trials: int


@dataclass(frozen=True, slots=True)
class CampaignStopped(Event):
    """The campaign was stopped, or the testbed broke; the results so far are kept."""

    kind = "campaign-stopped"
    why: str


@dataclass(frozen=True, slots=True)
class CampaignWaits(Event):
    """The campaign starts once this other netbench has ended and no other one measures on this machine."""

    kind = "campaign-waits"
    pid: int
    topology: str


@dataclass(frozen=True, slots=True)
class CampaignDisturbed(Event):
    """Something on this machine disturbs the measurements, such as another netbench; `text` describes the effect."""

    kind = "campaign-disturbed"
    text: str


@dataclass(frozen=True, slots=True)
class UutReady(Event):
    """A UUT forwards."""

    kind = "uut-ready"
    uut: str


@dataclass(frozen=True, slots=True)
class UutFailed(Event):
    """A UUT was given up: the rest of its trials on this boot is not measured."""

    kind = "uut-failed"
    uut: str
    why: str


@dataclass(frozen=True, slots=True)
class MachineGone(Event):
    """A machine of the testbed is gone, while a UUT was up or being brought up."""

    kind = "machine-gone"
    uut: str
    why: str


@dataclass(frozen=True, slots=True)
class NeighboursReady(Event):
    """These neighbours are up beside a UUT."""

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
    """A sweep ended early because of `stop_when_saturated`: its skipped loads are not measured."""

    kind = "sweep-ended"
    sweep: EndedSweep


@dataclass(frozen=True, slots=True)
class BoundsNarrowed(Event):
    """A search has narrowed the bounds of one of its goals."""

    kind = "bounds-narrowed"
    found: SearchResult


@dataclass(frozen=True, slots=True)
class CapturesFull(Event):
    """Captures are no longer kept: with those of this trial, they would exceed their limit, in MiB."""

    kind = "captures-full"
    key: str
    limit_mib: int


@dataclass(frozen=True, slots=True)
class WarmUpTrialStored(Event):
    """A warm-up trial of a boot was measured and stored; numbers are from 1 on each boot."""

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
    """A trial was measured; whether it is kept or repeated follows."""

    kind = "trial-finished"
    key: str
    index: int
    attempt: int
    verdict: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrialStored(Event):
    """The result of a trial was stored, with the kinds of its reasons.

    Rates are those of all sources together in Mbit/s (L1), None where unknown. `flows` are the figures of flows as
    text, empty for frames. `left_s` is the expected time to the end of the campaign in seconds. `expected` is the
    expected number of trials then, where results decide it.
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
    flows: str = ""


@dataclass(frozen=True, slots=True)
class TrialRejudged(Event):
    """Frames that a stored trial counted as lost arrived later: its result was changed."""

    kind = "trial-rejudged"
    key: str
    index: int
    verdict: str


class Observer(Protocol):
    """A receiver of events."""

    def on(self, event: Event) -> None:
        """Handle an event."""
