"""Run passt for a NIC of a guest: `python -m netbench.vmm.qemu.run_passt SOCKET -- COMMAND…`.

This program waits for QEMU at the socket SOCKET, writes its process id to SOCKET.pid, and executes the command, with
the connection open as file 10. passt cannot make the socket itself: the AppArmor profile of its package allows files
below /tmp and home directories only. A host without netbench receives the text of this module: it imports nothing of
netbench.
"""

import os
import socket
import sys

CONNECTION = 10


def main() -> None:
    """Accept the connection, and execute the command."""
    path, _, *command = sys.argv[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(1)
        with open(f"{path}.pid", "w") as file:
            file.write(str(os.getpid()))
        connection, _ = listener.accept()
    os.dup2(connection.fileno(), CONNECTION)
    os.set_inheritable(CONNECTION, True)
    connection.close()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
