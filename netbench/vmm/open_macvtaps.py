"""A program started with macvtaps open: `python -m netbench.vmm.open_macvtaps INTERFACE,… COMMAND…`.

QEMU opens a tap by its name, but a macvtap is a device file of its own, of which a network namespace shows nobody the
name: it is made anew in /dev (on /run no device can be opened, where that is mounted `nodev` as systemd does), and
removed once it is open. The first is open as file 10. A host that has no netbench is given the text of this module: it
imports nothing of netbench.
"""

import os
import stat
import sys
from glob import glob

FIRST_FILE = 10


def main() -> None:
    """Open them, and become the program."""
    interfaces, *command = sys.argv[1:]
    for number, interface in enumerate(interfaces.split(","), FIRST_FILE):
        (device,) = glob(f"/sys/class/net/{interface}/macvtap/tap*/dev")  # all of Python's library that guests have
        with open(device) as file:
            major, minor = map(int, file.read().split(":"))
        node = f"/dev/{interface}-{os.getpid()}"
        os.mknod(node, 0o600 | stat.S_IFCHR, os.makedev(major, minor))
        try:
            opened = os.open(node, os.O_RDWR)
        finally:
            os.unlink(node)
        os.dup2(opened, number)
        os.close(opened)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
