"""The counts of a capture that nobody made."""

from netbench.capture.captured import CaptureCounts, Span, StreamCapture


def captured(received: int = 1000, duplicates: int = 0, foreign: int = 0) -> CaptureCounts:
    """What of stream s1 arrived, in frames, with 3 reordered and 2 loss runs of at most 4."""
    span = Span(received + duplicates, 0, None, None, 5, 6)
    stream = StreamCapture(
        stream="s1",
        src_ip="",
        dst_ip="",
        received=received,
        duplicates=duplicates,
        reordered=3,
        reordering_extent=None,
        missing=0,
        loss_runs=2,
        longest_loss_run=4,
        loss_run_lengths=(),
        min_seq=0,
        max_seq=0,
        span=span,
        delay=None,
        ipdv=None,
    )
    return CaptureCounts(
        flavour="pcap",
        link_types=(),
        snap_length=64,
        span=span,
        foreign_frames=foreign,
        flush_frames=0,
        too_short_frames=0,
        odd_length_frames=0,
        leftover_bytes=0,
        damaged_at=None,
        damage="",
        unknown_blocks={},
        capture_dropped_frames=None,
        streams=(stream,),
    )
