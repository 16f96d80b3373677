"""What a self-test found: truth beside measurement for each check, and what the tester manages without a UUT."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from netbench.model.frame_mix import FrameSize, mean_bytes


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The highest rate without loss that `sources` sources and their sinks managed at once, frames/s for each.

    `frame_size` is in bytes with FCS. The bounds hold for what is read from a file.
    """

    sources: Annotated[int, Field(ge=1)]
    frame_size: Annotated[int, Field(ge=1)]
    fps: Annotated[float, Field(gt=0)]


class Ceilings:
    """All ceilings of one testbed; without any, nothing is known."""

    def __init__(self, ceilings: Iterable[Ceiling] = ()) -> None:
        self._by_sources: dict[int, list[Ceiling]] = {}
        for one in sorted(ceilings, key=lambda one: (one.sources, one.frame_size)):
            self._by_sources.setdefault(one.sources, []).append(one)

    def __bool__(self) -> bool:
        return bool(self._by_sources)

    def fps(self, sources: int, frame_size: FrameSize) -> float | None:
        """The ceiling of each of so many sources at this frame size, frames/s; None when nothing is known.

        Between two sizes that were measured, the time that a frame takes grows evenly with its size: a part for the
        frame, a part for each byte, and so a mix counts as frames of its mean size. Between two numbers of sources, the
        ceiling itself changes evenly. Beyond what was measured, the nearest that was stands.
        """
        known = list(self._by_sources)
        if not known:
            return None
        return _between(known, [self._at(number, mean_bytes(frame_size)) for number in known], sources)

    def _at(self, sources: int, frame_size: float) -> float:
        measured = self._by_sources[sources]
        return 1 / _between([one.frame_size for one in measured], [1 / one.fps for one in measured], frame_size)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Check(_Frozen):
    """One check: what is true, what the tester said, and how far that is off, as people read it.

    `passed` is None where it could not be made here; `detail` says why, or what is wrong and what to do about it.
    """

    name: str
    uut: str = ""
    truth: str = ""
    measured: str = ""
    error: str = ""
    passed: bool | None
    detail: str = ""


class SelftestRecord(_Frozen):
    """One self-test of a testbed. `when_ns` is CLOCK_REALTIME; `fingerprint` is of what it was made on."""

    passed: bool
    when_ns: int
    topology: str
    generator: str
    fingerprint: str
    checks: tuple[Check, ...]
    ceilings: tuple[Ceiling, ...] = ()

    @property
    def known_ceilings(self) -> Ceilings:
        """Its ceilings as something to look rates up in."""
        return Ceilings(self.ceilings)


def _between(places: Sequence[int], values: Sequence[float], place: float) -> float:
    """The value at a place, from those at rising `places`: a straight line between two, level beyond them."""
    right = bisect_left(places, place)
    if right == len(places) or right == 0:
        return values[min(right, len(places) - 1)]
    left = right - 1
    part = (place - places[left]) / (places[right] - places[left])
    return values[left] + part * (values[right] - values[left])
