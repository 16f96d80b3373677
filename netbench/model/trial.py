"""A trial as planned and as measured."""

from dataclasses import dataclass, field

from netbench.model.counts import HopCount, StreamCounts
from netbench.model.units import Load
from netbench.model.verdict import Reason, Verdict, worst


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """One measurement of the plan: UUT × scenario × streams × frame size × intended load × repetition."""

    index: int  # position in the plan, from 0
    uut: str
    scenario: str
    streams: tuple[str, ...]
    frame_size: int
    load: Load
    repetition: int  # from 1

    @property
    def key(self) -> str:
        """What identifies this trial within its campaign, whatever the order."""
        return "/".join(
            (
                self.uut,
                self.scenario,
                "+".join(self.streams),
                str(self.frame_size),
                str(self.load),
                str(self.repetition),
            )
        )


@dataclass(frozen=True, slots=True)
class NeighbourResult:
    """One neighbour over one trial: what it did, the counts of its own streams, and its CPU time.

    `frame_size` is that of its own frames, None when it forwards none. `cpu_s` is in seconds by whose it is, as
    Reading has it, and `load`: what the processes that make up its load used, as its own kernel counts it.
    """

    name: str
    activity: str
    frame_size: int | None = None
    streams: tuple[StreamCounts, ...] = ()
    hops: tuple[HopCount, ...] = ()  # those that do not tell streams apart
    cpu_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial as measured: counts of each stream in the order of the spec, and the reasons against it.

    `lifetime` numbers the times that guests were brought up in a campaign, from 1: trials of the same one were measured
    on the same boot of their UUT. `cpu_s` is CPU time over the trial by whose it is: as Reading has it, and `machine`,
    all that the machine of the UUT did.
    """

    spec: TrialSpec
    attempt: int  # from 1; the attempt that was kept
    started_ns: int  # CLOCK_REALTIME
    streams: tuple[StreamCounts, ...]
    reasons: tuple[Reason, ...]
    steps_s: dict[str, float]  # how long each step of the trial took, in seconds
    hops: tuple[HopCount, ...] = ()  # those that do not tell streams apart
    cpu_s: dict[str, float] = field(default_factory=dict)
    neighbours: tuple[NeighbourResult, ...] = ()
    lifetime: int = 0  # 0: unknown, or never brought up

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its reasons; valid without any."""
        return worst([reason.kind.verdict for reason in self.reasons])
