"""Counts of frames with described headers: changed fields, order within flows, loss by flow.

numpy compares whole batches, column by column: a column is a few bytes at one offset of all frames. It imports only
numpy and the standard library: other hosts load it.
"""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.changed_values import FirstChange, changed_field, changed_headers
from netbench.capture.flow_groups import flow_losses
from netbench.capture.frames import U16, U32, U64, Rows
from netbench.capture.headers import StreamFrames
from netbench.capture.sequences import Arrivals, SequenceTracker
from netbench.model.frame_size import MIN_FRAME_SIZE, FrameSize
from netbench.model.frame_template import Checksum, ExpectedHeaders, FieldPlace, FrameTemplate, VaryingPlace
from netbench.model.packet_counts import OTHER_HEADERS, PacketCounts
from netbench.packets.flow_values import FlowBytes, checksums_of, flow_bytes, frame_of_flow

_WORD_BYTES = 8
_NO_NUMBER = -1


class _Field(NamedTuple):
    """The bits of a field within a column."""

    name: str
    bits: np.unsignedinteger[Any]


class _Column:
    """Bytes at one offset of all frames: `mask` has the bits that are compared, in the byte order of the file."""

    def __init__(self, at: int, dtype: np.dtype[Any], mask: bytes, compared: tuple[FieldPlace, ...]) -> None:
        self.at, self._dtype = at, dtype
        self._mask = _number(mask, dtype)
        self._is_whole = mask == b"\xff" * dtype.itemsize
        fields = ((place.name, _field_bits(place, at, dtype.itemsize)) for place in compared)
        self._fields = [_Field(name, _number(bits, dtype)) for name, bits in fields if any(bits)]

    def of(self, frame: bytes) -> np.unsignedinteger[Any]:
        """Return the bytes of a frame in this column, in the byte order of the file."""
        return _number(frame[self.at : self.at + self._dtype.itemsize], self._dtype)

    def differing(self, rows: Rows, expected: NDArray[Any] | np.unsignedinteger[Any]) -> NDArray[Any] | None:
        """Return the bits in which frames differ from the expected ones, of shape (n,); None if there are none."""
        bits = rows.as_it_lies(self._dtype, self.at) ^ expected
        if not self._is_whole:
            bits &= self._mask
        return bits if bits.any() else None

    def fields(self, bits: NDArray[Any]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield each field that is in this column, with which frames differ in it."""
        for field in self._fields:
            is_changed = bits & (field.bits & self._mask) != 0
            if is_changed.any():
                yield field.name, is_changed


class _SizeColumns(NamedTuple):
    """The columns of the frames of one sent size: constant ones, those of flows' words, and those of checksums."""

    constants: list[tuple[_Column, np.unsignedinteger[Any]]]
    sums: list[tuple[_Column, NDArray[np.uint16]]]  # with the checksum of each flow, as it lies in the frame


class HeaderComparison:
    """Compares frames with the template of their size and flow."""

    def __init__(self, headers: ExpectedHeaders) -> None:
        self._template = template = headers.template
        self._flows = _flow_bytes_of(template)
        mask = bytearray(b"\xff" * template.payload_at)
        for start, stop in headers.ignored:
            mask[start:stop] = bytes(len(mask[start:stop]))
        self._words = []
        for number, at in enumerate(self._flows.words_at):
            column = _Column(at, U32, bytes(mask[at : at + 4]).ljust(4, b"\0"), headers.compared)
            self._words.append((column, np.ascontiguousarray(self._flows.words[:, number])))
        self._sums = [_Column(at, U16, bytes(mask[at : at + 2]), headers.compared) for at in self._flows.sums_at]
        for at, width in (*((at, 4) for at in self._flows.words_at), *((at, 2) for at in self._flows.sums_at)):
            mask[at : at + width] = bytes(len(mask[at : at + width]))
        self._constants = list(_constant_columns(bytes(mask), headers.compared))
        self._sizes = {size: self._of_size(frame) for size, frame in template.frames.items()}

    def _of_size(self, frame: bytes) -> _SizeColumns:
        numbers = checksums_of(self._flows, frame)
        sums = [
            (column, np.ascontiguousarray(numbers[:, place]).astype(U16).view(np.uint16))
            for place, column in enumerate(self._sums)
        ]
        return _SizeColumns([(column, column.of(frame)) for column in self._constants], sums)

    def changes(
        self, rows: Rows, size: int, flows: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.bool_] | None, dict[str, NDArray[np.bool_]]]:
        """Return which frames of one sent size differ, of shape (n,), None if none does, and those of each field.

        `flows` are the frames' flows, None if there is only one.
        """
        of_size = self._sizes[size]
        of_flows: list[tuple[_Column, NDArray[Any]]] = [] if flows is None else [*self._words, *of_size.sums]
        columns: Iterator[tuple[_Column, Any]] = chain(
            of_size.constants, ((column, values[flows]) for column, values in of_flows)
        )
        changed: NDArray[np.bool_] | None = None
        by_field: dict[str, NDArray[np.bool_]] = {}
        for column, expected in columns:
            bits = column.differing(rows, expected)
            if bits is None:
                continue
            changed = bits != 0 if changed is None else changed | (bits != 0)
            for name, these in column.fields(bits):
                by_field[name] = by_field[name] | these if name in by_field else these
        return changed, by_field

    def frame(self, size: int, flow: int) -> bytes:
        """Return the frame of one sent size and flow as it should arrive."""
        return frame_of_flow(self._flows, self._template.frames[size], flow)


class PacketTally:
    """Counts changed fields and the order in flows of described frames, batch by batch in constant memory."""

    def __init__(self, headers: ExpectedHeaders, frame_size: FrameSize) -> None:
        self._headers, self._frame_size = headers, frame_size
        self._comparison: HeaderComparison | None = None
        self._genome = np.array(frame_size.genome)
        self._changed_frames = self._reordered = 0
        self._changed: Counter[str] = Counter()
        self._first: dict[str, FirstChange] = {}  # by field
        self._first_elsewhere = b"", 0  # the first frame with other headers, and where pktgen's begins in it
        self._highest = np.full(headers.flows, _NO_NUMBER, np.int64)  # number of each flow so far

    def prepare(self) -> "HeaderComparison":
        """Compute the expected bytes of all flows, if not done yet, and return the comparison with them."""
        if self._comparison is None:
            self._comparison = HeaderComparison(self._headers)
        return self._comparison

    def has_size(self, frames: StreamFrames, sent_sizes: NDArray[np.int64] | int) -> NDArray[np.bool_]:
        """Return which frames have the size that frames of these sent sizes should have, of shape (n,).

        More or fewer headers make a frame longer or shorter. A NIC may pad it to the smallest size of Ethernet.
        """
        expected = sent_sizes + self._headers.longer
        if frames.origin is not None and frames.origin.shifts is not None:
            expected = expected + frames.origin.shifts
        is_expected: NDArray[np.bool_] = frames.sizes == expected
        if np.min(expected) < MIN_FRAME_SIZE:
            is_expected |= (np.asarray(expected) < MIN_FRAME_SIZE) & (frames.sizes == MIN_FRAME_SIZE)
        return is_expected

    def sent_sizes(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sent size of each frame, in bytes with FCS, by its number."""
        sizes: NDArray[np.int64] = self._genome[numbers % len(self._genome)]
        return sizes

    def add(self, frames: StreamFrames, arrived: Arrivals, copies: NDArray[np.intp]) -> None:
        """Add the next frames of the stream except the copies among them, which are at these indices."""
        assert frames.origin is not None
        numbers, origin = frames.sequence, frames.origin
        if len(copies):
            is_first = np.ones(len(numbers), np.bool_)
            is_first[copies] = False
            numbers, origin = numbers[is_first], origin.where(is_first)
        if not len(numbers):
            return
        flows = numbers - numbers // self._headers.flows * self._headers.flows  # faster than the remainder
        self._add_order(numbers, flows, in_order=not len(arrived.late))
        if origin.shifts is not None:
            is_elsewhere = origin.shifts != 0
            elsewhere = int(np.count_nonzero(is_elsewhere))
            self._changed_frames += elsewhere
            if elsewhere and not self._changed[OTHER_HEADERS]:
                first = int(np.argmax(is_elsewhere))
                payload_at = self._headers.template.payload_at + int(origin.shifts[first])
                self._first_elsewhere = origin.rows.first_bytes(first)[0], payload_at
            self._changed[OTHER_HEADERS] += elsewhere
            numbers, flows = numbers[~is_elsewhere], flows[~is_elsewhere]
            origin = origin.where(~is_elsewhere)
        if not self._frame_size.is_mix:
            found = self._compare(origin.rows, self._frame_size.only_size, numbers, flows)
            self._first = {name: first for name, (_, first) in found.items()} | self._first
            return
        sizes = self.sent_sizes(numbers)
        by_size = []
        for size in np.unique(sizes).tolist():
            these = sizes == size
            found = self._compare(origin.rows.where(these), size, numbers[these], flows[these])
            places = np.flatnonzero(these)
            by_size += [(int(places[index]), name, first) for name, (index, first) in found.items()]
        for _, name, first_change in sorted(by_size):
            self._first.setdefault(name, first_change)

    def _compare(
        self, rows: Rows, size: int, numbers: NDArray[np.int64], flows: NDArray[np.int64]
    ) -> dict[str, tuple[int, FirstChange]]:
        """Count changes; return the first frame with a change of each field that had none before, and its index."""
        comparison = self.prepare()
        changed, by_field = comparison.changes(rows, size, flows if self._headers.flows > 1 else None)
        found = {}
        for name in by_field.keys() - self._first.keys():
            index = int(np.argmax(by_field[name]))
            arrived, _ = rows.first_bytes(index)
            expected = comparison.frame(size, int(flows[index]))
            found[name] = index, FirstChange(int(numbers[index]), expected, arrived)
        if changed is not None:
            self._changed_frames += int(np.count_nonzero(changed))
            self._changed.update({name: int(np.count_nonzero(these)) for name, these in by_field.items()})
        return found

    def _add_order(self, numbers: NDArray[np.int64], flows: NDArray[np.int64], *, in_order: bool) -> None:
        """Count frames after a higher number of their own flow; `in_order`: all are higher than any before."""
        if in_order:
            self._highest[flows] = numbers  # of several of one flow, the last one stays: the highest
            return
        order = np.argsort(flows, kind="stable")
        flows, numbers = flows[order], numbers[order]
        begins = np.concatenate(([True], flows[1:] != flows[:-1]))
        # The running maximum of each flow: numbers relative to the least, above those of all flows before.
        least = int(numbers.min())
        above = (np.cumsum(begins) - 1) * (int(numbers.max()) - least + 1) - least
        running = np.maximum.accumulate(numbers + above) - above
        before = self._highest[flows]
        is_late = before > numbers
        is_late[1:] |= ~begins[1:] & (running[:-1] > numbers[1:])
        self._reordered += int(np.count_nonzero(is_late))
        ends = np.concatenate((begins[1:], [True]))
        self._highest[flows[ends]] = np.maximum(before[ends], running[ends])

    def counts(self, tracker: SequenceTracker, numbers: range) -> PacketCounts:
        """Return all counts; `tracker` has the numbers that arrived of those that were sent."""
        losses = flow_losses(tracker, numbers, self._headers)
        names = dict.fromkeys(place.name for place in self._headers.compared)
        changed = [
            changed_field(self._headers, name, self._changed[name], self._first.get(name))
            for name in names
            if self._changed[name]
        ]
        if elsewhere := self._changed[OTHER_HEADERS]:
            changed.insert(0, changed_headers(self._headers, elsewhere, *self._first_elsewhere))
        return PacketCounts(
            flows=self._headers.flows,
            lossy_flows=losses.lossy_flows,
            changed_frames=self._changed_frames,
            changed=tuple(changed),
            reordered_in_flows=self._reordered,
            groups=losses.groups,
        )


def _constant_columns(mask: bytes, compared: tuple[FieldPlace, ...]) -> Iterator[_Column]:
    """Yield columns that cover all bits of the mask once."""
    at = 0
    while at < len(mask):
        start = min(at, max(0, len(mask) - _WORD_BYTES))
        part = bytes(at - start) + mask[at : start + _WORD_BYTES]
        if any(part):
            yield _Column(start, U64, part, compared)
        at = start + _WORD_BYTES


def _field_bits(place: FieldPlace, at: int, size: int) -> bytes:
    """Return the bits of a field within the bytes [at, at + size) of a frame."""
    bits = place.mask.to_bytes(place.size)
    return bytes(bits[byte - place.at] if 0 <= byte - place.at < place.size else 0 for byte in range(at, at + size))


def _number(data: bytes, dtype: np.dtype[Any]) -> np.unsignedinteger[Any]:
    """Return bytes of the frame as a number in the byte order of the file."""
    number: np.unsignedinteger[Any] = np.frombuffer(data, dtype.newbyteorder("="))[0]
    return number


def _flow_bytes_of(template: FrameTemplate) -> FlowBytes:
    frames = tuple(template.frames.items())
    return _cached_flow_bytes(frames, template.payload_at, template.flows, template.varying, template.checksums)


@lru_cache(maxsize=2)  # of a million flows, one takes up to 60 MB and half a second
def _cached_flow_bytes(
    frames: tuple[tuple[int, bytes], ...],
    payload_at: int,
    flows: int,
    varying: tuple[VaryingPlace, ...],
    checksums: tuple[Checksum, ...],
) -> FlowBytes:
    return flow_bytes(FrameTemplate(dict(frames), payload_at, flows, varying=varying, checksums=checksums))
