"""What the readers of all capture formats share: the batches they yield and how they end.

In this package, what is made for every batch is a NamedTuple: to make the class and its instances
costs a fraction of a frozen dataclass's, which shows in the time a short capture takes.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from netbench.capture.window import Window

# libpcap's MAXIMUM_SNAPLEN and Wireshark's WTAP_MAX_PACKET_SIZE_STANDARD: no Ethernet capture has more.
MAX_CAPTURED = 262_144
# Segmentation offload hands over up to some hundred kilobytes as one "frame"; nothing comes near this.
MAX_ORIGINAL = 1 << 24
# A run shorter than this is read faster record by record than as a batch of its own.
SHORTEST_RUN = 1024
# Records that one walk collects before they are analysed together.
WALK_RECORDS = 8192
# What of a record is ever looked at: 28 bytes of block header, then at most 112 of the frame.
GATHERED_BYTES = 144


# The snap length of a file that cuts nothing.
NO_LIMIT = 2**32 - 1


class FrameBatch(NamedTuple):
    """Frames in the order of the file.

    `frames` holds their first bytes, uint8 of shape (count, width). `captured` is how many bytes of a
    frame the file has, one number for all or uint32 of shape (count,); of a row, bytes behind them are
    not the frame's. `original` is how many bytes it had on the link, uint32 of shape (count,), of
    which `fcs_bytes` are FCS. `snap_length` is where its interface cuts frames, NO_LIMIT if nowhere,
    one number or one each. `times_ns` says when it was captured, int64 of shape (count,), in
    nanoseconds since 1970; None where the file does not tell.
    """

    link_type: int
    fcs_bytes: int
    snap_length: int | NDArray[np.uint32]
    frames: NDArray[np.uint8]
    captured: int | NDArray[np.uint32]
    original: NDArray[np.uint32]
    times_ns: NDArray[np.int64] | None


class Ending(NamedTuple):
    """How reading ended.

    `leftover_bytes` follow the last whole record: 0 when the file is complete. `damage` says what is
    wrong at byte `damaged_at`, where the file stopped making sense; None and empty when it did not.
    """

    leftover_bytes: int = 0
    damaged_at: int | None = None
    damage: str = ""


class Reader(Protocol):
    """One capture file being read, whatever its format."""

    @property
    def flavour(self) -> str:
        """The format in words: container, time resolution, byte order."""

    @property
    def ending(self) -> Ending:
        """How the file ended; known once batches() is exhausted."""

    @property
    def link_types(self) -> tuple[int, ...]:
        """Link types of the interfaces in the file, without repetition."""

    @property
    def snap_length(self) -> int | None:
        """The largest snap length of its interfaces in bytes; None when frames are not cut."""

    @property
    def dropped(self) -> int | None:
        """Frames that the capturing side says it dropped; None where it does not say."""

    @property
    def unknown_blocks(self) -> dict[int, int]:
        """How many blocks were skipped because their type is not known, by type."""

    def batches(self) -> Iterator[FrameBatch]:
        """All frames; a batch is valid until the next one is asked for."""


def nonsense(captured: int, original: int) -> str:
    """What is wrong with the two lengths of a record; empty when they can be true."""
    if captured > MAX_CAPTURED:
        return f"a captured length of {captured} bytes, more than any capture tool writes ({MAX_CAPTURED})"
    if not 0 < original <= MAX_ORIGINAL:
        return f"a frame of {original} bytes"
    if captured > original:
        return f"{captured} bytes captured of a frame of {original}"
    return ""


def sensible(captured: NDArray[np.uint32] | int, original: NDArray[np.uint32]) -> int:
    """How many leading records have lengths that nonsense() finds nothing wrong with."""
    return leading((captured <= MAX_CAPTURED) & (original >= np.maximum(captured, 1)) & (original <= MAX_ORIGINAL))


def leading(condition: NDArray[np.bool_]) -> int:
    """How many leading elements are true."""
    return len(condition) if condition.all() else int(condition.argmin())


def records(window: Window, stride: int, count: int) -> NDArray[np.uint8]:
    """The next `count` records of `stride` bytes each: a view on the window, of shape (count, stride)."""
    flat = window.memory[window.start : window.start + count * stride]
    return flat.reshape(count, stride)


def gather(window: Window, positions: Sequence[int]) -> NDArray[np.uint8]:
    """The first GATHERED_BYTES from each position of the window's memory: a copy, one row for each."""
    everywhere = np.ndarray((len(window.memory) - GATHERED_BYTES + 1,), f"V{GATHERED_BYTES}", window.memory, 0, (1,))
    rows = everywhere[np.array(positions, np.intp)]
    return rows.view(np.uint8).reshape(len(positions), GATHERED_BYTES)


def field(rows: NDArray[np.uint8], dtype: np.dtype[Any], at: int) -> NDArray[Any]:
    """The field at byte `at` of every row, as a view of shape (count,)."""
    column: NDArray[Any] = rows[:, at : at + dtype.itemsize].view(dtype)[:, 0]
    return column
