"""Verdicts on a trial and the typed reasons behind them; warnings about a whole campaign."""

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """How reliable a trial is, best first."""

    VALID = "valid"
    SUSPICIOUS = "suspicious"
    INVALID = "invalid"


class ReasonKind(Enum):
    """A remark about a trial, mostly why it is not simply valid. The value is what results and reports show.

    A saturated trial is valid at its offered load, which backpressure by the link keeps below the intended one. A trial
    whose load is a share of a lower bound, or less than its share, is also valid at its offered load. A tool that
    disagrees with the wire is shown with both figures: slow trials disagree more often, so that leaving them out would
    bias the others.
    """

    SATURATED = "saturated"
    OFFERED_OUT_OF_TOLERANCE = "offered-out-of-tolerance"
    UNEVEN_PACING = "uneven-pacing"
    BUFFERED = "buffered"
    GENERATOR_ERRORS = "generator-errors"
    GENERATOR_FAILED = "generator-failed"
    NOTHING_SENT = "nothing-sent"
    CAPTURE_DROPPED = "capture-dropped"
    CAPTURE_DROPS_UNKNOWN = "capture-drops-unknown"
    CAPTURE_FAILED = "capture-failed"
    CAPTURE_DISK_FULL = "capture-disk-full"
    TESTER_DROPPED = "tester-dropped"
    CLOCK_SET = "clock-set"
    LINK_DOWN = "link-down"
    LINK_CHANGED = "link-changed"
    LINK_UNKNOWN = "link-unknown"
    HOST_LOST = "host-lost"
    UUT_FAILED = "uut-failed"
    NEIGHBOUR_FAILED = "neighbour-failed"
    NEIGHBOUR_LOAD_FAILED = "neighbour-load-failed"
    NEIGHBOUR_STOPPED_EARLY = "neighbour-stopped-early"
    SOURCES_APART = "sources-apart"
    MAXIMUM_UNKNOWN = "maximum-unknown"
    SHARE_OF_LOWER_BOUND = "share-of-lower-bound"
    LESS_THAN_SHARE = "less-than-share"
    FOREIGN_PROGRAM = "foreign-program"
    FOREIGN_FRAMES = "foreign-frames"
    LATE_FRAMES = "late-frames"
    DUPLICATE_FRAMES = "duplicate-frames"
    UNEXPLAINED_FRAMES = "unexplained-frames"
    NOT_DRAINED = "not-drained"
    TESTER_LIMITED = "tester-limited"
    TESTER_DISTURBED = "tester-disturbed"
    TOOL_FAILED = "tool-failed"
    TOOL_DISAGREES = "tool-disagrees"

    @property
    def verdict(self) -> Verdict:
        """The verdict that this reason alone causes."""
        if self in _NO_HARM:
            return Verdict.VALID
        return Verdict.SUSPICIOUS if self in _ONLY_SUSPICIOUS else Verdict.INVALID


_NO_HARM = frozenset(
    {
        ReasonKind.SATURATED,
        ReasonKind.SHARE_OF_LOWER_BOUND,
        ReasonKind.LESS_THAN_SHARE,
        ReasonKind.TOOL_DISAGREES,
    }
)
_ONLY_SUSPICIOUS = frozenset(
    {
        ReasonKind.UNEVEN_PACING,
        ReasonKind.BUFFERED,
        ReasonKind.CAPTURE_DROPS_UNKNOWN,
        ReasonKind.LINK_UNKNOWN,
        ReasonKind.NEIGHBOUR_STOPPED_EARLY,
        ReasonKind.SOURCES_APART,
        ReasonKind.FOREIGN_PROGRAM,
        ReasonKind.FOREIGN_FRAMES,
        ReasonKind.LATE_FRAMES,
        ReasonKind.DUPLICATE_FRAMES,
        ReasonKind.UNEXPLAINED_FRAMES,
        ReasonKind.NOT_DRAINED,
        ReasonKind.TESTER_LIMITED,
    }
)


@dataclass(frozen=True, slots=True)
class Reason:
    """One typed reason with its numbers, as text for readers."""

    kind: ReasonKind
    stream: str  # empty when it concerns the trial as a whole
    detail: str

    @classmethod
    def parse(cls, text: str) -> "Reason":
        """Return the reason with this text, which does not contain its stream; ValueError if the text has no kind."""
        kind, _, detail = text.partition(": ")
        return cls(ReasonKind(kind), "", detail)

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.detail}" if self.detail else self.kind.value


# The finding of a rule about one stream: the kind of reason, and its detail.
Finding = tuple[ReasonKind, str]


class WarningKind(Enum):
    """A fact that readers of the results need, though no trial is invalid because of it."""

    SHARED_CPUS = "shared-cpus"
    VETH_OVERLOAD_IS_UNSENT = "veth-overload-is-unsent"
    NOMINAL_LINE_RATE = "nominal-line-rate"
    ABOVE_LINE_RATE = "above-line-rate"
    CPU_FREQUENCY_VARIES = "cpu-frequency-varies"
    HOST_IS_VIRTUAL = "host-is-virtual"
    SHORT_TRIALS = "short-trials"
    FEW_REPETITIONS = "few-repetitions"
    HOST_WAS_BUSY = "host-was-busy"
    CPU_LIMIT = "cpu-limit"
    CPU_IS_EMULATED = "cpu-is-emulated"
    NEIGHBOUR_BELOW_ITS_LOAD = "neighbour-below-its-load"
    SOURCE_REMARK = "source-remark"
    LINK_REMARK = "link-remark"
    TESTER_CHANGED = "tester-changed"
    TESTER_FOLLOWS_LOAD = "tester-follows-load"
    DRIFT = "drift"
    BOOTS_DIFFER = "boots-differ"
    FIRST_TRIALS_DIFFER = "first-trials-differ"
    OTHER_CAMPAIGN = "other-campaign"
    PACKET_SOCKETS = "packet-sockets"
    CEILING_UNKNOWN = "ceiling-unknown"
    SELFTEST_FAILED = "selftest-failed"
    NOT_AS_RFC_2544 = "not-as-rfc-2544"
    MAXIMUM_IS_LOWER_BOUND = "maximum-is-lower-bound"
    SOURCE_CEILING_DOUBTFUL = "source-ceiling-doubtful"
    PACKET_REFUSED = "packet-refused"
    WORKLOAD_REFUSED = "workload-refused"
    STREAM_PACKETS = "stream-packets"


@dataclass(frozen=True, slots=True)
class CampaignWarning:
    """One typed warning; `text` explains its effect on the numbers and the remedy."""

    kind: WarningKind
    text: str


_WORST_FIRST = tuple(reversed(Verdict))


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return the worst of some verdicts; VALID for none."""
    return next((verdict for verdict in _WORST_FIRST if verdict in verdicts), Verdict.VALID)
