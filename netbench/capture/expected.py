"""Which frames of a capture can be a stream's own: what is known of it before it is sent, and after."""

from dataclasses import dataclass

# How far a frame's time stamp may lie outside the time its source says it sent in.
STAMP_TOLERANCE_NS = 2_000_000


@dataclass(frozen=True, slots=True)
class Expected:
    """What a trial knows about one stream: which frames can be its own.

    `frame_size` is in bytes with FCS. Sequence numbers are `sent_frames` consecutive ones from `first_sequence`
    on. The times are CLOCK_REALTIME of the source in ns, which stamped every frame between them, or with 0;
    early stamps are those of EarlyStamps.
    """

    stream: str
    src_ip: str
    dst_ip: str
    frame_size: int
    sent_frames: int
    sent_from_ns: int
    sent_until_ns: int
    first_sequence: int = 0
    stamped: bool = True
    stamped_early: bool = False

    @property
    def sequence(self) -> range:
        """The sequence numbers that were sent."""
        return range(self.first_sequence, self.first_sequence + self.sent_frames)

    @property
    def stamps_us(self) -> range:
        """The time stamps that its frames can bear, in microseconds since 1970."""
        if not self.stamped:
            return range(1)
        earliest = (self.sent_from_ns - STAMP_TOLERANCE_NS) // 1000
        return range(earliest, (self.sent_until_ns + STAMP_TOLERANCE_NS) // 1000 + 1)


@dataclass(frozen=True, slots=True)
class Awaited:
    """What is known of one stream before it is sent, as far as it tells its frames from others.

    A frame stamped before `not_before_ns` (CLOCK_REALTIME of the source) is late from an earlier trial. The other
    fields are those of Expected.
    """

    stream: str
    src_ip: str
    dst_ip: str
    frame_size: int
    not_before_ns: int
    stamped: bool = True
    stamped_early: bool = False
