"""Checks of everything except loss: a forwarder duplicates, reorders, delays and adds a known number of frames.

Delay on the whole path is also checked by netem, where the kernel supports it, as that of the VM does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.counts import StreamCounts
from netbench.model.documents import plain
from netbench.model.selftest_record import SelftestCheck
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import TrialResult
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import ReasonKind, Verdict
from netbench.selftest.recount import judge_recount
from netbench.selftest.trials import Pattern, Tester, complaints
from netbench.uut.base import ActiveGuest
from netbench.uut.forwarder import Forwarder, ForwarderDelays
from netbench.uut.forwarder_process import Impairments

# A rate that one core forwards frame by frame with time to spare, frames/s.
_FPS = 10_000
_MOST_FRAMES = 5_000
_ATTEMPTS = 3
# Limit of a frame's delay outside the forwarder: two links, two system calls.
_DELAY_BOUND_NS = 500_000
_NETEM_MS = 20
# The same limit on the emulated CPU of a VM, where timers are late too.
_NETEM_BOUND_NS = 5_000_000

DELAYING = UutSpec.model_validate(
    {"name": f"delays-by-{_NETEM_MS}ms", "kind": "reference", "drop": {"k": 0, "n": 1}, "delay": f"{_NETEM_MS}ms"}
)


@dataclass(frozen=True, slots=True)
class ForwarderCase:
    """A forwarder with one impairment, and the only reasons that the tester must give."""

    name: str
    impairments: Impairments
    expected: frozenset[ReasonKind] = frozenset()

    @property
    def spec(self) -> UutSpec:
        """The forwarder as a UUT in a topology."""
        options = plain(self.impairments, exclude_none=True, exclude_defaults=True)
        return UutSpec.model_validate({"name": self.name, "kind": "forwarder", **options})


def forwarder_cases() -> Sequence[ForwarderCase]:
    """Return the cases of a self-test."""

    def one(name: str, habit: Mapping[str, object], *expected: ReasonKind) -> ForwarderCase:
        return ForwarderCase(name, Impairments.model_validate(habit), frozenset(expected))

    return [
        one("duplicates-every-10th", {"duplicate": {"every": 10}}, ReasonKind.DUPLICATE_FRAMES),
        one("reorders-every-50th-by-7", {"late": {"every": 50, "behind": 7}}),
        one("adds-foreign-frames", {"foreign": {"every": 100}}, ReasonKind.FOREIGN_FRAMES),
        one("delays-by-2ms", {"delay": "2ms"}),
    ]


def check_forwarder(case: ForwarderCase, tester: Tester, active: ActiveGuest) -> Iterator[SelftestCheck]:
    """Measure one forwarder with a single stream, because more would overload its process; recount its captures."""
    pattern = Pattern(1, 64, Load(LoadKind.FRAME_RATE, _FPS), min(tester.frames, _MOST_FRAMES) / _FPS)

    def measured() -> SelftestCheck:
        result = tester.measure(active, case.name, pattern)
        (counts,) = result.streams
        held = active.uut.held(counts.stream) if isinstance(active.uut, Forwarder) else None
        return judge_forwarder(case, result, counts, held)

    if case.impairments.delay:
        yield _one_of_a_few(measured)
        return
    result = tester.measure(active, case.name, pattern, keep=True)
    yield judge_forwarder(case, result, result.streams[0], None)
    yield judge_recount(result, tester.captures)


def check_netem(tester: Tester, active: ActiveGuest) -> Iterator[SelftestCheck]:
    """Check the median delay of one stream."""

    def measured() -> SelftestCheck:
        result = tester.measure(active, DELAYING.name, tester.modest())
        problem = complaints(result) if result.verdict is not Verdict.VALID else ""
        return judge_delay(DELAYING.name, result.streams[0], _NETEM_MS * 1_000_000, _NETEM_BOUND_NS, problem)

    yield _one_of_a_few(measured)


def judge_forwarder(
    case: ForwarderCase, result: TrialResult, counts: StreamCounts, held: ForwarderDelays | None
) -> SelftestCheck:
    """Compare a trial's results for one stream with the truth; `held` is the log of a forwarder that delays."""
    impairments, sent = case.impairments, counts.sent.frames
    kinds = {reason.kind for reason in result.reasons}
    problem = "" if kinds == case.expected else complaints(result) or f"no word of {_words(case.expected)}"
    if counts.lost_frames != 0:
        problem = f"nothing was lost, but the tester counted {counts.lost_frames} lost frames; {problem}".rstrip("; ")
    if impairments.delay:
        return judge_delay(case.name, counts, held.median_ns if held else None, _DELAY_BOUND_NS, problem)
    if impairments.late:
        extents = impairments.late.extents(sent)
        truth = {"reordered": len(extents), "overtaken by up to": max(extents, default=0)}
        extent = counts.received.reordering_extent.largest if counts.received.reordering_extent else None
        reported = {"reordered": counts.received.reordered, "overtaken by up to": extent if extents else extent or 0}
    elif impairments.duplicate:
        truth, reported = {"duplicates": impairments.duplicate.of(sent)}, {"duplicates": counts.received.duplicates}
    else:
        assert impairments.foreign
        truth, reported = {"foreign": impairments.foreign.of(sent)}, {"foreign": counts.foreign_frames}
    off = sum(abs(true - (reported[what] or 0)) for what, true in truth.items())
    return SelftestCheck(
        name=", ".join(truth),
        uut=case.name,
        truth=_counts(truth),
        measured=_counts(reported),
        error=f"{off:,} frames",
        passed=reported == truth and not problem,
        detail=problem,
    )


def judge_delay(uut: str, counts: StreamCounts, held_ns: int | None, bound_ns: int, problem: str) -> SelftestCheck:
    """Check that the median one-way delay exceeds the median time in the forwarder by at most `bound_ns`."""
    median_ns = counts.received.delay.median_ns if counts.received.delay else None
    if held_ns is None or median_ns is None:
        why = counts.received.no_delay or "there is no delay"
        return SelftestCheck(
            name="added delay, median", uut=uut, measured="unknown", passed=False, detail=problem or why
        )
    off = median_ns - held_ns
    if not problem and not 0 <= off <= bound_ns:
        problem = f"the rest of a frame's path takes 0 to {_us(bound_ns)}"
    return SelftestCheck(
        name="added delay, median",
        uut=uut,
        truth=f"held {_us(held_ns)}",
        measured=_us(median_ns),
        error=f"{_us(off)}",
        passed=not problem,
        detail=problem,
    )


def _one_of_a_few(measured: Callable[[], SelftestCheck]) -> SelftestCheck:
    """Return the first check that passes, or the last: other processes that take the CPU change times, not counts."""
    check = measured()
    for _ in range(_ATTEMPTS - 1):
        if check.passed:
            break
        check = measured()
    return check


def _counts(counts: Mapping[str, int | None]) -> str:
    return ", ".join(f"{what} {'unknown' if count is None else f'{count:,}'}" for what, count in counts.items())


def _us(ns: int) -> str:
    return f"{ns / 1e3:,.0f} µs"


def _words(kinds: frozenset[ReasonKind]) -> str:
    return " and ".join(sorted(kind.value for kind in kinds))
