"""The console of a Xen domain: its output during the boot, and then the connection to its agent."""

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.hosts.clock import wait_until
from netbench.hosts.relay import piped
from netbench.vmm.connected_guest import plain

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_TTY_S = 20.0
_POLL_S = 0.2
_BOOT_BYTES = 1 << 18
_RECENT_BYTES = 1 << 13
_SYSRQ = b"\x0f"  # on the terminal that is the console: hvc_poll in the kernel's drivers/tty/hvc/hvc_console.c
# Relays bytes unchanged in both directions. Not cat: busybox's keeps a pipe locked while it waits for a terminal. None
# of the processes leads its session, which would make the terminal its controlling one.
_RELAY = (
    'stty -F "$0" raw -echo || exit; dd if="$0" bs=4096 status=none & '
    'reader=$!; dd of="$0" bs=4096 status=none; kill "$reader"'
)


class ConsoleSocket(socket.socket):
    """A connection that stores its input: all of it until booted(), then only the latest."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(fileno=connected.detach())
        self._boot = bytearray()
        self._recent = bytearray()
        self._booting = True

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        data = super().recv(size, flags)
        if self._booting:
            self._boot += data[: _BOOT_BYTES - len(self._boot)]
        else:
            self._recent = (self._recent + data)[-_RECENT_BYTES:]
        return data

    def sendall(self, data: "ReadableBuffer", flags: int = 0, /) -> None:
        """Send as any socket does, with ^O doubled: the kernel's console takes a single one for a SysRq's start."""
        super().sendall(bytes(data).replace(_SYSRQ, 2 * _SYSRQ), flags)

    def booted(self) -> None:
        """End the boot: all later input comes from the agent."""
        self._booting = False

    def words(self, *, recent: bool = False) -> str:
        """Return the lines of text received; with `recent`, also those among the agent's messages."""
        return plain(bytes(self._boot + (self._recent if recent else b"")).decode(errors="replace"))


def console_of(host: Host, number: int, title: str, death: Callable[[], str]) -> ConsoleSocket:
    """Return a connection to the console of a domain, by its number; TestbedError if Xen created none."""
    terminal = ""

    def created() -> bool:
        nonlocal terminal
        done = host.run(["xenstore-read", f"/local/domain/{number}/console/tty"])
        terminal = done.stdout.strip() if done.exit_code == 0 else ""
        return bool(terminal)

    if not wait_until(created, _TTY_S, _POLL_S):
        why = death() or "does xenconsoled run?"
        raise TestbedError(f"{title}: Xen created no console for it within {_TTY_S:g} s: {why}")
    return ConsoleSocket(piped(host.spawn(["sh", "-c", _RELAY, terminal])))
