"""From what a trial sends to what a sink expects. Apart from what counts captures, also on hosts without pydantic."""

from netbench.capture.captured import ANY_NUMBER, STAMP_TOLERANCE_NS, Expected
from netbench.sinks.base import Incoming


def expected_of(incoming: Incoming) -> Expected:
    """What can be the stream's own, as far as it is known before it is sent."""
    frames, first = incoming.traffic.frames, incoming.stamps.first_sequence
    if frames is None or first is None:
        frames, first = ANY_NUMBER, 0
    return Expected(
        stream=incoming.path.name,
        src_ip=incoming.traffic.src_ip,
        dst_ip=incoming.traffic.dst_ip,
        frame_size=incoming.traffic.frame_size,
        sent_frames=frames,
        first_sequence=first,
        sent_from_ns=incoming.from_ns + STAMP_TOLERANCE_NS,  # earlier ones, by however little, are of another trial
        stamped=incoming.stamps.stamped,
        stamped_early=incoming.stamps.stamped_early,
    )
