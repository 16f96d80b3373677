"""The interface between a trial and the load of a neighbour, apart from forwarding."""

from typing import Protocol


class Neighbour(Protocol):
    """The load of one neighbour during one trial."""

    def start(self) -> None:
        """Start the load; returns once it is observed to run. TestbedError when it cannot start."""

    def cpu_s(self) -> float | None:
        """Return the CPU time in seconds that the load has used so far, as counted by the neighbour's own kernel.

        None where there is no load. TestbedError, with the state of the load, when a part of it has died.
        """

    def stop(self) -> None:
        """Stop the load; returns once it has ended completely. Harmless when not started. TestbedError if it stays."""
