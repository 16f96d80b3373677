"""Judges the path of a stream: its NICs and links, the tester's own machines, and programs and counters of others."""

from collections.abc import Iterator

from netbench.model.counts import DropKind, StreamCounts
from netbench.model.points import OTHERHOST, PathSection
from netbench.model.verdict import Finding, ReasonKind
from netbench.trial.observation import RESET, UNCOUNTED, StreamObservation


def path_findings(evidence: StreamObservation, counts: StreamCounts) -> Iterator[Finding]:
    """Yield the findings about the path of a stream."""
    yield from _tester_findings(evidence, counts)
    yield from _link_findings(evidence)
    yield from _addressing_findings(evidence, counts)
    yield from _program_findings(evidence, counts)


def _tester_findings(evidence: StreamObservation, counts: StreamCounts) -> Iterator[Finding]:
    """Yield a finding for each loss and each foreign drop counter at the tester's own NICs, outside the UUT."""
    for loss in counts.lost_at:
        if loss.where is PathSection.SINK:
            yield ReasonKind.TESTER_DROPPED, f"{loss.frames:,} frames were lost at the {loss.place}: the tester's loss"
    for drops in evidence.growths:
        if (
            drops.point.where in (PathSection.SOURCE, PathSection.SINK)
            and drops.role in ("dropped", "repeated")
            and drops.frames
        ):
            yield (
                ReasonKind.TESTER_DROPPED,
                f"{drops.counter} dropped {drops.frames:,} frames at the {drops.point.name}: a rule or queue of the "
                "tester's machine, not of the UUT; remove it",
            )


def _link_findings(evidence: StreamObservation) -> Iterator[Finding]:
    for role, nic in evidence.nics.items():
        interface = evidence.path.nics[role].interface
        if nic is None:
            yield ReasonKind.LINK_CHANGED, f"{role} NIC {interface} is gone"
        elif not nic.trustworthy:
            mac = f"; its MAC address was {nic.changed_mac[0]} and is {nic.changed_mac[1]}" if nic.changed_mac else ""
            yield ReasonKind.LINK_CHANGED, f"{role} NIC {interface} was replaced or its counters were reset{mac}"
        elif nic.changed_mac:
            yield (
                ReasonKind.LINK_CHANGED,
                f"{role} NIC {interface} has the MAC address {nic.changed_mac[1]}, and had {nic.changed_mac[0]} when "
                "the UUT became ready; find out what changed it (udev, NetworkManager) and run the campaign again",
            )
        elif not nic.up or nic.carrier_changes:
            yield ReasonKind.LINK_DOWN, f"{role} NIC {interface} lost its link"
        elif nic.carrier_changes is None:
            yield (
                ReasonKind.LINK_UNKNOWN,
                f"the link of {role} NIC {interface} was up before and after; its kernel counts no changes in between",
            )


def _addressing_findings(evidence: StreamObservation, counts: StreamCounts) -> Iterator[Finding]:
    """Yield a finding if a NIC of the UUT received frames for another MAC address."""
    for loss in counts.lost_at:
        if loss.dropper is DropKind.COUNTER and loss.cause == OTHERHOST:
            yield (
                ReasonKind.LINK_CHANGED,
                f"{loss.frames:,} frames to {evidence.traffic.dst_mac} were dropped at the {loss.point} as frames for "
                f"another MAC address; check whether the NIC still has the address {evidence.traffic.dst_mac}",
            )


def _program_findings(evidence: StreamObservation, counts: StreamCounts) -> Iterator[Finding]:
    """Yield a finding for each foreign BPF program that may have dropped frames of the stream."""
    for drops in evidence.growths:
        if drops.is_foreign_program:
            frames = sum(loss.frames for loss in counts.lost_at if drops.counter in loss.counters)
            if frames:
                detail = f"{drops.counter} is not netbench's and may have dropped {frames:,} frames; remove it"
                yield ReasonKind.FOREIGN_PROGRAM, detail


def counter_findings(evidence: StreamObservation) -> Iterator[Finding]:
    """Yield a finding for each drop counter that was reset, removed or replaced while frames were lost."""
    changed = {
        drops.identity or (drops.point.name, drops.counter): drops
        for drops in evidence.growths
        if drops.role == "dropped" and (drops.went_back or drops.silent not in ("", UNCOUNTED))
    }
    for drops in changed.values():
        yield (
            ReasonKind.UNEXPLAINED_FRAMES,
            f"{drops.counter} at the {drops.point.name}, {drops.silent or RESET}: where frames were lost is uncertain",
        )
