"""The frames of a capture in memory, many at a time: raw bytes, selections of them, and decoded pktgen frames.

pktgen's header is 16 bytes after UDP: magic 0xbe9be955, sequence, seconds, microseconds, each 32 bits in network byte
order (`struct pktgen_hdr` in the kernel's net/core/pktgen.c).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.model.traffic import PKTGEN_MAGIC

# The snap length of a file without cut frames.
NO_LIMIT = 2**32 - 1
# The capture time of a frame whose record has none, or one that exceeds 64 bits.
NO_TIME = -(2**63)
INVALID_STAMP = -1  # the time stamp of a frame whose microseconds are a second or more
LEAST_IP_BYTES, UDP_BYTES, PKTGEN_BYTES = 20, 8, 16
IPV4 = 0x0800
VLAN_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)  # 802.1Q, 802.1ad, and its predecessors
U8, U16, U32, U64 = (np.dtype(name) for name in ("u1", ">u2", ">u4", ">u8"))
_NONE = np.empty(0, np.intp)
_MOST_VALUES = 64
_MOST_REASONS = 1024  # that are counted separately in a batch
# The range of the search for pktgen's magic number in frames that are not decoded further.
_SEARCHED_BYTES = 240

HeaderPath = tuple[str, ...]  # the names of the headers around the innermost IP header, the outermost first


class LinkHeader(Enum):
    """The kind of a frame's first header."""

    ETHERNET = auto()
    COOKED = auto()
    COOKED_2 = auto()
    LOOPBACK = auto()
    PPP = auto()
    HDLC = auto()
    RAW_IP = auto()


class LinkType(NamedTuple):
    """A link type of captures: its name, the kind of its header and the length of that in bytes."""

    name: str
    header: LinkHeader
    header_bytes: int


# By number of the link type (draft-ietf-opsawg-pcaplinktype).
LINKS = {
    0: LinkType("BSD loopback", LinkHeader.LOOPBACK, 4),
    1: LinkType("Ethernet", LinkHeader.ETHERNET, 14),
    9: LinkType("PPP", LinkHeader.PPP, 4),
    12: LinkType("raw IP", LinkHeader.RAW_IP, 0),
    14: LinkType("raw IP", LinkHeader.RAW_IP, 0),
    50: LinkType("PPP", LinkHeader.PPP, 4),
    101: LinkType("raw IP", LinkHeader.RAW_IP, 0),
    104: LinkType("Cisco HDLC", LinkHeader.HDLC, 4),
    108: LinkType("OpenBSD loopback", LinkHeader.LOOPBACK, 4),
    113: LinkType("Linux cooked v1", LinkHeader.COOKED, 16),
    228: LinkType("raw IPv4", LinkHeader.RAW_IP, 0),
    229: LinkType("raw IPv6", LinkHeader.RAW_IP, 0),
    276: LinkType("Linux cooked v2", LinkHeader.COOKED_2, 20),
}
_OTHER_LINKS = {105: "IEEE 802.11", 127: "IEEE 802.11 radiotap", 192: "PPI", 239: "NFLOG", 249: "USBPcap"}


def link_name(number: int) -> str:
    """Return the name of a link type."""
    return LINKS[number].name if number in LINKS else _OTHER_LINKS.get(number, f"link type {number}")


class FrameBatch(NamedTuple):
    """Frames in the order of the file.

    `frames` has their first bytes, uint8 of shape (count, width). `captured` is the number of bytes of a frame in the
    file, one number for all or uint32 of shape (count,); further bytes of a row are not the frame's. `original` is the
    length on the link in bytes, uint32 of shape (count,), of which `fcs_bytes` are FCS. If all frames have the same
    length, the array may be one broadcast number (stride 0). `snap_length` is the length to which frames are cut, or
    NO_LIMIT. `times_ns` are capture times, int64 of shape (count,), in nanoseconds since 1970, or NO_TIME. `interface`
    is an index of the reader's `interfaces`.
    """

    link_type: int
    fcs_bytes: int
    snap_length: int
    frames: NDArray[np.uint8]
    captured: int | NDArray[np.uint32]
    original: NDArray[np.uint32]
    times_ns: NDArray[np.int64]
    interface: int = 0

    def only(self, these: NDArray[np.bool_]) -> "FrameBatch":
        """Return the batch reduced to `these` frames, bool of shape (count,)."""
        captured = self.captured if isinstance(self.captured, int) else self.captured[these]
        return self._replace(
            frames=self.frames[these], captured=captured, original=self.original[these], times_ns=self.times_ns[these]
        )


class Rows(NamedTuple):
    """Some frames of a batch; `chosen` are their indices, None for all of them."""

    batch: FrameBatch
    chosen: NDArray[np.intp] | None = None

    @property
    def size(self) -> int:
        """The number of frames."""
        return len(self.batch.frames) if self.chosen is None else len(self.chosen)

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return these frames' elements of an array with one element per frame of the batch."""
        return values if self.chosen is None else values[self.chosen]

    def field(self, dtype: np.dtype[Any], at: int) -> NDArray[Any]:
        """Return the field at byte `at`, in native byte order; all frames must be long enough."""
        return self.of(field(self.batch.frames, dtype, at)).astype(dtype.newbyteorder("="))

    def as_it_lies(self, dtype: np.dtype[Any], at: int) -> NDArray[Any]:
        """Return the field in the byte order of the file, which is sufficient for comparisons."""
        return self.of(field(self.batch.frames, dtype.newbyteorder("="), at))

    def match(self, at: int, wanted: int, dtype: np.dtype[Any], mask: int = -1) -> NDArray[np.bool_]:
        """Return whether the field at byte `at`, masked by `mask`, equals `wanted`.

        The comparison is in the byte order of the file: only the two numbers are converted to it.
        """
        values = self.as_it_lies(dtype, at)
        if mask != -1:
            values = values & _as_it_lies(mask, dtype)
        is_wanted: NDArray[np.bool_] = values == _as_it_lies(wanted, dtype)
        return is_wanted

    def words(self, at: int, count: int) -> NDArray[np.uint32]:
        """Return `count` consecutive 32-bit fields from byte `at` on, in network byte order: shape (n, count)."""
        block = self.of(field(self.batch.frames, np.dtype(f"V{4 * count}"), at))
        return np.ascontiguousarray(block).view(U32).reshape(-1, count)

    def where(self, condition: NDArray[np.bool_]) -> "Rows":
        """Return the frames for which `condition`, bool of shape (n,), is true."""
        if condition.all():
            return self
        indices = np.flatnonzero(condition)
        return Rows(self.batch, indices if self.chosen is None else self.chosen[indices])

    def split(self, condition: NDArray[np.bool_]) -> tuple["Rows", "Rows"]:
        """Return the frames for which `condition`, bool of shape (n,), is true, and the others."""
        if condition.all():
            return self, self.none()
        return self.where(condition), self.where(~condition)

    def without(self, others: "Rows") -> "Rows":
        """Return the frames that are not among `others`, a subset of them."""
        every = np.arange(len(self.batch.frames))
        return self.where(~np.isin(self.of(every), others.of(every)))

    def union(self, parts: "Sequence[Rows]") -> "Rows":
        """Return the frames of disjoint selections of the same batch, in the order of the file."""
        parts = [part for part in parts if part.size]
        if len(parts) < 2:
            return parts[0] if parts else self.none()
        every = np.arange(len(self.batch.frames))
        return Rows(self.batch, np.sort(np.concatenate([part.of(every) for part in parts])))

    def only(self, index: int) -> "Rows":
        """Return the frame at `index` of this selection."""
        return Rows(self.batch, np.array([index if self.chosen is None else self.chosen[index]]))

    def first_bytes(self, index: int) -> tuple[bytes, int]:
        """Return the frame's bytes in memory and its captured length. `index` indexes this selection."""
        row = index if self.chosen is None else int(self.chosen[index])
        captured = self.batch.captured if isinstance(self.batch.captured, int) else int(self.batch.captured[row])
        return self.batch.frames[row, :captured].tobytes(), captured

    def none(self) -> "Rows":
        """Return an empty selection of the same batch."""
        return Rows(self.batch, _NONE)

    def by_value(self, dtype: np.dtype[Any], at: int) -> Iterator[tuple[int, "Rows"]]:
        """Yield each value of the field at byte `at` with its frames; after 64 values, -1 with all other frames."""
        rows, found = self, 0
        while rows.size:
            values = rows.as_it_lies(dtype, at)
            value = int(np.ascontiguousarray(values[:1]).view(dtype)[0])
            found += 1
            if found > _MOST_VALUES:
                yield -1, rows
                return
            same, rows = rows.split(values == values[0])
            yield value, same

    def at_least(self, length: int) -> "Rows":
        """Return the frames of which at least `length` bytes were captured and are in memory."""
        captured = self.batch.captured
        if length > self.batch.frames.shape[1]:
            return self.none()
        if isinstance(captured, int):
            return self if captured >= length else self.none()
        return self.where(self.of(captured) >= length)


class PktgenRows(NamedTuple):
    """Pktgen frames and their fields, in arrays with one element per frame.

    `addresses` are source and destination in the byte order of the file: uint64 of shape (n, 1) for IPv4, (n, 4)
    for IPv6. `sent_us` is in microseconds since 1970, or INVALID_STAMP.
    """

    rows: Rows
    addresses: NDArray[np.uint64]
    sequence: NDArray[np.int64]
    sent_us: NDArray[np.int64]

    @property
    def ip_version(self) -> int:
        """The IP version: 4 or 6."""
        return 4 if self.addresses.shape[1] == 1 else 6

    def where(self, condition: NDArray[np.bool_]) -> "PktgenRows":
        """Return the frames for which `condition`, bool of shape (n,), is true."""
        if condition.all():
            return self
        columns: Any = (column[condition] for column in self[1:])
        return PktgenRows(self.rows.where(condition), *columns)


class BatchTally:
    """The pktgen frames of a batch, and counts of all other frames by protocol.

    `others` counts frames without pktgen's header by protocol. `undecoded` counts frames that may have it after headers
    that are not decoded here. `encapsulated` counts pktgen frames by the headers around their IP header. `too_short`
    counts frames whose captured bytes end before the protocol is known.
    """

    def __init__(self) -> None:
        self.pktgen: list[PktgenRows] = []
        self.others: Counter[str] = Counter()
        self.undecoded: Counter[str] = Counter()
        self.encapsulated: Counter[HeaderPath] = Counter()
        self.too_short = 0

    def add_pktgen(self, rows: Rows, path: HeaderPath, version: int, ip_at: int, pktgen_at: int) -> None:
        """Add pktgen frames with the IP header and pktgen's header at these bytes."""
        header = rows.words(pktgen_at, 4)
        if version == 4:
            addresses = rows.as_it_lies(U64, ip_at + 12).reshape(-1, 1)
        else:
            addresses = np.ascontiguousarray(rows.words(ip_at + 8, 8)).view(np.uint64)
        self.add_fields(rows, addresses, header, path)

    def add_fields(
        self, rows: Rows, addresses: NDArray[np.uint64], header: NDArray[np.uint32], path: HeaderPath
    ) -> None:
        """Add pktgen frames, whose pktgen header is `header`, uint32 of shape (n, 4)."""
        fraction = header[:, 3].astype(np.int64)
        sent_us = header[:, 2].astype(np.int64)
        sent_us *= 1_000_000
        sent_us += fraction
        if fraction.max() >= 1_000_000:
            sent_us[fraction >= 1_000_000] = INVALID_STAMP
        self.pktgen.append(PktgenRows(rows, addresses, header[:, 1].astype(np.int64), sent_us))
        if path:
            self.encapsulated[path] += rows.size

    def add_other(self, rows: Rows, name: str) -> None:
        """Add frames of a protocol; those that contain pktgen's magic number may still be a stream's."""
        hidden = _with_magic(rows) if rows.size else 0
        if rows.size > hidden:
            self.others[name] += rows.size - hidden
        if hidden:
            self.add_undecoded(hidden, f"pktgen's magic number deeper in {name}")

    def add_undecoded(self, frames: int, reason: str) -> None:
        """Add frames that may have pktgen's header after undecoded headers."""
        is_new = reason not in self.undecoded
        self.undecoded["various protocols" if is_new and len(self.undecoded) >= _MOST_REASONS else reason] += frames


def address_text(address: int, ip_version: int = 4) -> str:
    """Return an IP address as text."""
    if ip_version == 4:
        return ".".join(map(str, address.to_bytes(4)))
    import ipaddress  # noqa: PLC0415 - takes longer to load than a short capture to count, and is rarely needed

    return str(ipaddress.IPv6Address(address))


def field(rows: NDArray[np.uint8], dtype: np.dtype[Any], at: int) -> NDArray[Any]:
    """Return the field at byte `at` of every row, as a view of shape (count,)."""
    column: NDArray[Any] = rows[:, at : at + dtype.itemsize].view(dtype)[:, 0]
    return column


def is_one_number(values: NDArray[Any]) -> bool:
    """Return True if the array, of shape (n,) with n > 0, is one broadcast number (stride 0)."""
    return values.strides == (0,)


def _as_it_lies(number: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return `number` encoded in the byte order of `dtype` and read back in native order."""
    return np.array(number, dtype).view(dtype.newbyteorder("="))


def _with_magic(rows: Rows) -> int:
    """Return how many frames contain pktgen's magic number, in either byte order, in their first bytes."""
    first_bytes = np.ascontiguousarray(rows.of(rows.batch.frames[:, :_SEARCHED_BYTES]))
    memory = first_bytes.tobytes()
    magics = PKTGEN_MAGIC.to_bytes(4, "big"), PKTGEN_MAGIC.to_bytes(4, "little")
    if not any(magic in memory for magic in magics):
        return 0
    captured = rows.batch.captured
    ends = np.full(rows.size, captured) if isinstance(captured, int) else rows.of(captured)
    has_magic = np.zeros(rows.size, np.bool_)
    for at in range(first_bytes.shape[1] - 3):
        words = first_bytes[:, at : at + 4].view(U32)[:, 0]
        has_magic |= ((words == PKTGEN_MAGIC) | (words == int.from_bytes(magics[1]))) & (ends >= at + 4)
    return int(np.count_nonzero(has_magic))
