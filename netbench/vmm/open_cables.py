"""Start a program with the ends of its cables open: `python -m netbench.vmm.open_cables END… -- COMMAND…`.

A cable is a Unix socket between two QEMUs. Its END is `listen:PATH` in the one that is started first, and
`connect:PATH` in the other. QEMU cannot open them itself: it does that in separate threads, possibly after it gave up
root. The first is open as file 10. A host without netbench receives the text of this module: it imports nothing of
netbench.
"""

import os
import socket
import sys

FIRST_FILE = 10


def opened(end: str) -> socket.socket:
    """Return the socket of an END; OSError if it cannot be opened."""
    how, _, path = end.partition(":")
    cable = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if how == "listen":
        cable.bind(path)
        cable.listen(1)
    else:
        cable.connect(path)
    return cable


def main() -> None:
    """Open the cables, and execute the program."""
    place = sys.argv.index("--")
    for number, end in enumerate(sys.argv[1:place], FIRST_FILE):
        cable = opened(end)
        os.dup2(cable.fileno(), number)
        cable.close()
    command = sys.argv[place + 1 :]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
