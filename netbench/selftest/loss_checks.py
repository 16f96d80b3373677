"""Checks of loss: for a kernel with known drops at a known place, the tester must report exactly these, there."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import NamedTuple

from netbench.model.counts import StreamCounts
from netbench.model.documents import plain
from netbench.model.points import CountingPoint, whole_path
from netbench.model.scenario import VICTIM
from netbench.model.selftest_record import SelftestCheck
from netbench.model.topology import Topology
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.selftest.recount import judge_recount
from netbench.selftest.trials import Tester, complaints, lost_at
from netbench.statistics.totals import summed
from netbench.testbed.testbed import Testbed
from netbench.uut.base import ActiveGuest
from netbench.uut.reference import DROP_RULE, DropRule, Limit, ReferenceOptions


class ForeignFilter(NamedTuple):
    """A rule or program of others at a point; `stream` is empty if it affects all streams."""

    stream: str
    point: CountingPoint
    counter: str


def foreign_filters(testbed: Testbed, active: ActiveGuest) -> list[ForeignFilter]:
    """Return everything at the counting points now that netbench did not attach."""
    setup, declared = testbed.setup({VICTIM: active}), active.ready.points
    paths = {name: whole_path(ends.path, declared.get(name, ())) for name, ends in setup.endpoints.items()}
    points = {stream: tuple(_both_ways(along)) for stream, along in paths.items()}
    named = {(stream, point.name): point for stream, along in paths.items() for point in along}
    anywhere = {point.name: point for along in paths.values() for point in along}
    return [
        ForeignFilter(
            reading.stream, named.get((reading.stream, reading.point)) or anywhere[reading.point], reading.counter
        )
        for reading in setup.read_counters(points)
        if reading.attached
    ]


def judge_attached(found: Iterable[ForeignFilter], topology: Topology) -> SelftestCheck:
    """Check that nothing interferes; each rule or program found is listed once, with its place."""
    links = {stream.name: stream for stream in topology.streams}
    named: dict[str, None] = {}
    for attached in sorted(found, key=lambda entry: entry.point.order):
        stream = links.get(attached.stream)
        nic = getattr(stream, attached.point.where.value, None) if stream else None
        named[f"{attached.counter} at the {attached.point.name}{f' {nic}' if nic else ''}"] = None
    return SelftestCheck(
        name="no foreign filters",
        truth="no rules, programs or shapers of others",
        measured=f"{len(named)} found" if named else "none found",
        passed=not named,
        detail=f"{'; '.join(named)}: not netbench's; remove what is there" if named else "",
    )


def _both_ways(along: Iterable[CountingPoint]) -> Iterator[CountingPoint]:
    """Yield every point in both directions: a hook in an unused direction also shows foreign software."""
    for point in along:
        yield point
        if point.direction:
            yield replace(point, direction="tx" if point.direction == "rx" else "rx")


ONE, ALL = "one stream", "all streams"
# Maximum distance of random drops from their expected number, in standard deviations.
_SIGMAS = 5


@dataclass(frozen=True, slots=True)
class LossCheckUut:
    """A reference UUT and the trials on it: how many streams, and the frame size."""

    options: ReferenceOptions
    trials: Sequence[tuple[str, int]]

    @property
    def spec(self) -> UutSpec:
        """The reference as a UUT in a topology."""
        options = plain(self.options, exclude_none=True)
        return UutSpec.model_validate({"name": self.name, "kind": "reference", **options})

    @property
    def name(self) -> str:
        """A name that describes its behaviour."""
        truth, reverse = self.options.truth, self.options.reverse
        rest = f"back-{_habit(reverse.truth)}" if reverse else truth.at
        return f"{self.options.forward}-drops-{_habit(truth)}-{rest}"


def _habit(truth: DropRule | Limit) -> str:
    if isinstance(truth, DropRule):
        return f"{'about-' if truth.random else ''}{truth.k}-of-{truth.n}"
    return f"above-{truth.fps}fps"


def references(limit_fps: int, *, both_ways: bool = False) -> list[LossCheckUut]:
    """Return the references of a self-test; one limits the rate, and drops the frames above `limit_fps` per second.

    With `both_ways`, for topologies with reverse streams, one drops a different part of these.
    """

    def drops(forward: str, at: str, k: int, n: int, *trials: tuple[str, int], random: bool = False) -> LossCheckUut:
        options = {"forward": forward, "drop": {"k": k, "n": n, "at": at, "random": random}}
        return LossCheckUut(ReferenceOptions.model_validate(options), trials)

    apart = {"forward": "route", "drop": {"k": 7, "n": 100}, "reverse": {"drop": {"k": 13, "n": 997, "at": "ingress"}}}
    limit = {"forward": "bridge", "limit": {"fps": limit_fps, "burst": 50}}
    return [
        drops("bridge", "forward", 0, 1, (ALL, 64)),
        drops("bridge", "forward", 7, 100, (ALL, 1518), (ONE, 64)),
        drops("bridge", "ingress", 1, 2, (ALL, 64)),
        drops("bridge", "egress", 13, 997, (ONE, 1518)),
        drops("route", "ingress", 5, 5, (ONE, 64)),
        drops("route", "forward", 13, 997, (ALL, 64), (ONE, 1518)),
        drops("route", "egress", 7, 100, (ALL, 1518)),
        drops("route", "forward", 7, 100, (ONE, 64), random=True),
        LossCheckUut(ReferenceOptions.model_validate(limit), [(ONE, 64)]),
        *([LossCheckUut(ReferenceOptions.model_validate(apart), [(ALL, 64)])] if both_ways else []),
    ]


def check_drops(
    reference: LossCheckUut, tester: Tester, active: ActiveGuest, *, recounts: bool = False
) -> Iterator[SelftestCheck]:
    """Measure one reference, and check loss and place in every stream, to the frame.

    `recounts`: also count the captures of the first trial by dpkt.
    """
    for how_many, frame_size in reference.trials:
        streams = tester.streams if how_many == ALL else 1
        if how_many == ALL and streams == 1 and (ONE, frame_size) in reference.trials:
            continue
        result = tester.measure(active, reference.name, tester.modest(frame_size, streams), keep=recounts)
        yield judge_drops(reference.options, reference.name, result)
        if recounts:
            yield judge_recount(result, tester.captures)
            recounts = False


def judge_drops(options: ReferenceOptions, uut: str, result: TrialResult) -> SelftestCheck:
    """Compare a trial's results with the truth. For drops that are not exact, it is the rule's own counter."""
    truths = [_truth(options, counts) for counts in result.streams]
    measured = [counts.lost_frames for counts in result.streams]
    points = [options.point_of(_of(options, counts)) for counts in result.streams]
    placed = [lost_at(counts) for counts in result.streams]
    right_place = [
        {f"{point} ({DROP_RULE})": truth} if truth else {} for point, truth in zip(points, truths, strict=True)
    ]
    place = " and ".join(f"{point} ({DROP_RULE})" for point in dict.fromkeys(points))
    lost = summed(result.streams, lambda counts: counts.lost_frames)
    known = None not in truths and lost is not None and bool(truths)
    off = sum(abs((frames or 0) - (truth or 0)) for frames, truth in zip(measured, truths, strict=True))
    implausible = [why for counts in result.streams for why in _implausible(options, counts)]
    problems = [
        complaints(result) if result.verdict is not Verdict.VALID else "",
        "" if placed == right_place else f"the tester found: {_lost_at(result)}; expected: all at {place}",
        *implausible,
    ]
    detail = "; ".join(filter(None, problems))
    streams = f"{len(result.streams)} streams" if len(result.streams) > 1 else "1 stream"
    return SelftestCheck(
        name=f"{_what(options)}: {streams}, {result.spec.frame_size} bytes",
        uut=uut,
        truth=_lost_of(truths, points) if None not in truths else "unknown",
        measured=f"{lost:,} lost {_places(result)}".rstrip() if lost is not None else "unknown",
        error=f"{off:,} frames" if known else "unknown",
        passed=known and measured == truths and not detail,
        detail=detail,
    )


def _what(options: ReferenceOptions) -> str:
    truth = options.truth
    if isinstance(truth, DropRule):
        return "random drop" if truth.random else "exact drop, another way back" if options.reverse else "exact drop"
    return "rate limit"


def _of(options: ReferenceOptions, counts: StreamCounts) -> DropRule | Limit:
    """Return the drop rule for a stream."""
    return options.reverse.truth if options.reverse and counts.reverse_of else options.truth


def _lost_of(truths: Sequence[int | None], points: Sequence[str]) -> str:
    """Return all drops by point, as text."""
    lost: dict[str, int] = {}
    for truth, point in zip(truths, points, strict=True):
        lost[point] = lost.get(point, 0) + (truth or 0)
    return ", ".join(f"{frames:,} lost at {point}" for point, frames in lost.items())


def _truth(options: ReferenceOptions, counts: StreamCounts) -> int | None:
    truth = _of(options, counts)
    if isinstance(truth, DropRule) and not truth.random:
        return truth.of(counts.sent.frames)
    rule = options.point_of(truth), DROP_RULE
    return next((counter.grew for counter in counts.counters if (counter.point, counter.counter) == rule), None)


def _implausible(options: ReferenceOptions, counts: StreamCounts) -> Iterator[str]:
    """Yield the reasons why the rule's counter cannot be true either."""
    truth, dropped, sent = _of(options, counts), _truth(options, counts), counts.sent.frames
    if dropped is None:
        yield "the rule's counter could not be read"
    elif not isinstance(truth, DropRule):
        passed, most = sent - dropped, truth.most_passed(counts.sent.duration_s)
        if passed > most:
            yield f"{passed:,} frames passed a limit that lets at most {most:,} pass in {counts.sent.duration_s:.3f} s"
    elif truth.random:
        share = truth.k / truth.n
        expected, deviation = sent * share, sqrt(sent * share * (1 - share))
        if abs(dropped - expected) > _SIGMAS * deviation:
            yield f"of {sent:,} frames {expected:,.0f} ± {_SIGMAS * deviation:,.0f} should have been dropped"


def _places(result: TrialResult) -> str:
    points = dict.fromkeys(loss.point for counts in result.streams for loss in counts.lost_at)
    return f"at {', '.join(points)}" if points else ""


def _lost_at(result: TrialResult) -> str:
    found: dict[str, int] = {}
    for counts in result.streams:
        for place, frames in lost_at(counts).items():
            found[place] = found.get(place, 0) + frames
    unexplained = summed(result.streams, lambda counts: counts.unexplained_frames)
    if unexplained:
        found["explained by no counter"] = unexplained
    return ", ".join(f"{frames:,} at {place}" for place, frames in found.items()) or "nothing lost"
