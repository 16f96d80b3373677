"""The programs that synchronise this machine's clock, and the kernel's bound of its error."""

import ctypes
import struct
from contextlib import suppress
from pathlib import Path

from netbench.model.foreign_text import read_text

_KEEPERS = ("chronyd", "ntpd", "ntpsec", "systemd-timesyn", "ptp4l", "phc2sys", "timemaster")  # comm has 15 characters
_UNSYNCHRONISED = 0x40  # STA_UNSYNC of linux/timex.h
_TIMEX = struct.Struct("=I4x4qi")  # struct timex on 64-bit machines: modes, offset, freq, maxerror, esterror, status


def clock_state(proc: Path = Path("/proc")) -> str:
    """Return the state in words: the programs, and the bound in µs (maxerror of adjtimex(2))."""
    keepers = sorted(set(_running(proc)))
    by = f"by {', '.join(keepers)}" if keepers else "by no program known here"
    timex = ctypes.create_string_buffer(256)
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        return f"kept {by}; the kernel does not tell how well"
    _, _, _, most_us, _, status = _TIMEX.unpack_from(timex)
    if status & _UNSYNCHRONISED:
        return f"kept {by}; not synchronised"
    return f"kept {by}; synchronised, wrong by {most_us:,} µs at most"


def _running(proc: Path) -> list[str]:
    found = []
    for comm in proc.glob("[0-9]*/comm"):
        with suppress(OSError):  # it has ended
            if (name := read_text(comm).strip()) in _KEEPERS:
                found.append(name)
    return found
