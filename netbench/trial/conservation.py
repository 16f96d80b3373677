"""Conservation of the parts of a stream's frames: by frame size, and by groups of flows.

The frames of a stream as a whole are accounted in `accounting.py`. Each direction is a separate stream.
"""

from collections.abc import Iterator

from netbench.model.counts import StreamCounts


def imbalances(counts: StreamCounts) -> Iterator[str]:
    """Yield a description of each way to divide the stream's frames whose parts do not add up to the whole.

    The missing frames of all sizes, and of all groups by one varying field, are those of the stream, sent − received.
    These include the frames that the capture dropped.
    """
    sent, received = counts.sent.frames, counts.received.frames
    if received is None:
        return
    missing = sent - received
    arrived = [size.received_frames for size in counts.by_size]
    known = [frames for frames in arrived if frames is not None]
    if counts.by_size and len(known) == len(arrived):
        missing_by_size = sum(size.sent_frames for size in counts.by_size) - sum(known)
        if missing_by_size != missing:
            yield _imbalance("frame sizes", missing_by_size, missing)
    of_packet = counts.received.packet
    if of_packet is None:
        return
    for field in of_packet.groups:
        if field.lost != missing:
            yield _imbalance(f"groups of flows by {field.field}", field.lost, missing)
    lossy = of_packet.lossy_flows
    if lossy is not None and (lossy > max(0, missing) or (lossy == 0) != (missing <= 0)):
        yield f"{lossy:,} flows lost frames, and {missing:,} frames of the stream are missing"


def _imbalance(parts: str, of_parts: int, of_stream: int) -> str:
    return f"all {parts} together miss {of_parts:,} frames, and the stream misses {of_stream:,}"
