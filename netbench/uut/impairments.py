"""The impairments that a stream's frames undergo, and the resulting numbers. Pure."""

from typing import Generic, Self, TypeVar

from pydantic import BaseModel, Field, model_validator

from netbench.model.fields import Seconds

Frame = TypeVar("Frame")


class Every(BaseModel, extra="forbid", frozen=True):
    """Something that happens at every `every`-th frame."""

    every: int = Field(strict=True, ge=1)
    """Number of frames."""

    def of(self, frames: int) -> int:
        """Return how often it happens in the first `frames` frames."""
        return frames // self.every


class Late(Every, frozen=True):
    """Every `every`-th frame is held back until the next `behind` frames have passed it."""

    behind: int = Field(strict=True, ge=1)
    """Frames that overtake it."""

    @model_validator(mode="after")
    def _one_at_a_time(self) -> Self:
        if self.behind >= self.every:
            raise ValueError(f"one frame is held back at a time: behind is less than every, {self.every}")
        return self

    def extents(self, frames: int) -> list[int]:
        """Return the number of frames that overtook each of the late ones among the first `frames`.

        That is the reordering extent (RFC 4737, section 4.2.1): the number of frames since the first that overtook it.
        At the end fewer frames may be left to overtake.
        """
        late = range(self.every - 1, frames, self.every)
        behind = [min(self.behind, frames - 1 - position) for position in late]
        return [extent for extent in behind if extent]


class Impairments(BaseModel, extra="forbid", frozen=True):
    """The impairments of the frames of each stream, counted from the first one of a trial; `delay` in seconds.

    `duplicate`: sent twice. `late`: overtaken by others. `foreign`: followed by a frame between the same addresses that
    does not belong to the stream. `delay`: each frame is held at least this long.
    """

    duplicate: Every | None = None
    """Send every n-th frame twice."""
    late: Late | None = None
    """Hold every n-th frame back."""
    foreign: Every | None = None
    """Send a foreign frame after every n-th."""
    delay: Seconds = 0.0
    """Shortest delay of every frame."""


class Ordering(Generic[Frame]):
    """The frames of one stream one by one, in the order of arrival and in the order of departure."""

    def __init__(self, impairments: Impairments) -> None:
        self._impairments = impairments
        self._taken = 0
        self._late: Frame | None = None
        self._to_pass = 0

    def take(self, frame: Frame) -> list[tuple[Frame, bool]]:
        """Return the frames to send after this one has come, in order, each with whether to make it foreign."""
        impairments = self._impairments
        self._taken += 1
        if impairments.late and self._taken % impairments.late.every == 0:
            self._late, self._to_pass = frame, impairments.late.behind
            return []
        out = [(frame, False)]
        if impairments.duplicate and self._taken % impairments.duplicate.every == 0:
            out.append((frame, False))
        if impairments.foreign and self._taken % impairments.foreign.every == 0:
            out.append((frame, True))
        if self._late is not None:
            self._to_pass -= 1
            if self._to_pass == 0:
                out += self.rest()
        return out

    def rest(self) -> list[tuple[Frame, bool]]:
        """Return the frame that is still held back, to be sent because no more frames seem to come."""
        late, self._late = self._late, None
        return [] if late is None else [(late, False)]
