"""Time stamps of capture files as nanoseconds since 1970."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """Turns the two 32-bit words of a time stamp into nanoseconds."""

    def nanoseconds(self, high: NDArray[np.generic], low: NDArray[np.generic]) -> NDArray[np.int64]:
        """int64 nanoseconds since 1970, of the shape of both words; absurd stamps wrap around."""


class SecondsClock(NamedTuple):
    """pcap: seconds, and a fraction of `fraction_ns` nanoseconds each."""

    fraction_ns: int

    def nanoseconds(self, high: NDArray[np.generic], low: NDArray[np.generic]) -> NDArray[np.int64]:
        """Seconds × 10⁹ + fractions × their length."""
        time = high.astype(np.int64)
        time *= NS_PER_S
        fraction = low.astype(np.int64)
        if self.fraction_ns != 1:
            fraction *= self.fraction_ns
        time += fraction
        return time


class TicksClock(NamedTuple):
    """pcapng: 64-bit ticks of 10^-exponent s, or 2^-exponent s when `binary`, from `offset_s` on.

    These are the interface options if_tsresol and if_tsoffset.
    """

    exponent: int
    binary: bool
    offset_s: int

    @property
    def usable(self) -> bool:
        """Whether nanoseconds since 1970 in 64 bits can hold what this clock shows."""
        return self.exponent <= (63 if self.binary else 19) and abs(self.offset_s) < 2**33

    def nanoseconds(self, high: NDArray[np.generic], low: NDArray[np.generic]) -> NDArray[np.int64]:
        """Ticks scaled to nanoseconds, rounded down."""
        ticks = high.astype(np.uint64)
        ticks <<= np.uint64(32)
        ticks |= low.astype(np.uint64)
        time = (self._binary(ticks) if self.binary else self._decimal(ticks)).view(np.int64)
        if self.offset_s:
            time += np.int64(self.offset_s * NS_PER_S)
        return time

    def _decimal(self, ticks: NDArray[np.uint64]) -> NDArray[np.uint64]:
        if self.exponent <= 9:
            ticks *= np.uint64(10 ** (9 - self.exponent))
        else:
            ticks //= np.uint64(10 ** (self.exponent - 9))
        return ticks

    def _binary(self, ticks: NDArray[np.uint64]) -> NDArray[np.uint64]:
        seconds = ticks >> np.uint64(self.exponent)
        fraction = ticks & np.uint64((1 << self.exponent) - 1)
        kept = min(self.exponent, 33)  # 2^33 × 10^9 is the most that 64 bits hold
        fraction >>= np.uint64(self.exponent - kept)
        return seconds * np.uint64(NS_PER_S) + ((fraction * np.uint64(NS_PER_S)) >> np.uint64(kept))
