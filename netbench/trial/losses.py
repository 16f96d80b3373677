"""Where the frames of one stream were lost, by the counters along its path.

The points that count what passes (NICs, and what the unit under test declares) cut the path into segments. What is
missing at the end of a segment was lost in it. Counters of drops within the segment say why; frames missing inside the
unit under test beyond those are its loss all the same, named after the segment. Missing on a cable, or behind the sink
NIC, nothing explains them: they are left over.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from netbench.model.counts import Loss
from netbench.model.points import UUT, CountingPoint, Kind, Where
from netbench.trial.evidence import UNCOUNTED, Evidence, Growth, NicDelta

_MOST_NAMED = 3  # of those that may have dropped a frame


class _Passed(NamedTuple):
    """How many frames of the stream passed a point."""

    point: CountingPoint
    frames: int


def losses(evidence: Evidence) -> tuple[Loss, ...]:
    """Loss by point, from the source on, points without any left out; none where it cannot be known.

    Frames that are not the stream's are taken out of the counters they passed. The sum can differ from what the stream
    lost: more went where nothing counts, or counters claim more than is missing.
    """
    return tuple(sorted((loss for loss in _losses(evidence) if loss.frames), key=lambda loss: loss.order))


def _losses(evidence: Evidence) -> Iterator[Loss]:
    source, sink = evidence.trusted("source"), evidence.trusted("sink")
    if source is None or sink is None or evidence.arrived is None:
        return
    foreign_in = max(0, source.tx - evidence.sent.frames)
    extra_out = evidence.extra_at_sink + (evidence.received.duplicates or 0)
    ingress, egress = evidence.trusted("ingress"), evidence.trusted("egress")
    unsent = max(0, evidence.sent.frames - source.tx)
    # On a veth pair a full backlog shows at both ends: it refuses what the source's NIC hands over.
    refused = min(unsent, source.tx_dropped, ingress.rx_dropped if ingress else 0, _backlog(evidence))
    yield _in_backlog(evidence, refused)
    yield from _at_nic(evidence, Where.SOURCE, source.tx_dropped - refused, unsent - refused)
    if ingress is None or egress is None:
        between = max(0, source.tx - foreign_in - (sink.rx - extra_out))
        at_sink = min(_refused(sink), between)
        yield _loss(evidence.point(UUT), "source NIC to sink NIC", between - at_sink)
        yield _loss(evidence.nic(Where.SINK), "", at_sink)
        return
    extra_out = max(0, extra_out - max(0, sink.rx - egress.tx))  # what came in behind the UUT never left it
    yield from _at_nic(evidence, Where.INGRESS, _refused(ingress), source.tx - ingress.rx, behind=False)
    entered = ingress.rx - foreign_in
    # Of a NIC that counts a frame before it goes into the backlog.
    behind = min(max(0, ingress.rx_dropped - max(0, source.tx - ingress.rx) - refused), _backlog(evidence) - refused)
    dropped = min(behind, max(0, entered - (egress.tx - extra_out)))
    yield _in_backlog(evidence, dropped)
    yield from _in_uut(evidence, entered - dropped, egress.tx - extra_out, egress.tx_dropped)
    yield from _at_nic(evidence, Where.SINK, _refused(sink), egress.tx - sink.rx, behind=False)
    yield from _at_nic(evidence, Where.SINK, 0, sink.rx - evidence.extra_at_sink - _seen(evidence))


def _loss(point: CountingPoint, cause: str, frames: int) -> Loss:
    return Loss(point.name, cause, point.where, point.order, frames)


def _backlog(evidence: Evidence) -> int:
    """Frames that the CPUs' backlogs had no room for, of this stream and others."""
    return sum(one.frames or 0 for one in evidence.growths if one.point.kind is Kind.BACKLOG)


def _in_backlog(evidence: Evidence, frames: int) -> Loss:
    return _loss(next(one for one in evidence.points if one.kind is Kind.BACKLOG), "dropped", frames)


def _seen(evidence: Evidence) -> int:
    """Frames that came as far as the sink, whether it counted or dropped them."""
    return (evidence.arrived or 0) + (evidence.dropped_by_sink or 0)


def _refused(nic: NicDelta) -> int:
    return nic.rx_dropped + nic.rx_errors


def _at_nic(evidence: Evidence, where: Where, counted: int, missing: int, *, behind: bool = True) -> Iterator[Loss]:
    """What of the missing frames a NIC of the path, or what is attached to it, says that it dropped.

    `counted` are the NIC's own drops; what is attached to it drops frames before they leave, and `behind` it when they
    came in. Both may be of others: more than is missing they cannot explain.
    """
    missing = max(0, missing)
    here = [one for one in evidence.growths if one.point.where is where and one.role == "dropped"] if behind else []
    for one in here:
        explained = min(one.frames or 0, missing)
        missing -= explained
        yield _loss(one.point, one.counter, explained)
    explained = min(counted, missing)
    yield _loss(evidence.nic(where), "", explained)
    silent = [one for one in here if one.silent]
    if silent:
        yield _suspected(silent, evidence.point(UUT), missing - explained)


def _in_uut(evidence: Evidence, entered: int, left: int, egress_dropped: int) -> Iterator[Loss]:
    """Loss from ingress to egress NIC, segment by segment."""
    claimed = 0  # by counters, beyond what is missing so far: they may stand on either side of what they explain
    for start, end in pairwise(_passed(evidence, entered, left)):
        here = [one for one in evidence.growths if one.role == "dropped" and _within(one, start.point, end.point)]
        rest = start.frames - end.frames - claimed
        for one in here:
            if one.frames and not one.shared:
                explained = min(one.frames, max(0, rest)) if one.indiscriminate else one.frames
                rest -= explained
                yield _loss(one.point, one.counter, explained)
        claimed = max(0, -rest)
        rest = max(0, rest)
        at_nic = min(egress_dropped, rest) if end.point.where is Where.EGRESS else 0
        suspects = [one for one in here if one.silent or (one.shared and one.frames)]
        if suspects:
            yield _suspected(suspects, evidence.point(UUT), rest - at_nic)
        else:
            between = f"between {start.point.name} and {end.point.name}"
            yield _loss(_segment(evidence, start.point, end.point), between, rest - at_nic)
        yield _loss(evidence.nic(Where.EGRESS), "", at_nic)


def _passed(evidence: Evidence, entered: int, left: int) -> Iterator[_Passed]:
    """What counts the stream's frames on their way through the UUT; none can have passed that did not enter."""
    ingress, egress = evidence.nic(Where.INGRESS), evidence.nic(Where.EGRESS)
    passed = entered
    yield _Passed(ingress, passed)
    for one in evidence.growths:
        within = ingress.order < one.point.order < egress.order and one.point.passing
        if within and (one.role, one.counter) == ("passed", one.point.direction) and one.frames is not None:
            passed = min(passed, max(one.frames, left))
            yield _Passed(one.point, passed)
    yield _Passed(egress, min(left, passed))


def _within(one: Growth, start: CountingPoint, end: CountingPoint) -> bool:
    """Whether a counter is in a segment; what is attached where frames come in comes behind the count there."""
    if one.point.where is Where.INGRESS or (one.indiscriminate and one.point.direction == "rx"):
        return one.point == start
    return start.order < one.point.order <= end.order


def _segment(evidence: Evidence, start: CountingPoint, end: CountingPoint) -> CountingPoint:
    """What the way between two points is named after: nothing in particular where a point between them is not known."""
    names = [one for one in evidence.points if one.names_segment and start.order < one.order < end.order]
    return names[0] if len(names) == 1 else evidence.point(UUT)


def _suspected(suspects: Sequence[Growth], unknown: CountingPoint, frames: int) -> Loss:
    """At the point of those that may have dropped these frames, where they share one, and who they are."""
    points = {one.point for one in suspects}
    names = [one.counter if len(points) == 1 else f"{one.point.name}: {one.counter}" for one in suspects]
    if len(names) > _MOST_NAMED:
        names[_MOST_NAMED - 1 :] = [f"{len(names) - _MOST_NAMED + 1} more"]
    whys = dict.fromkeys(one.silent or "counted for all streams" for one in suspects)
    why = "which do not count" if len(suspects) > 1 and set(whys) == {UNCOUNTED} else " or ".join(whys)
    return _loss(points.pop() if len(points) == 1 else unknown, f"{' or '.join(names)}, {why}", frames)
