"""Whether the captures of a trial find room before they are made: a full disk would cost the trial, and more."""

import resource
import shutil
from collections.abc import Mapping
from pathlib import Path

from netbench.model.units import FCS_BYTES

_FILE_HEADER_BYTES = 24
_RECORD_HEADER_BYTES = 16


def capture_bytes(frames: int, frame_size: int, snap_length: int) -> int:
    """How large the pcap file of so many frames gets; `frame_size` and `snap_length` in bytes, with FCS and without."""
    return _FILE_HEADER_BYTES + frames * (_RECORD_HEADER_BYTES + min(snap_length, frame_size - FCS_BYTES))


def shortage(sizes: Mapping[Path, int]) -> str:
    """What is missing for files of these sizes, in bytes, that all go to one directory; empty when there is room."""
    if not sizes:
        return ""
    wanted = sum(sizes.values())
    directory = next(iter(sizes)).parent
    free = shutil.disk_usage(directory).free
    if wanted > free:
        return (
            f"the captures of this trial take {wanted:,} bytes, and {directory} has {free:,} left; free some, write "
            "elsewhere with -o, or keep none (keep_captures: none)"
        )
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(sizes.values())
    if most != resource.RLIM_INFINITY and largest > most:
        return (
            f"a capture of this trial takes {largest:,} bytes, and no file may have more than {most:,} here "
            "(ulimit -f); raise that, or keep none (keep_captures: none)"
        )
    return ""
