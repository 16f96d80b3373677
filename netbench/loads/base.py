"""The seam between a trial and what a neighbour does during it, besides forwarding."""

from typing import Protocol


class Neighbour(Protocol):
    """What one neighbour does during one trial."""

    def start(self) -> None:
        """Begin; returns once it is seen to be at work. TestbedError when it cannot."""

    def cpu_s(self) -> float | None:
        """CPU time in seconds that its load has used so far, as the neighbour's own kernel counts it.

        None where it has no load. TestbedError, saying what became of it, when the load is not whole any more.
        """

    def stop(self) -> None:
        """End it; returns once nothing of it is left. Harmless when not started. TestbedError when it does not end."""
