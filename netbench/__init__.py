"""netbench: how well hosts forward packets when they are virtualised, and how much guests disturb each other."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from netbench.report.data_frames import CampaignFrames


def load(directory: "str | Path") -> "CampaignFrames":
    """Return the trials, groups, searches and findings of a result directory as pandas frames.

    UsageError if `directory` holds no results; MissingError, once a frame is read, without pandas.
    """
    from pathlib import Path  # noqa: PLC0415 - `netbench --help` starts without it

    from netbench.report.data_frames import CampaignFrames  # noqa: PLC0415 - likewise

    return CampaignFrames(Path(directory))
