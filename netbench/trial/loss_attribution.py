"""Attributes the lost frames of all streams of a trial to places, by the counters along their paths.

The points that count passing frames (NICs, and the points that the unit under test declares) cut a path into segments.
Frames missing at the end of a segment were lost on it. The drop counters of the segment explain them. Other frames
missing inside the unit under test are its loss too, named after the segment. Other frames missing on a cable, or
behind the sink NIC, remain unexplained.

A place is attributed only the frames that must have been lost there. Foreign frames that reached the sink's NIC
uncaptured are assumed to be those that entered at the source. The others may be among the missing frames anywhere. A
frame whose sequence number was rewritten arrives as a duplicate of another frame. So as many missing frames as there
are duplicates are not attributed, unless a drop counter explains them. All places of a stream together have lost no
more frames than the stream has.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from netbench.model.counts import DropKind, Loss
from netbench.model.points import UUT, CountingPoint, PathSection, PointKind
from netbench.trial.observation import CounterDelta, NicDelta, StreamObservation
from netbench.trial.segments import DropCounter, Segment, name_rest, share_out


class LossAttribution(NamedTuple):
    """The losses of a stream by point, in path order and without points that lost nothing, and its foreign frames.

    `others_lost` are foreign frames that entered at the source and never reached the sink. `unsure` are frames that
    reached the sink's NIC uncaptured: foreign frames, or frames of the stream whose loss nothing explains.
    `overcounted` is by how much the drop counters exceed the loss of the stream, because they counted foreign frames.
    """

    losses: tuple[Loss, ...] = ()
    others_lost: int = 0
    unsure: int = 0
    overcounted: int = 0


class _PathEnds(NamedTuple):
    """The counts of the NICs of a path, and how many of the frames do not belong to the stream.

    `within` are the ingress and egress NICs; None if their counts are unknown. `others` are the foreign frames at the
    start of the path, `more_others` those that were added before the UUT. `through` of them reached the sink. `copies`
    are duplicates that left the UUT. `unsure` is as in LossAttribution.
    """

    source: NicDelta
    within: tuple[NicDelta, NicDelta] | None
    sink: NicDelta
    others: int
    more_others: int
    through: int
    copies: int
    unsure: int


def losses(trial: Sequence[StreamObservation]) -> dict[str, LossAttribution]:
    """Return the losses of each stream of a trial, by name; an empty LossAttribution if they are unknown.

    The sum can be lower than the loss of the stream, where nothing counts frames. It is never higher.
    """
    known = [(evidence, ends) for evidence in trial if (ends := _ends(evidence)) is not None]
    paths = [list(_segments(evidence, ends)) for evidence, ends in known]
    share_out(_backlogs([evidence for evidence, _ in known], paths))
    for path in paths:
        path[0].nic_dropped -= sum(loss.frames for loss in path[0].found)  # the NIC has counted these too
        _claim(path)
    counters = _counters(paths)
    share_out([counter for counter in counters if len(counter.met) == 1])
    for segment in (segment for path in paths for segment in path):
        segment.explain_nic()
    share_out([counter for counter in counters if len(counter.met) > 1])
    placed = {evidence.path.name: LossAttribution() for evidence in trial}
    for (evidence, ends), path in zip(known, paths, strict=True):
        _leave_unplaced(path, evidence.received.duplicates or 0)
        for segment in path:
            name_rest(segment)
        found = [loss for segment in path for loss in segment.found]
        others_lost = ends.others + ends.more_others - ends.through
        sure = _in_order(_without_others(found, others_lost, evidence) if others_lost else found)
        overcounted = max(0, sum(loss.frames for loss in sure) - _lost(evidence))
        if overcounted:
            sure = _in_order(_without_others(sure, overcounted, evidence))
        placed[evidence.path.name] = LossAttribution(sure, others_lost, ends.unsure, overcounted)
    return placed


def _lost(evidence: StreamObservation) -> int:
    """Return the number of missing frames of a stream, without those that its sink dropped."""
    return max(0, evidence.sent.frames - (evidence.received.frames or 0) - (evidence.dropped_by_sink or 0))


def _leave_unplaced(path: Sequence[Segment], frames: int) -> None:
    """Remove up to `frames` unexplained missing frames from the UUT's segments, starting with the last segment."""
    for segment in reversed(path):
        if segment.name:
            taken = min(frames, segment.rest)
            segment.rest -= taken
            frames -= taken


def all_counted(trial: Sequence[StreamObservation]) -> bool:
    """Return True if drop counters have counted every missing frame of every stream."""
    placed = losses(trial)
    return all(
        _counted(placed[evidence.path.name]) == evidence.sent.frames - (evidence.received.frames or 0)
        and not placed[evidence.path.name].overcounted
        for evidence in trial
    )


def _counted(placed: LossAttribution) -> int:
    """Return the number of frames that a NIC, its ring or one identified counter dropped."""
    return sum(loss.frames for loss in placed.losses if loss.dropper is not DropKind.UNKNOWN)


def _in_order(found: Iterable[Loss]) -> tuple[Loss, ...]:
    """Return the losses in path order, with one entry for each place."""
    places: dict[str, Loss] = {}
    for loss in found:
        if loss.frames:
            before = places.get(loss.place)
            places[loss.place] = _together(before, loss) if before else loss
    return tuple(sorted(places.values(), key=lambda loss: loss.order))


def _together(one: Loss, other: Loss) -> Loss:
    counters = dict.fromkeys((*one.counters, *other.counters))
    return replace(one, frames=one.frames + other.frames, counters=tuple(counters))


def _ends(evidence: StreamObservation) -> _PathEnds | None:
    source, sink = evidence.trusted("source"), evidence.trusted("sink")
    ingress, egress = evidence.trusted("ingress"), evidence.trusted("egress")
    if source is None or sink is None or evidence.arrived is None:
        return None
    sent = evidence.sent
    # The generator handed over the frames that the NIC dropped. It may have received an error for them (`errors`).
    others = max(0, source.tx - sent.frames, source.tx + source.tx_dropped - sent.frames - sent.errors)
    within = (ingress, egress) if ingress and egress else None
    entered, left = (ingress.rx, egress.tx) if ingress and egress else (source.tx, sink.rx)
    more_others = max(0, entered - source.tx)
    # Control frames are certainly foreign. A frame that looks late may be a frame of the stream with a mangled address.
    known = min(evidence.extra_at_sink, evidence.received.control or 0)
    extra, copies = evidence.extra_at_sink - known, (evidence.received.duplicates or 0) + known
    behind = max(0, sink.rx - left)  # foreign frames that came in behind the UUT
    extra, copies = max(0, extra - behind), max(0, copies - max(0, behind - extra))
    through = min(others + more_others, extra + min(known, copies))
    controls = max(0, through - extra)  # control frames that entered at the source and reached the sink
    copies -= controls
    put_in = max(0, left - copies - entered)  # frames that the UUT itself added to this path
    unsure = max(0, extra - (through - controls) - put_in)
    return _PathEnds(source, within, sink, others, more_others, through, copies, unsure)


def _segments(evidence: StreamObservation, ends: _PathEnds) -> Iterator[Segment]:
    """Yield the segments of the path from generator to capture, cut at each point that counts passing frames."""
    source, sink, uut = ends.source, ends.sink, evidence.point(UUT)
    of_source, of_sink = evidence.nic(PathSection.SOURCE), evidence.nic(PathSection.SINK)
    unsent = max(0, evidence.sent.frames + ends.others - source.tx)
    yield Segment(uut, unsent, _drops_at(evidence, PathSection.SOURCE), of_source, source.tx_dropped)
    at_sink = DropKind.RING if evidence.has_ring("sink") and sink.rx else DropKind.NIC
    if ends.within:
        ingress, egress = ends.within
        of_ingress = evidence.nic(PathSection.INGRESS)
        # Frames that are too long for the link never come in.
        at_ingress = DropKind.RING if evidence.has_ring("ingress") and ingress.rx else DropKind.NIC
        yield Segment(uut, max(0, source.tx - ingress.rx), (), of_ingress, _refused(ingress), of_nic=at_ingress)
        yield from _in_uut(evidence, ends, ingress, egress)
        yield Segment(uut, max(0, egress.tx - sink.rx), (), of_sink, _refused(sink), of_nic=at_sink)
    else:
        missing, name = max(0, source.tx - (sink.rx - ends.copies)), (uut, "source NIC to sink NIC")
        refused = max(0, _refused(sink) - evidence.unprocessed_at_sink)
        yield Segment(uut, missing, (), of_sink, refused, of_nic=at_sink, name=name)
    seen = (evidence.arrived or 0) + (evidence.dropped_by_sink or 0)
    uncaught = max(0, sink.rx - evidence.extra_at_sink - seen)
    yield Segment(uut, uncaught, _drops_at(evidence, PathSection.SINK))


def _in_uut(evidence: StreamObservation, ends: _PathEnds, ingress: NicDelta, egress: NicDelta) -> Iterator[Segment]:
    """Yield the segments from ingress to egress NIC, cut at each point that counts passing frames.

    A point cannot have passed more frames than entered before it.
    """
    first, last = evidence.nic(PathSection.INGRESS), evidence.nic(PathSection.EGRESS)
    passed, left = ingress.rx - ends.through, egress.tx - ends.through - ends.copies
    cuts = [(first, passed)]
    for growth in evidence.growths:
        within = first.order < growth.point.order < last.order and growth.point.passing
        if within and (growth.role, growth.counter) == ("passed", growth.point.direction) and growth.frames is not None:
            passed = min(passed, max(growth.frames - ends.through, left))
            cuts.append((growth.point, passed))
    cuts.append((last, min(left, passed)))
    for (start, entered), (end, left_) in pairwise(cuts):
        drops = [growth for growth in evidence.growths if growth.role == "dropped" and _within(growth, start, end)]
        name = _named_after(evidence, start, end), f"between {start.name} and {end.name}"
        nic_dropped = egress.tx_dropped if end == last else 0
        yield Segment(evidence.point(UUT), entered - left_, drops, end, nic_dropped, name=name)


def _drops_at(evidence: StreamObservation, where: PathSection) -> list[CounterDelta]:
    return [growth for growth in evidence.growths if growth.point.where is where and growth.role == "dropped"]


def _refused(nic: NicDelta) -> int:
    return nic.rx_dropped + nic.rx_errors


def _within(one: CounterDelta, start: CountingPoint, end: CountingPoint) -> bool:
    """Return True if a counter is in a segment; a counter at the ingress comes after the count of the NIC there."""
    if one.point.where is PathSection.INGRESS or (one.indiscriminate and one.point.direction == "rx"):
        return one.point == start
    return start.order < one.point.order <= end.order


def _named_after(evidence: StreamObservation, start: CountingPoint, end: CountingPoint) -> CountingPoint:
    """Return the point that names the segment between two points: the only candidate between them, or else the UUT."""
    names = [point for point in evidence.points if point.names_segment and start.order < point.order < end.order]
    return names[0] if len(names) == 1 else evidence.point(UUT)


def _backlogs(trial: Sequence[StreamObservation], paths: Sequence[Sequence[Segment]]) -> list[DropCounter]:
    """Return the drops of the CPUs' backlogs, which the source NIC and the ingress NIC count as drops as well.

    On a veth pair, both ends count the drops of a full backlog: it rejects the frames that the source's NIC hands over.
    Frames for which the source received an error (`errors`) were not sent. Any other NIC counted the frames before.
    """
    found: dict[tuple[str, ...], DropCounter] = {}
    for evidence, (to_source, to_ingress, behind, *_) in zip(trial, paths, strict=True):
        ingress = evidence.trusted("ingress")
        for grown in evidence.growths:
            if ingress and grown.point.kind is PointKind.BACKLOG and grown.frames:
                refused = min(to_source.rest, to_source.nic_dropped, ingress.rx_dropped)
                unsent = min(evidence.sent.errors, to_source.nic_dropped - refused, ingress.rx_dropped - refused)
                counter = found.setdefault(grown.identity, DropCounter(grown.frames))
                dropped_behind = ingress.rx_dropped - to_ingress.rest - refused - unsent
                nic = evidence.nics["ingress"]
                if evidence.path.receive != "inline" and nic and nic.rx_dropped < to_ingress.rest:
                    dropped_behind = nic.rx_dropped  # the kernel did not count the drops of the ring
                for segment, most in ((to_source, refused), (behind, dropped_behind)):
                    counter.met[segment], counter.most[segment] = [replace(grown, shared=False)], most
    return list(found.values())


def _claim(path: Sequence[Segment]) -> None:
    """Explain all drops that the unit under test reports for this stream only, however many they are."""
    claimed = 0  # more than is missing so far: a counter may be on either side of the loss that it explains
    for segment in path:
        if segment.name:
            segment.rest -= claimed
            for drops in segment.drops:
                if drops.frames and drops.exact:
                    segment.explain(drops.point, drops.counter, drops.frames, dropper=DropKind.COUNTER)
            claimed, segment.rest = max(0, -segment.rest), max(0, segment.rest)


def _counters(paths: Iterable[Sequence[Segment]]) -> list[DropCounter]:
    """Return all other drop counters along these paths, each once."""
    found: dict[tuple[str, ...], DropCounter] = {}
    for segment in (segment for path in paths for segment in path):
        for drops in segment.drops:
            if drops.frames and not (drops.exact and segment.name):
                found.setdefault(drops.identity, DropCounter(drops.frames)).met.setdefault(segment, []).append(drops)
    return list(found.values())


def _without_others(found: Sequence[Loss], others: int, evidence: StreamObservation) -> Iterator[Loss]:
    """Yield the losses that must be the stream's own, if up to `others` foreign frames may be among the lost frames."""
    sure = [replace(loss, frames=max(0, loss.frames - others)) for loss in found]
    yield from sure
    in_uut = {number for number, loss in enumerate(found) if loss.where not in (PathSection.SOURCE, PathSection.SINK)}
    lost_in_uut = max(0, sum(found[number].frames for number in in_uut) - others)
    unsure = lost_in_uut - sum(sure[number].frames for number in in_uut)
    ends = ("ingress", "egress") if evidence.trusted("ingress") and evidence.trusted("egress") else ("source", "sink")
    point = evidence.point(UUT)
    yield Loss(point.name, f"between {ends[0]} NIC and {ends[1]} NIC", point.where, point.order, unsure)
