"""The record of a self-test: truth and measurement of each check, and the rates of the tester without a UUT."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from netbench.model.frame_size import FrameSize


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The highest rate without loss of `sources` sources and their sinks at once, frames/s for each.

    `frame_size` is in bytes with FCS. The bounds apply to values read from a file.
    """

    sources: Annotated[int, Field(ge=1)]
    frame_size: Annotated[int, Field(ge=1)]
    fps: Annotated[float, Field(gt=0)]


class Ceilings:
    """All ceilings of one testbed; empty: unknown."""

    def __init__(self, ceilings: Iterable[Ceiling] = ()) -> None:
        self._by_sources: dict[int, list[Ceiling]] = {}
        for ceiling in sorted(ceilings, key=lambda ceiling: (ceiling.sources, ceiling.frame_size)):
            self._by_sources.setdefault(ceiling.sources, []).append(ceiling)

    def __bool__(self) -> bool:
        return bool(self._by_sources)

    def fps(self, sources: int, frame_size: FrameSize) -> float | None:
        """Return the ceiling of each of so many sources at this frame size, frames/s; None when it is unknown.

        Between two measured sizes, the time per frame is interpolated linearly. Therefore a mix counts as frames of its
        mean size. Between two numbers of sources, the ceiling itself is interpolated linearly. Outside the measured
        range, the nearest measured ceiling applies.
        """
        known = list(self._by_sources)
        if not known:
            return None
        return _between(known, [self._at(number, frame_size.mean_bytes) for number in known], sources)

    def _at(self, sources: int, frame_size: float) -> float:
        measured = self._by_sources[sources]
        return 1 / _between(
            [ceiling.frame_size for ceiling in measured], [1 / ceiling.fps for ceiling in measured], frame_size
        )


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class SelftestCheck(_Frozen):
    """One check: the truth, the measurement, and the difference between them, as text.

    `passed` is None where the check was impossible here; `detail` is the reason, or the fault and its remedy.
    """

    name: str
    uut: str = ""
    truth: str = ""
    measured: str = ""
    error: str = ""
    passed: bool | None
    detail: str = ""


class SelftestRecord(_Frozen):
    """One self-test of a testbed. `when_ns` is CLOCK_REALTIME; `fingerprint` identifies the testbed and the tester."""

    passed: bool
    when_ns: int
    topology: str
    generator: str
    fingerprint: str
    checks: tuple[SelftestCheck, ...]
    ceilings: tuple[Ceiling, ...] = ()

    @property
    def known_ceilings(self) -> Ceilings:
        """Its ceilings, for looking up rates."""
        return Ceilings(self.ceilings)


def _between(places: Sequence[int], values: Sequence[float], place: float) -> float:
    """Return the value at a place, given values at ascending `places`: linear between two, constant beyond them."""
    right = bisect_left(places, place)
    if right == len(places) or right == 0:
        return values[min(right, len(places) - 1)]
    left = right - 1
    part = (place - places[left]) / (places[right] - places[left])
    return values[left] + part * (values[right] - values[left])
