"""Counts captures of a self-test once more by dpkt, frame by frame: the counts by numpy must be the same."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import dpkt

from netbench.model.counts import StreamCounts
from netbench.model.selftest_record import SelftestCheck
from netbench.model.traffic import PKTGEN_MAGIC
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.selftest.trials import complaints

_MAGIC = PKTGEN_MAGIC.to_bytes(4)


@dataclass(frozen=True, slots=True)
class StreamRecount:
    """The frames of one stream: distinct ones, further copies, and reordered ones (RFC 4737); None is unknown."""

    frames: int | None
    duplicates: int | None
    reordered: int | None

    def agrees_with(self, other: "StreamRecount") -> bool:
        """Return whether all numbers that both know are equal."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return all(mine == others for mine, others in pairs if mine is not None and others is not None)


def recount(capture: Path) -> StreamRecount:
    """Count the pair of addresses with the most numbered frames in a pcap or pcapng; all 0 if there are none.

    A frame is reordered if a higher number arrived before its first copy (RFC 4737, section 3.3). OSError, ValueError
    or dpkt.Error for a file that dpkt cannot read.
    """
    numbers: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    with capture.open("rb") as file:
        for _, frame in dpkt.pcap.UniversalReader(file):
            for addresses, number in _numbered(frame):
                numbers[addresses].append(number)
    arrived = max(numbers.values(), key=len, default=[])
    first_copies = list(dict.fromkeys(arrived))
    highest, reordered = -1, 0
    for number in first_copies:
        reordered += number < highest
        highest = max(highest, number)
    return StreamRecount(len(first_copies), len(arrived) - len(first_copies), reordered)


def judge_recount(result: TrialResult, captures: Path) -> SelftestCheck:
    """Check that a recount of a trial's captures gives the counts of the trial; skipped if the sink stores none."""
    common: dict[str, str] = {"name": "recount by dpkt", "uut": result.spec.uut}
    if result.verdict is Verdict.INVALID:
        return SelftestCheck(**common, passed=False, detail=complaints(result))
    files = [capture_of(counts, captures) for counts in result.streams]
    if None in files:
        return SelftestCheck(**common, passed=None, detail="skipped: this kind of sink stores no captures")
    try:
        recounts = [recount(file) for file in files if file is not None]
    except (OSError, ValueError, dpkt.Error) as error:
        detail = f"dpkt cannot read the capture: {type(error).__name__}: {error}"
        return SelftestCheck(**common, passed=False, detail=detail)
    counted = [
        StreamRecount(received.frames, received.duplicates, received.reordered)
        for received in (counts.received for counts in result.streams)
    ]
    agree = all(mine.agrees_with(others) for mine, others in zip(counted, recounts, strict=True))
    return SelftestCheck(
        **common,
        truth=_text(recounts),
        measured=_text(counted),
        passed=agree,
        detail="" if agree else "netbench and dpkt counted the same captures and disagree: please report it",
    )


def capture_of(counts: StreamCounts, captures: Path) -> Path | None:
    """Return the capture that a trial's sink stored of a stream; None if it stored none."""
    return next(captures.glob(f"trial-{'[0-9]' * 6}-{counts.stream}.pcap"), None)


def _numbered(frame: bytes) -> Iterator[tuple[tuple[bytes, bytes], int]]:
    """Yield the addresses and the number of a frame with pktgen's header; nothing for other frames."""
    try:
        ip = dpkt.ethernet.Ethernet(frame).data
    except dpkt.UnpackError:
        return  # too short for Ethernet: not a stream's
    udp = getattr(ip, "data", None)
    if isinstance(ip, dpkt.ip.IP) and isinstance(udp, dpkt.udp.UDP) and udp.data[:4] == _MAGIC:
        yield (ip.src, ip.dst), int.from_bytes(udp.data[4:8])


def _text(streams: Sequence[StreamRecount]) -> str:
    """Return the counts of all streams together."""
    kinds = ("received", "duplicates", "reordered")
    columns = zip(kinds, zip(*map(astuple, streams), strict=True), strict=True)
    return ", ".join(f"{'unknown' if None in numbers else f'{sum(numbers):,}'} {kind}" for kind, numbers in columns)
