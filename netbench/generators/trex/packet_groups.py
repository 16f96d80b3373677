"""The packet groups (`pg_id`) by which a TRex server counts frames of a port, and their counts."""

from collections.abc import Mapping
from dataclasses import dataclass

# Per port: a group for each size of a mix (at most 1,024, netbench/model/frame_mix.py), and one for delays.
_A_PORT = 2048


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one port in a trial: one per frame size, and one for frames whose delay is measured, if any.

    `sizes` are in bytes with FCS, the smallest first; `delay_fps` frames/s, of `delay_size` bytes, measure delay.
    """

    port: int
    sizes: tuple[int, ...]
    delay_fps: float = 0.0
    delay_size: int = 0

    @property
    def of_delay(self) -> int:
        """The group of the frames whose delay is measured."""
        return (self.port + 1) * _A_PORT

    def of_size(self, size: int) -> int:
        """Return the group of all other frames of a size."""
        return self.of_delay + 1 + self.sizes.index(size)

    @property
    def all(self) -> list[int]:
        """The numbers of all groups."""
        return [*([self.of_delay] if self.delay_fps else []), *map(self.of_size, self.sizes)]


@dataclass(frozen=True, slots=True)
class GroupCount:
    """Frames of a group so far, by sending and receiving port; each `version` counts from 0."""

    sent: Mapping[int, int]
    received: Mapping[int, int]
    version: int | None

    def sent_since(self, before: "GroupCount", port: int) -> int:
        """Return the number of frames sent from a port since `before`."""
        return self.sent.get(port, 0) - (before.sent.get(port, 0) if self.version == before.version else 0)

    def received_since(self, before: "GroupCount", port: int) -> int:
        """Return the number of frames that arrived at a port since `before`."""
        return self.received.get(port, 0) - (before.received.get(port, 0) if self.version == before.version else 0)
