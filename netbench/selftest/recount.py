"""Counts captures of a self-test once more by dpkt, frame by frame: the counts by numpy must be the same."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

import dpkt

from netbench.model.counts import StreamCounts
from netbench.model.selftest_record import SelftestCheck
from netbench.model.traffic import PKTGEN_MAGIC
from netbench.model.trial import TrialResult
from netbench.selftest.trials import complaints

_MAGIC = PKTGEN_MAGIC.to_bytes(4)


@dataclass(frozen=True, slots=True)
class StreamRecount:
    """The frames of one stream in a capture: distinct ones, further copies, and reordered ones (RFC 4737)."""

    frames: int
    duplicates: int
    reordered: int

    def __str__(self) -> str:
        return f"{self.frames:,} received, {self.duplicates:,} duplicates, {self.reordered:,} reordered"


def recount(capture: Path) -> StreamRecount | None:
    """Count the pair of addresses with the most numbered frames in a pcap or pcapng; None if there are none.

    A frame is reordered if a higher number arrived before its first copy (RFC 4737, section 3.3). ValueError for a file
    that dpkt cannot read.
    """
    numbers: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    with capture.open("rb") as file:
        for _, frame in dpkt.pcap.UniversalReader(file):
            for addresses, number in _numbered(frame):
                numbers[addresses].append(number)
    if not numbers:
        return None
    arrived = max(numbers.values(), key=len)
    first_copies = list(dict.fromkeys(arrived))
    highest, reordered = -1, 0
    for number in first_copies:
        reordered += number < highest
        highest = max(highest, number)
    return StreamRecount(len(first_copies), len(arrived) - len(first_copies), reordered)


def judge_recount(result: TrialResult, captures: Path) -> SelftestCheck:
    """Check that a recount of a trial's captures gives the counts of the trial; skipped if the sink stores none."""
    files = {counts.stream: _capture_of(counts, captures) for counts in result.streams}
    common: dict[str, str] = {"name": "recount by dpkt", "uut": result.spec.uut}
    if None in files.values():
        return SelftestCheck(**common, passed=None, detail="skipped: this kind of sink stores no captures")
    recounts = {stream: recount(file) for stream, file in files.items() if file is not None}
    counted = {
        counts.stream: StreamRecount(received.frames, received.duplicates or 0, received.reordered or 0)
        for counts in result.streams
        if (received := counts.received).frames is not None
    }
    detail = ""
    if counted != recounts:
        disagree = "netbench and dpkt counted the same captures and disagree: please report it"
        detail = disagree if len(counted) == len(recounts) else complaints(result)
    return SelftestCheck(
        **common, truth=_text(recounts), measured=_text(counted), passed=counted == recounts, detail=detail
    )


def _capture_of(counts: StreamCounts, captures: Path) -> Path | None:
    return next(captures.glob(f"trial-*-{counts.stream}.pcap"), None)


def _numbered(frame: bytes) -> Iterator[tuple[tuple[bytes, bytes], int]]:
    """Yield the addresses and the number of a frame with pktgen's header; nothing for other frames."""
    try:
        ip = dpkt.ethernet.Ethernet(frame).data
    except dpkt.UnpackError:
        return  # too short for Ethernet: not a stream's
    udp = getattr(ip, "data", None)
    if isinstance(ip, dpkt.ip.IP) and isinstance(udp, dpkt.udp.UDP) and udp.data[:4] == _MAGIC:
        yield (ip.src, ip.dst), int.from_bytes(udp.data[4:8])


def _text(by_stream: Mapping[str, StreamRecount | None]) -> str:
    """Return the counts of all streams together."""
    known = [counts for counts in by_stream.values() if counts is not None]
    if len(known) < len(by_stream) or not known:
        return "unknown"
    return str(StreamRecount(*(sum(numbers) for numbers in zip(*map(astuple, known), strict=True))))
