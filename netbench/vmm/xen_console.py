"""The console of a domain of Xen: what it says as it boots, and then the way to its agent."""

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.hosts.clock import wait_until
from netbench.hosts.relay import piped
from netbench.vmm.started_machine import plain

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_TTY_S = 20.0
_POLL_S = 0.2
_BOOT_BYTES = 1 << 18
_RECENT_BYTES = 1 << 13
_SYSRQ = b"\x0f"  # on the terminal that is the console: hvc_poll in the kernel's drivers/tty/hvc/hvc_console.c
# Bytes as they are, both ways. Not cat: that of busybox keeps a pipe locked while it waits for a terminal. None of them
# is the first of its session, which would make the terminal its own.
_RELAY = (
    'stty -F "$0" raw -echo || exit; dd if="$0" bs=4096 status=none & '
    'reader=$!; dd of="$0" bs=4096 status=none; kill "$reader"'
)


class Overheard(socket.socket):
    """A connection that remembers what came over it: all of it until told otherwise, then only the latest."""

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
        """As of any socket. The kernel's console takes ^O for the beginning of a SysRq, and two of them for one."""
        super().sendall(bytes(data).replace(_SYSRQ, 2 * _SYSRQ), flags)

    def booted(self) -> None:
        """What comes from now on is the agent's."""
        self._booting = False

    def words(self, *, recent: bool = False) -> str:
        """The lines of text that came; the `recent` ones among an agent's messages too."""
        return plain(bytes(self._boot + (self._recent if recent else b"")).decode(errors="replace"))


def console_of(host: Host, number: int, title: str, death: Callable[[], str]) -> Overheard:
    """A connection to the console of a domain by its number; TestbedError when Xen gives it none."""
    found: list[str] = []

    def told() -> bool:
        done = host.run(["xenstore-read", f"/local/domain/{number}/console/tty"])
        found.extend(done.stdout.split() if done.exit_code == 0 else [])
        return bool(found)

    if not wait_until(told, _TTY_S, _POLL_S):
        why = death() or "does xenconsoled run?"
        raise TestbedError(f"{title}: Xen gave it no console within {_TTY_S:g} s: {why}")
    return Overheard(piped(host.spawn(["sh", "-c", _RELAY, found[0]])))
