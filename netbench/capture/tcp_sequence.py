"""Follows the sequence numbers of one direction of a TCP connection, and finds which bytes of a segment are new.

Sequence numbers wrap at 2³² (RFC 9293, section 3.4). Each is converted to an offset in the byte stream: the nearest to
the segment before. The offset of the SYN is 0, that of the first byte 1; without a SYN, the first segment is at 0.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_FIELD, _HALF = 1 << 32, 1 << 31


@dataclass(slots=True)
class NumberReference:
    """A 32-bit number and its offset, next to which further numbers are converted."""

    number: int
    offset: int

    def offset_of(self, number: int) -> int:
        """Return the offset of a number less than 2³¹ away."""
        return self.offset + (number - self.number + _HALF) % _FIELD - _HALF


@dataclass(slots=True)
class ByteStream:
    """One direction of a connection. Offsets are in bytes.

    `reference` is the last segment, `ack_reference` the last acknowledgement of the other direction's bytes that this
    direction sent. All bytes below `top` were seen, except `holes`, ascending ranges. All below `acknowledged` were
    acknowledged. `uncaptured` bytes are acknowledged and not captured; they are no longer holes.
    """

    reference: NumberReference | None = None
    ack_reference: NumberReference | None = None
    origin: int = 0  # the sequence number at offset 0
    top: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    acknowledged: int | None = None
    fin: int | None = None  # the sequence number after the last byte
    bytes: int = 0
    uncaptured: int = 0

    def begin(self, number: int, *, top: int = 0) -> None:
        """Place a sequence number at offset 0."""
        self.reference = NumberReference(number, 0)
        self.origin, self.top = number, top

    def expect_acknowledgements(self, other: "ByteStream") -> None:
        """Place the next acknowledgement near the bytes that `other` has sent so far, unless there was one before."""
        if self.ack_reference is None and other.reference is not None:
            self.ack_reference = NumberReference(other.reference.number, other.reference.offset)

    def extend(self, start: int, stop: int) -> bool:
        """Add contiguous segments if all their bytes are new, and return whether they were added."""
        if start < self.top:
            return False
        if start > self.top:
            self.holes.append((self.top, start))
        self.top = stop
        return True

    def fill(self, start: int, stop: int) -> int:
        """Add a range below `top`, and return how many of its bytes are new."""
        filled, holes = 0, []
        for begin, end in self.holes:
            first, last = max(begin, start), min(end, stop)
            if first >= last:
                holes.append((begin, end))
                continue
            filled += last - first
            holes += [part for part in ((begin, first), (last, end)) if part[0] < part[1]]
        if filled:
            self.holes = holes
        return filled

    def settle(self) -> int:
        """Count the acknowledged holes as not captured, and return their bytes."""
        if self.acknowledged is None or (self.acknowledged <= self.top and not self.holes):
            return 0
        limit, holes, missing = self.acknowledged, [], 0
        if self.fin is not None and self.reference is not None:
            limit = min(limit, self.reference.offset_of(self.fin))
        if limit > self.top + 1:  # by one: the FIN
            self.holes.append((self.top, limit))
            self.top = limit
        for begin, end in self.holes:
            missing += max(min(end, limit) - begin, 0)
            if end > limit:
                holes.append((max(begin, limit), end))
        self.holes = holes
        self.uncaptured += missing
        return missing


def unwrapped(
    numbers: NDArray[np.int64], starts: NDArray[np.intp], references: list[NumberReference]
) -> NDArray[np.int64]:
    """Return the offsets of numbers, int64 of shape (n,), in groups that begin at `starts`, and move the references."""
    steps = np.diff(numbers, prepend=0)
    steps[starts] = numbers[starts] - np.array([reference.number for reference in references])
    steps = ((steps + _HALF) & (_FIELD - 1)) - _HALF
    sums = np.cumsum(steps)
    lengths = np.diff(starts, append=len(numbers))
    base = np.array([reference.offset for reference in references]) - (sums[starts] - steps[starts])
    offsets: NDArray[np.int64] = sums + np.repeat(base, lengths)
    ends = starts + lengths - 1
    for reference, number, offset in zip(references, numbers[ends].tolist(), offsets[ends].tolist(), strict=True):
        reference.number, reference.offset = number, offset
    return offsets


def group_starts(keys: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return where the groups of equal, adjacent keys begin; of shape (groups,)."""
    return np.flatnonzero(np.diff(keys, prepend=keys[0] - 1)) if len(keys) else np.empty(0, np.intp)
