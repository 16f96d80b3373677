"""Whether netbench runs as root, and the command with which it would."""

import sys
from pathlib import Path

from netbench.testbed.doctor.checks import Check, Status
from netbench.testbed.doctor.tools import Which


def check_root(euid: int, which: Which) -> Check:
    """Whether `euid` may do what netbench does, and how root would start it."""
    needed_for = "making links, sending and capturing frames"
    if euid == 0:
        return Check("root", Status.OK, "running as root", "", needed_for)
    remedy = f"sudo {_own_command(which)} doctor"
    return Check("root", Status.MISSING, f"running as user {euid}", remedy, needed_for)


def _own_command(which: Which) -> str:
    """How root starts this netbench: the PATH of sudo has no virtual environments in it."""
    started_as = Path(sys.argv[0])
    if started_as.name == "netbench" and started_as.is_file():
        return str(started_as.absolute())
    return which("netbench") or "netbench"
