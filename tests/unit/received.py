"""A made-up report of a sink."""

from dataclasses import replace
from typing import Any

from netbench.model.received import Received


def received(frames: int = 1000, duplicates: int = 0, foreign: int = 0, **more: Any) -> Received:
    """The received frames of a stream, with 3 reordered and 2 loss runs of at most 4 frames."""
    all_of_it = Received(
        frames=frames,
        duplicates=duplicates,
        reordered=3,
        foreign=foreign,
        matched=frames + duplicates + foreign,
        dropped=0,
        loss_runs=2,
        longest_loss_run=4,
        first_ns=5,
        last_ns=6,
    )
    return replace(all_of_it, **more)
