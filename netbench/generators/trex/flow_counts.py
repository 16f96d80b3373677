"""What a TRex server counted of one stream in one trial, as the worker tells it to netbench."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netbench.model.distributions import DelayClass, SoftwareDelay


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """Frames that arrived at the sink's port: those of the stream, of each size (bytes with FCS), by the server's word.

    `missed` is what the server could not take in at that port, whosever: the tester's own loss.
    """

    frames: int
    by_size: Mapping[int, int]
    missed: int
    delay: SoftwareDelay | None = None


def flow_counts_of(plain: Mapping[str, Any]) -> FlowCounts:
    """What `dataclasses.asdict` made of counts, and JSON of that, as counts again."""
    delay = plain["delay"]
    if delay is not None:
        delay = SoftwareDelay(**{**delay, "classes": tuple(DelayClass(**one) for one in delay["classes"])})
    by_size = {int(size): frames for size, frames in plain["by_size"].items()}
    return FlowCounts(**{**plain, "by_size": by_size, "delay": delay})
