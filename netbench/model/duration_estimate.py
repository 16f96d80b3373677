"""The approximate durations of work with a UUT, from which the expected time of a campaign is computed."""

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds, in addition to the traffic itself, measured on two shared cores.

    `bring_up_s` is for bringing the UUT up and down; `trial_s` for each trial in which it forwards; `idle_s` for each
    trial in which it is only present; `load_s` for a load inside it to start, be watched and end; `worker_s` for each
    worker of that load.
    """

    bring_up_s: float = 0.0
    trial_s: float = 0.0
    idle_s: float = 0.0
    load_s: float = 0.0
    worker_s: float = 0.0

    def with_share(self, share: float | None) -> "Pace":
        """Return the pace of a UUT that gets at most this share of one CPU; None: no limit."""
        slower = 1 / min(1.0, share or 1.0)
        return Pace(*(seconds * slower for seconds in astuple(self)))
