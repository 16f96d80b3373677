"""How long things take with a UUT, about: what the expected time of a campaign is made of."""

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds, beside the traffic itself, measured on two shared cores.

    `bring_up_s` to have it ready and end it again; `trial_s` more for each trial that it forwards in, `idle_s` for each
    that it is beside; `load_s` for a load inside it to start, be watched and end, `worker_s` for each of its workers.
    """

    bring_up_s: float = 0.0
    trial_s: float = 0.0
    idle_s: float = 0.0
    load_s: float = 0.0
    worker_s: float = 0.0

    def with_share(self, share: float | None) -> "Pace":
        """The pace of one that gets at most this share of one CPU; None: as much as it wants."""
        slower = 1 / min(1.0, share or 1.0)
        return Pace(*(seconds * slower for seconds in astuple(self)))
