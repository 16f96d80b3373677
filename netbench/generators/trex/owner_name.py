"""The owner name of a worker's ports on a TRex server. It identifies the process and whether it still runs.

A server stores only the name of an owner, and keeps the port of an owner that died. Only the name distinguishes an
abandoned port from one in use.
"""

import os
import re
import socket
from pathlib import Path

_PROC = Path("/proc")
_NAME = re.compile(r"netbench@\S+/(?P<boot>[0-9a-f]{8})\.(?P<namespace>\d+)\.(?P<pid>\d+)\.(?P<started>\d+)")


def own_name() -> str:
    """Return `netbench@HOST/BOOT.NAMESPACE.PID.START`, unique to this process within this boot of the machine."""
    return f"netbench@{socket.gethostname()}/{_boot()}.{_namespace()}.{os.getpid()}.{_started(os.getpid())}"


def is_left_behind(name: str) -> bool:
    """Return whether the name is of a netbench process on this machine that has certainly ended."""
    match = _NAME.fullmatch(name)
    if match is None:
        return False
    if (match["boot"], int(match["namespace"])) != (_boot(), _namespace()):
        return False  # of another machine or a container: its processes are invisible here
    return _started(int(match["pid"])) != int(match["started"])


def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text()[:8]


def _namespace() -> int:
    """Return the PID namespace: in another one, the same number is a different process."""
    return (_PROC / "self/ns/pid").stat().st_ino


def _started(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot (field 22 of proc(5), stat); None where it is gone."""
    try:
        after_name = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, started = after_name[0], int(after_name[19])
    return None if state in ("Z", "X") else started
