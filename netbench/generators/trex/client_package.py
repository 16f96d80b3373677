"""What there is of TRex: the packaged client, which is never imported here, and the package of a server.

The client puts a yaml, a scapy and a zmq of its own in the place of those that are there: only the worker imports it.
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from netbench.errors import MissingError

PACKAGE = "lbr-trex-client"
MODULE = "lbr_trex_client"
SERVER = "_t-rex-64"
REMEDY = "pip install 'netbench[trex]', under a Python older than 3.12"
# A server reckons its frames from when it is told to start, and is busy with that for up to 20 ms: what is due by then
# it would send in one burst. So the first frame is due later.
BEGINS_LATER_S = 0.05
# Of the rings by which a server that netbench starts sends and receives: what fits beside what a packet socket has
# before a frame (TPACKET2_HDRLEN of linux/if_packet.h, rounded up).
SLOT_BYTES = 2048
LARGEST_FRAME = SLOT_BYTES - 64
# It needs the module asyncore, among others, which Python 3.12 has no more.
_TOO_NEW = (3, 12)


def no_client(python: tuple[int, ...] = sys.version_info[:2]) -> str:
    """Why there is no client for a Python of this version here, and what to do, as a phrase; empty when there is."""
    if too_new := newer(python):
        return f"{too_new}: install netbench under Python 3.11"
    try:
        version(PACKAGE)
    except PackageNotFoundError:
        return f"the client of TRex is not there: {REMEDY}"
    return ""


def newer(python: tuple[int, ...]) -> str:
    """That a Python is too new for the client; empty where it is not."""
    if python < _TOO_NEW:
        return ""
    return f"the client of TRex ({PACKAGE}) needs a Python older than 3.12, and this is {python[0]}.{python[1]}"


def look_for_client(_: str) -> str:
    """Which client is here; MissingError when there is none."""
    if missing := no_client():
        raise MissingError(missing)
    return version(PACKAGE)


def server_program(package: Path) -> Path:
    """The program of a server; MissingError where a directory of this machine is no package of TRex with one."""
    program = package / SERVER
    if not program.is_file():
        raise no_server(program)
    return program


def no_server(program: Path, where: str = "") -> MissingError:
    """What is said of a package without a server."""
    return MissingError(f"there is no {program}{where}: `path` is to be the directory of a TRex package, unpacked")
