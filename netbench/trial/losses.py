"""Where the frames of all streams of a trial were lost, by the counters along their paths.

The points that count what passes (NICs, and what the unit under test declares) cut a path into segments. What is
missing at the end of one was lost on it. Counters of drops on it say why; frames missing inside the unit under test
beyond those are its loss all the same, named after the segment. Missing on a cable, or behind the sink NIC, nothing
explains them: they are left over.

No place is given more than must have been lost there. Of frames of others that entered at the source, as many came out
as there are at the sink that nobody caught; the rest may be among the missing anywhere. A frame whose number was
rewritten arrives as a copy of another one: as many missing frames as there are copies have no place, unless a counter
of drops explains them. All places of a stream together have lost no more frames than the stream has.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from netbench.model.counts import Loss
from netbench.model.points import UUT, CountingPoint, Kind, Where
from netbench.trial.evidence import Evidence, Growth, NicDelta
from netbench.trial.segments import Counter, Segment, name_rest, share_out

RING_FULL = "receive ring full"


class Placed(NamedTuple):
    """Loss by point, from the source on, points without any left out; and frames that are not the stream's.

    `others_lost` entered at the source and never came to the sink. `unsure` came to the sink's NIC and were not caught:
    others', or the stream's own as far as nothing explains where these were lost. `overcounted` is by how much the
    counters of drops exceed the loss of the stream: they counted frames of others.
    """

    losses: tuple[Loss, ...] = ()
    others_lost: int = 0
    unsure: int = 0
    overcounted: int = 0


class _Ends(NamedTuple):
    """What the NICs of a path counted (None: nobody looks into the UUT), and how much of it is not the stream's.

    `others` were there when the path began, and `more_others` where the UUT does; `through` of them reached the sink.
    `copies` left the UUT as well; `unsure` as of Placed.
    """

    source: NicDelta
    within: tuple[NicDelta, NicDelta] | None
    sink: NicDelta
    others: int
    more_others: int
    through: int
    copies: int
    unsure: int


def losses(trial: Sequence[Evidence]) -> dict[str, Placed]:
    """What was lost of each stream of a trial, by its name; nothing where it cannot be known.

    The sum can be less than what the stream lost, where nothing counts; it is never more.
    """
    known = [(one, ends) for one in trial if (ends := _ends(one)) is not None]
    paths = [list(_segments(one, ends)) for one, ends in known]
    share_out(_backlogs([one for one, _ in known], paths))
    for path in paths:
        path[0].nic_dropped -= sum(loss.frames for loss in path[0].found)  # the NIC has counted these too
        _claim(path)
    counters = _counters(paths)
    share_out([one for one in counters if len(one.met) == 1])
    for segment in (segment for path in paths for segment in path):
        segment.explain_nic()
    share_out([one for one in counters if len(one.met) > 1])
    placed = {one.path.name: Placed() for one in trial}
    for (one, ends), path in zip(known, paths, strict=True):
        _leave_unplaced(path, one.received.duplicates or 0)
        for segment in path:
            name_rest(segment)
        found = [loss for segment in path for loss in segment.found]
        others_lost = ends.others + ends.more_others - ends.through
        sure = _in_order(_without_others(found, others_lost, one) if others_lost else found)
        overcounted = max(0, sum(loss.frames for loss in sure) - _lost(one))
        if overcounted:
            sure = _in_order(_without_others(sure, overcounted, one))
        placed[one.path.name] = Placed(sure, others_lost, ends.unsure, overcounted)
    return placed


def _lost(evidence: Evidence) -> int:
    """Return how many frames of a stream are missing that its sink did not drop itself."""
    return max(0, evidence.sent.frames - (evidence.received.frames or 0) - (evidence.dropped_by_sink or 0))


def _leave_unplaced(path: Sequence[Segment], frames: int) -> None:
    """Take so many missing frames, as far as nothing explains them, from the UUT's segments, the last one first."""
    for segment in reversed(path):
        if segment.name:
            taken = min(frames, segment.rest)
            segment.rest -= taken
            frames -= taken


def all_counted(trial: Sequence[Evidence]) -> bool:
    """Whether counters of drops have counted every frame that is missing of any stream."""
    placed = losses(trial)
    return all(
        _counted(one, placed[one.path.name]) == one.sent.frames - (one.received.frames or 0)
        and not placed[one.path.name].overcounted
        for one in trial
    )


def _counted(evidence: Evidence, placed: Placed) -> int:
    """How many frames a NIC or its ring dropped, or one counter that is known."""
    counters = {(one.point.name, one.counter) for one in evidence.growths if one.frames}
    return sum(
        one.frames for one in placed.losses if one.cause in ("", RING_FULL) or (one.point, one.cause) in counters
    )


def _in_order(found: Iterable[Loss]) -> tuple[Loss, ...]:
    """Each place once, along the path."""
    places: dict[str, Loss] = {}
    for loss in found:
        if loss.frames:
            before = places.get(loss.place)
            places[loss.place] = replace(loss, frames=loss.frames + before.frames) if before else loss
    return tuple(sorted(places.values(), key=lambda loss: loss.order))


def _ends(evidence: Evidence) -> _Ends | None:
    source, sink = evidence.trusted("source"), evidence.trusted("sink")
    ingress, egress = evidence.trusted("ingress"), evidence.trusted("egress")
    if source is None or sink is None or evidence.arrived is None:
        return None
    sent = evidence.sent
    # What the NIC dropped was given to it, and the generator may have been told (`errors`) or not.
    others = max(0, source.tx - sent.frames, source.tx + source.tx_dropped - sent.frames - sent.errors)
    within = (ingress, egress) if ingress and egress else None
    entered, left = (ingress.rx, egress.tx) if ingress and egress else (source.tx, sink.rx)
    more_others = max(0, entered - source.tx)
    # Control frames are others' for sure. What looks late may be one of the stream whose address was mangled.
    known = min(evidence.extra_at_sink, evidence.received.control or 0)
    extra, copies = evidence.extra_at_sink - known, (evidence.received.duplicates or 0) + known
    behind = max(0, sink.rx - left)  # what came in behind the UUT never left it
    extra, copies = max(0, extra - behind), max(0, copies - max(0, behind - extra))
    through = min(others + more_others, extra + min(known, copies))
    controls = max(0, through - extra)  # control frames that entered at the source, and came through like others
    copies -= controls
    put_in = max(0, left - copies - entered)  # within the UUT: these are nobody's on this path
    unsure = max(0, extra - (through - controls) - put_in)
    return _Ends(source, within, sink, others, more_others, through, copies, unsure)


def _segments(evidence: Evidence, ends: _Ends) -> Iterator[Segment]:
    """The path from generator to capture, cut wherever frames are counted."""
    source, sink, uut = ends.source, ends.sink, evidence.point(UUT)
    of_source, of_sink = evidence.nic(Where.SOURCE), evidence.nic(Where.SINK)
    unsent = max(0, evidence.sent.frames + ends.others - source.tx)
    yield Segment(uut, unsent, _drops_at(evidence, Where.SOURCE), of_source, source.tx_dropped)
    at_sink = RING_FULL if evidence.has_ring("sink") and sink.rx else ""
    if ends.within:
        ingress, egress = ends.within
        of_ingress = evidence.nic(Where.INGRESS)
        # What is too long for the link never comes in at all.
        cause = RING_FULL if evidence.has_ring("ingress") and ingress.rx else ""
        yield Segment(uut, max(0, source.tx - ingress.rx), (), of_ingress, _refused(ingress), nic_cause=cause)
        yield from _in_uut(evidence, ends, ingress, egress)
        yield Segment(uut, max(0, egress.tx - sink.rx), (), of_sink, _refused(sink), nic_cause=at_sink)
    else:
        missing, name = max(0, source.tx - (sink.rx - ends.copies)), (uut, "source NIC to sink NIC")
        yield Segment(uut, missing, (), of_sink, _refused(sink), nic_cause=at_sink, name=name)
    seen = (evidence.arrived or 0) + (evidence.dropped_by_sink or 0)
    uncaught = max(0, sink.rx - evidence.extra_at_sink - seen)
    yield Segment(uut, uncaught, _drops_at(evidence, Where.SINK))


def _in_uut(evidence: Evidence, ends: _Ends, ingress: NicDelta, egress: NicDelta) -> Iterator[Segment]:
    """The way from ingress to egress NIC, cut at whatever counts the frames that pass; none can that did not enter."""
    first, last = evidence.nic(Where.INGRESS), evidence.nic(Where.EGRESS)
    passed, left = ingress.rx - ends.through, egress.tx - ends.through - ends.copies
    cuts = [(first, passed)]
    for one in evidence.growths:
        within = first.order < one.point.order < last.order and one.point.passing
        if within and (one.role, one.counter) == ("passed", one.point.direction) and one.frames is not None:
            passed = min(passed, max(one.frames - ends.through, left))
            cuts.append((one.point, passed))
    cuts.append((last, min(left, passed)))
    for (start, entered), (end, left_) in pairwise(cuts):
        drops = [one for one in evidence.growths if one.role == "dropped" and _within(one, start, end)]
        name = _named_after(evidence, start, end), f"between {start.name} and {end.name}"
        nic_dropped = egress.tx_dropped if end == last else 0
        yield Segment(evidence.point(UUT), entered - left_, drops, end, nic_dropped, name=name)


def _drops_at(evidence: Evidence, where: Where) -> list[Growth]:
    return [one for one in evidence.growths if one.point.where is where and one.role == "dropped"]


def _refused(nic: NicDelta) -> int:
    return nic.rx_dropped + nic.rx_errors


def _within(one: Growth, start: CountingPoint, end: CountingPoint) -> bool:
    """Whether a counter is in a segment; what is attached where frames come in comes behind the count there."""
    if one.point.where is Where.INGRESS or (one.indiscriminate and one.point.direction == "rx"):
        return one.point == start
    return start.order < one.point.order <= end.order


def _named_after(evidence: Evidence, start: CountingPoint, end: CountingPoint) -> CountingPoint:
    """What the way between two points is named after: nothing in particular where a point between them is not known."""
    names = [one for one in evidence.points if one.names_segment and start.order < one.order < end.order]
    return names[0] if len(names) == 1 else evidence.point(UUT)


def _backlogs(trial: Sequence[Evidence], paths: Sequence[Sequence[Segment]]) -> list[Counter]:
    """The drops of the CPUs' backlogs, which are in those of NICs too: of the source's, and of the ingress NIC.

    On a veth pair a full one shows at both ends: it refuses what the source's NIC hands over, and a source that is told
    of that (`errors`) has not sent it. Another NIC has counted the frames before.
    """
    found: dict[tuple[str, ...], Counter] = {}
    for one, (to_source, to_ingress, behind, *_) in zip(trial, paths, strict=True):
        ingress = one.trusted("ingress")
        for grown in one.growths:
            if ingress and grown.point.kind is Kind.BACKLOG and grown.frames:
                refused = min(to_source.rest, to_source.nic_dropped, ingress.rx_dropped)
                unsent = min(one.sent.errors, to_source.nic_dropped - refused, ingress.rx_dropped - refused)
                counter = found.setdefault(grown.identity, Counter(grown.frames))
                dropped_behind = ingress.rx_dropped - to_ingress.rest - refused - unsent
                told = one.nics["ingress"]
                if one.path.receive == "napi" and told and told.rx_dropped < to_ingress.rest:
                    dropped_behind = told.rx_dropped  # of what the ring had no room for the kernel has not told it
                for segment, most in ((to_source, refused), (behind, dropped_behind)):
                    counter.met[segment], counter.most[segment] = [replace(grown, shared=False)], most
    return list(found.values())


def _claim(path: Sequence[Segment]) -> None:
    """Explain what the unit under test says to have dropped of a stream alone, however much that is."""
    claimed = 0  # beyond what is missing so far: counters may stand on either side of what they explain
    for segment in path:
        if segment.name:
            segment.rest -= claimed
            for one in segment.drops:
                if one.frames and one.exact:
                    segment.explain(one.point, one.counter, one.frames)
            claimed, segment.rest = max(0, -segment.rest), max(0, segment.rest)


def _counters(paths: Iterable[Sequence[Segment]]) -> list[Counter]:
    """All other counters of drops along some paths, each once."""
    found: dict[tuple[str, ...], Counter] = {}
    for segment in (segment for path in paths for segment in path):
        for one in segment.drops:
            if one.frames and not (one.exact and segment.name):
                found.setdefault(one.identity, Counter(one.frames)).met.setdefault(segment, []).append(one)
    return list(found.values())


def _without_others(found: Sequence[Loss], others: int, evidence: Evidence) -> Iterator[Loss]:
    """Of frames lost at these places, those that must be the stream's, when so many `others` may be among them all."""
    sure = [replace(loss, frames=max(0, loss.frames - others)) for loss in found]
    yield from sure
    in_uut = {number for number, loss in enumerate(found) if loss.where not in (Where.SOURCE, Where.SINK)}
    lost_in_uut = max(0, sum(found[number].frames for number in in_uut) - others)
    unsure = lost_in_uut - sum(sure[number].frames for number in in_uut)
    ends = ("ingress", "egress") if evidence.trusted("ingress") and evidence.trusted("egress") else ("source", "sink")
    point = evidence.point(UUT)
    yield Loss(point.name, f"between {ends[0]} NIC and {ends[1]} NIC", point.where, point.order, unsure)
