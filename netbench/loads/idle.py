"""A neighbour that is there and does nothing."""


class Idle:
    """Nothing to start, to count or to end."""

    def start(self) -> None:
        """It does nothing already."""

    def cpu_s(self) -> None:
        """It has no load."""

    def stop(self) -> None:
        """There is nothing to end."""
