"""The numbers under which a TRex server counts frames of a port, and what it has counted (`pg_id`)."""

from collections.abc import Mapping
from dataclasses import dataclass

# For a port: one of each size that a mix may have (1,024 at most, netbench/model/frame_mix.py), and that of delays.
_A_PORT = 2048


@dataclass(frozen=True, slots=True)
class Groups:
    """Those of one port in a trial: of the frames of each size, and of those whose delay is measured, if any are.

    `sizes` in bytes with FCS, the smallest first; `delay_fps` is how many frames/s measure delay, those of
    `delay_size`.
    """

    port: int
    sizes: tuple[int, ...]
    delay_fps: float = 0.0
    delay_size: int = 0

    @property
    def of_delay(self) -> int:
        """That of the frames whose delay is measured."""
        return (self.port + 1) * _A_PORT

    def of_size(self, size: int) -> int:
        """That of all other frames of a size."""
        return self.of_delay + 1 + self.sizes.index(size)

    @property
    def all(self) -> list[int]:
        """All of them."""
        return [*([self.of_delay] if self.delay_fps else []), *map(self.of_size, self.sizes)]


@dataclass(frozen=True, slots=True)
class GroupCount:
    """Frames of a group so far, by the port that they were sent from and arrived at; from 0 with each `version`."""

    sent: Mapping[int, int]
    received: Mapping[int, int]
    version: int | None

    def sent_since(self, before: "GroupCount", port: int) -> int:
        """How many were sent from a port since."""
        return self.sent.get(port, 0) - (before.sent.get(port, 0) if self.version == before.version else 0)

    def received_since(self, before: "GroupCount", port: int) -> int:
        """How many arrived at a port since."""
        return self.received.get(port, 0) - (before.received.get(port, 0) if self.version == before.version else 0)
