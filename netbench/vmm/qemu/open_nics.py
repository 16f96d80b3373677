"""Start QEMU with its macvtaps and cables open: `python -m netbench.vmm.qemu.open_nics END… -- COMMAND…`.

An END is `macvtap:INTERFACE`, or that of a cable: a Unix socket between two QEMUs, `listen:PATH` in the one that is
started first and `connect:PATH` in the other. The first END is open as file 10.

QEMU opens a tap by its name. A macvtap is a device file instead, which has no name in a network namespace. Therefore
this program makes a device file in /dev and removes it once it is open. /run does not work: systemd mounts it `nodev`.
QEMU opens cables in separate threads, possibly after it gave up root. A host without netbench receives the text of this
module: it imports nothing of netbench.
"""

import os
import socket
import stat
import sys
from glob import glob  # guests lack pathlib

FIRST_FILE = 10


def open_cable(how: str, path: str) -> int:
    """Return the file descriptor of the end of a cable; OSError if it cannot be opened."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as cable:
        if how == "listen":
            cable.bind(path)
            cable.listen(1)
        else:
            cable.connect(path)
        return cable.detach()


def open_macvtap(interface: str) -> int:
    """Return the file descriptor of a macvtap."""
    (device,) = glob(f"/sys/class/net/{interface}/macvtap/tap*/dev")
    with open(device) as file:
        major, minor = map(int, file.read().split(":"))
    node = f"/dev/{interface}-{os.getpid()}"
    os.mknod(node, 0o600 | stat.S_IFCHR, os.makedev(major, minor))
    try:
        return os.open(node, os.O_RDWR)
    finally:
        os.unlink(node)


def main() -> None:
    """Open the ends, and execute the command."""
    separator = sys.argv.index("--")
    for number, end in enumerate(sys.argv[1:separator], FIRST_FILE):
        how, _, name = end.partition(":")
        opened = open_macvtap(name) if how == "macvtap" else open_cable(how, name)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)
    command = sys.argv[separator + 1 :]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
