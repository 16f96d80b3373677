"""The parts of TRex on this machine: the packaged client, which is never imported here, and a server package.

The client replaces the installed yaml, scapy and zmq by its own. Therefore only the worker imports it.
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from netbench.errors import MissingError

PACKAGE = "lbr-trex-client"
MODULE = "lbr_trex_client"
SERVER = "_t-rex-64"
REMEDY = "pip install 'netbench[trex]', under a Python older than 3.12"
# A server schedules its frames from the start request, whose processing takes up to 20 ms. Frames due by then would be
# sent in one burst. The first frame is therefore due later.
BEGINS_LATER_S = 0.05
# Slots of the rings of a server that netbench starts; a slot has room for a frame and the packet socket's header
# (TPACKET2_HDRLEN of linux/if_packet.h, rounded up).
SLOT_BYTES = 2048
LARGEST_FRAME = SLOT_BYTES - 64
# The client needs the module asyncore, among others, which Python 3.12 has removed.
_TOO_NEW = (3, 12)


def no_client(python: tuple[int, ...] = sys.version_info[:2]) -> str:
    """Return why this Python version has no client here, with the remedy, as a phrase; empty when it has one."""
    if too_new := newer(python):
        return f"{too_new}: install netbench under Python 3.11"
    try:
        version(PACKAGE)
    except PackageNotFoundError:
        return f"the client of TRex is not there: {REMEDY}"
    return ""


def newer(python: tuple[int, ...]) -> str:
    """Return a message that a Python is too new for the client; empty where it is not."""
    if python < _TOO_NEW:
        return ""
    return f"the client of TRex ({PACKAGE}) needs a Python older than 3.12, and this is {python[0]}.{python[1]}"


def look_for_client(_: str) -> str:
    """Return the version of the installed client; MissingError when there is none."""
    if missing := no_client():
        raise MissingError(missing)
    return version(PACKAGE)


def server_program(package: Path) -> Path:
    """Return the server program of a TRex package; MissingError where the directory has none."""
    program = package / SERVER
    if not program.is_file():
        raise no_server(program)
    return program


def no_server(program: Path, where: str = "") -> MissingError:
    """Return the error for a package without a server."""
    return MissingError(f"there is no {program}{where}: `path` is to be the directory of a TRex package, unpacked")
