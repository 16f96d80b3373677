"""The frames that a sink expects in a trial. Separate from the counting, which also runs on hosts without pydantic."""

from netbench.capture.capture_counts import ANY_NUMBER, STAMP_TOLERANCE_NS, Expected
from netbench.sinks.base import Incoming


def expected_of(incoming: Incoming) -> Expected:
    """Return the criteria for the stream's own frames, as known before they are sent."""
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
        sent_from_ns=incoming.from_ns + STAMP_TOLERANCE_NS,  # any earlier frame is of another trial
        stamped=incoming.stamps.stamped,
        stamped_early=incoming.stamps.stamped_early,
    )
