"""The name under which a worker owns ports of a TRex server: others see from it who that is, and whether it still runs.

A server knows of an owner its name alone, and keeps a port for one that died: only its name tells a port that was left
behind from one in use.
"""

import os
import re
import socket
from pathlib import Path

_PROC = Path("/proc")
_NAME = re.compile(r"netbench@\S+/(?P<boot>[0-9a-f]{8})\.(?P<namespace>\d+)\.(?P<pid>\d+)\.(?P<started>\d+)")


def own_name() -> str:
    """`netbench@HOST/BOOT.NAMESPACE.PID.START`: a process like no other of this boot of the machine."""
    return f"netbench@{socket.gethostname()}/{_boot()}.{_namespace()}.{os.getpid()}.{_started(os.getpid())}"


def is_left_behind(name: str) -> bool:
    """Whether this is the name of a netbench that certainly runs no more: of this machine, where it would be seen."""
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    if (found["boot"], int(found["namespace"])) != (_boot(), _namespace()):
        return False  # of another machine, or of a container: its processes cannot be seen from here
    return _started(int(found["pid"])) != int(found["started"])


def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text()[:8]


def _namespace() -> int:
    """That of process numbers: the same number is another process in another."""
    return (_PROC / "self/ns/pid").stat().st_ino


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot (field 22 of proc(5), stat); None where it is gone."""
    try:
        after_name = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, started = after_name[0], int(after_name[19])
    return None if state in ("Z", "X") else started
