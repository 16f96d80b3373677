"""Some frames of a trial as a capture file: `profile: sink: {kind: bpf, sample: 1/1000}`."""

import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)  # of pcap: times in ns, version 2.4, Ethernet
_RECORD = struct.Struct("<IIII")
_NS_PER_S = 1_000_000_000


def _every(value: object) -> int:
    """The N of `1/N`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # as it is in memory
    match = re.fullmatch(r"1/(\d{1,9})", value) if isinstance(value, str) else None
    if not match or not int(match[1]):
        raise ValueError("not a part of all frames; write for example 1/1000, 1/1 for all")
    return int(match[1])


# One of so many frames.
Every = Annotated[int, BeforeValidator(_every), PlainSerializer(lambda every: f"1/{every}"), Field(ge=1)]


def write_sample(path: Path, frames: Iterable[tuple[int, int, bytes]], snap_length: int) -> None:
    """A pcap file of frames: when each arrived (ns since 1970), its length in bytes, and its first ones."""
    with path.open("wb") as file:
        file.write(_HEADER)
        for at_ns, length, data in frames:
            kept = data[: min(length, snap_length)]
            seconds, ns = divmod(at_ns, _NS_PER_S)
            file.write(_RECORD.pack(seconds, ns, len(kept), length) + kept)
