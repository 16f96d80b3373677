"""Where the frames of one stream died, by the counters along its path.

The path is cut into stretches by what is counted as it passes: sent, source NIC, ingress NIC, taps and NICs of a guest,
egress NIC, sink NIC, captured. What is missing at the end of a stretch died in it. Counters of drops within the stretch
say why; frames missing inside the unit under test beyond those are its loss all the same, named after the stretch.
Missing on a cable, or behind the sink NIC, nothing explains them: they are left over.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from netbench.model.counts import HopLoss
from netbench.model.points import INSIDE, rank
from netbench.trial.evidence import UNCOUNTED, Evidence, Growth, NicDelta

# The hop that frames are in between two others that count what passes; between any others it is the unit under test.
_BETWEEN = {
    ("ingress NIC", "ingress tap"): "bridge",
    ("ingress tap", "guest ingress NIC"): "VMM ingress",
    ("guest ingress NIC", "guest egress NIC"): "guest",
    ("guest egress NIC", "egress tap"): "VMM egress",
    ("egress tap", "egress NIC"): "egress bridge",
}
_STATIONS = ("ingress tap", "guest ingress NIC", "guest egress NIC", "egress tap")
_MOST_NAMED = 3  # of those that may have dropped a frame
_BACKLOG = "softnet backlog (dropped)"


class _Station(NamedTuple):
    """A hop that counts what passes, and how many frames of the stream did."""

    hop: str
    passed: int


def losses(evidence: Evidence) -> tuple[HopLoss, ...]:
    """Loss by hop, from the source on, hops without any left out; none where it cannot be known.

    Frames that are not the stream's are taken out of the counters they passed. The sum can differ from what the stream
    lost: more died where nothing counts, or counters claim more than is missing.
    """
    found = [loss for loss in _losses(evidence) if loss.frames]
    return tuple(sorted(found, key=lambda loss: rank(loss.hop)))


def _losses(evidence: Evidence) -> Iterator[HopLoss]:
    source, sink = evidence.trusted("source"), evidence.trusted("sink")
    if source is None or sink is None or evidence.arrived is None:
        return
    foreign_in = max(0, source.tx - evidence.sent.frames)
    extra_out = evidence.extra_at_sink + (evidence.received.duplicates or 0)
    ingress, egress = evidence.trusted("ingress"), evidence.trusted("egress")
    unsent = max(0, evidence.sent.frames - source.tx)
    # On a veth pair a full backlog shows at both ends: it refuses what the source's NIC hands over.
    refused = min(unsent, source.tx_dropped, ingress.rx_dropped if ingress else 0, _backlog(evidence))
    yield HopLoss(_BACKLOG, refused)
    yield from _at_nic(evidence, "source NIC", source.tx_dropped - refused, unsent - refused)
    if ingress is None or egress is None:
        between = max(0, source.tx - foreign_in - (sink.rx - extra_out))
        at_sink = min(_refused(sink), between)
        yield HopLoss(f"{INSIDE} (source NIC to sink NIC)", between - at_sink)
        yield HopLoss("sink NIC", at_sink)
        return
    extra_out = max(0, extra_out - max(0, sink.rx - egress.tx))  # what came in behind the UUT never left it
    yield from _at_nic(evidence, "ingress NIC", _refused(ingress), source.tx - ingress.rx, behind=False)
    entered = ingress.rx - foreign_in
    # Of a NIC that counts a frame before it goes into the backlog.
    behind = min(max(0, ingress.rx_dropped - max(0, source.tx - ingress.rx) - refused), _backlog(evidence) - refused)
    dropped = min(behind, max(0, entered - (egress.tx - extra_out)))
    yield HopLoss(_BACKLOG, dropped)
    yield from _inside(evidence, entered - dropped, egress.tx - extra_out, egress.tx_dropped)
    yield from _at_nic(evidence, "sink NIC", _refused(sink), egress.tx - sink.rx, behind=False)
    yield from _at_nic(evidence, "sink NIC", 0, sink.rx - evidence.extra_at_sink - _seen(evidence))


def _backlog(evidence: Evidence) -> int:
    """Frames that the CPUs' backlogs had no room for, of this stream and others."""
    return sum(one.frames or 0 for one in evidence.growths if one.hop == "softnet backlog")


def _seen(evidence: Evidence) -> int:
    """Frames that came as far as the sink, whether it counted or dropped them."""
    return (evidence.arrived or 0) + (evidence.dropped_by_sink or 0)


def _refused(nic: NicDelta) -> int:
    return nic.rx_dropped + nic.rx_errors


def _at_nic(evidence: Evidence, hop: str, counted: int, missing: int, *, behind: bool = True) -> Iterator[HopLoss]:
    """What of the missing frames a NIC of the tester, or what is attached to it, says that it dropped.

    `counted` are the NIC's own drops; what is attached to it drops frames before they leave, and `behind` it when they
    came in. Both may be of others: more than is missing they cannot explain.
    """
    missing = max(0, missing)
    here = [one for one in evidence.growths if one.hop == hop and one.role == "dropped"] if behind else []
    for one in here:
        explained = min(one.frames or 0, missing)
        missing -= explained
        yield HopLoss(f"{hop} ({one.counter})", explained)
    explained = min(counted, missing)
    yield HopLoss(hop, explained)
    silent = [one for one in here if one.silent]
    if silent:
        yield HopLoss(_suspected(silent), missing - explained)


def _inside(evidence: Evidence, entered: int, left: int, egress_dropped: int) -> Iterator[HopLoss]:
    """Loss from ingress to egress NIC, stretch by stretch."""
    claimed = 0  # by counters, beyond what is missing so far: they may stand on either side of what they explain
    for start, end in pairwise(_stations(evidence.growths, entered, left)):
        here = [one for one in evidence.growths if one.role == "dropped" and _within(one, start, end)]
        rest = start.passed - end.passed - claimed
        for one in here:
            if one.frames and not one.shared:
                explained = min(one.frames, max(0, rest)) if one.indiscriminate else one.frames
                rest -= explained
                yield HopLoss(f"{one.hop} ({one.counter})", explained)
        claimed = max(0, -rest)
        rest = max(0, rest)
        at_nic = min(egress_dropped, rest) if end.hop == "egress NIC" else 0
        yield HopLoss(_named(here, start, end, evidence.stack), rest - at_nic)
        yield HopLoss("egress NIC", at_nic)


def _stations(growths: Iterable[Growth], entered: int, left: int) -> Iterator[_Station]:
    """What counts the stream's frames on their way through; none can have passed that did not enter."""
    passed = entered
    yield _Station("ingress NIC", passed)
    for one in growths:
        if one.hop in _STATIONS and one.role == "passed" and one.frames is not None:
            passed = min(passed, max(one.frames, left))
            yield _Station(one.hop, passed)
    yield _Station("egress NIC", min(left, passed))


def _within(one: Growth, start: _Station, end: _Station) -> bool:
    """Whether a counter's hop is in a stretch; what is attached where frames come in comes behind the count there."""
    if one.hop == "ingress NIC" or (one.hop == "egress tap" and one.indiscriminate):
        return one.hop == start.hop
    return rank(start.hop) < rank(one.hop) <= rank(end.hop)


def _named(here: Sequence[Growth], start: _Station, end: _Station, stack: str) -> str:
    """Where frames died that no counter of the stream's own tells of."""
    suspects = [one for one in here if one.silent or (one.shared and one.frames)]
    if suspects:
        return _suspected(suspects)
    hop = _BETWEEN.get((start.hop, end.hop), stack)
    return f"{hop} (between {start.hop} and {end.hop})"


def _suspected(suspects: Sequence[Growth]) -> str:
    """The hop of those that may have dropped a frame, where they share one, and who they are."""
    hops = {one.hop for one in suspects}
    names = [one.counter if len(hops) == 1 else f"{one.hop}: {one.counter}" for one in suspects]
    if len(names) > _MOST_NAMED:
        names[_MOST_NAMED - 1 :] = [f"{len(names) - _MOST_NAMED + 1} more"]
    whys = dict.fromkeys(one.silent or "counted for all streams" for one in suspects)
    why = "which do not count" if len(suspects) > 1 and set(whys) == {UNCOUNTED} else " or ".join(whys)
    return f"{hops.pop() if len(hops) == 1 else INSIDE} ({' or '.join(names)}, {why})"
