"""Start a program with macvtaps open: `python -m netbench.vmm.open_macvtaps INTERFACE,… COMMAND…`.

QEMU opens a tap by its name. A macvtap is a device file instead, which has no name in a network namespace. Therefore
this program makes a device file in /dev and removes it once it is open. /run does not work: systemd mounts it `nodev`.
The first is open as file 10. A host without netbench receives the text of this module: it imports nothing of netbench.
"""

import os
import stat
import sys
from glob import glob

FIRST_FILE = 10


def main() -> None:
    """Open the macvtaps, and execute the program."""
    interfaces, *command = sys.argv[1:]
    for number, interface in enumerate(interfaces.split(","), FIRST_FILE):
        (device,) = glob(f"/sys/class/net/{interface}/macvtap/tap*/dev")  # guests lack most of Python's library
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
