"""A program started with the ends of its cables open: `python -m netbench.vmm.open_cables END… -- COMMAND…`.

A cable is a Unix socket between two QEMUs. Its END is `listen:PATH` in the one that is started first, and
`connect:PATH` in the other. They are opened here and not by QEMU, which does that in threads of its own when it may
have given up root already. The first is open as file 10. A host that has no netbench is given the text of this module:
it imports nothing of netbench.
"""

import os
import socket
import sys

FIRST_FILE = 10


def opened(end: str) -> socket.socket:
    """The socket that an END says; OSError where it cannot be made."""
    how, _, path = end.partition(":")
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if how == "listen":
        one.bind(path)
        one.listen(1)
    else:
        one.connect(path)
    return one


def main() -> None:
    """Open them, and become the program."""
    place = sys.argv.index("--")
    for number, end in enumerate(sys.argv[1:place], FIRST_FILE):
        one = opened(end)
        os.dup2(one.fileno(), number)
        one.close()
    command = sys.argv[place + 1 :]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
