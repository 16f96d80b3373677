"""Some frames of a batch, and fields at the same offset in all of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.pcap import FrameBatch, field

U8, U16, U32, U64 = (np.dtype(name) for name in ("u1", ">u2", ">u4", ">u8"))
_NONE = np.empty(0, np.intp)
_MOST_VALUES = 64


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


def _as_it_lies(number: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the native value of the bytes of a number in this byte order."""
    return np.array(number, dtype).view(dtype.newbyteorder("="))
