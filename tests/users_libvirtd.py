"""The libvirtd of a user: netbench has not started it, and its domains are not netbench's."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from netbench.hosts.base import Host
from netbench.hosts.clock import wait_until
from netbench.hosts.local import LocalHost, marked_processes
from netbench.vmm.base import GuestSpec
from netbench.vmm.libvirt.api import libvirt_module
from netbench.vmm.libvirt.domain import PrivateDaemon

_MARK = "nbt-user"  # the mark of no run
HERE = LocalHost("user", _MARK)


class ByHand(PrivateDaemon):
    """A daemon without a process namespace: the processes that it has started outlive it."""

    def command(self, *script: str) -> list[str]:
        command = super().command(*script)
        return ["unshare", "--mount", *command[command.index("sh") :]]


@contextmanager
def users_daemon(host: Host, directory: Path) -> Iterator[str]:
    """The URI of the QEMU driver of a running daemon."""
    daemon = ByHand(GuestSpec("user", directory))
    daemon.start(host)
    try:
        yield daemon.uri
    finally:
        daemon.stop()
        assert wait_until(lambda: list(marked_processes(_MARK)) == [], 5.0)


@contextmanager
def connected(host: Host, directory: Path) -> Iterator[tuple[str, Any]]:
    """The URI of such a daemon, and a connection to it."""
    with users_daemon(host, directory) as uri, closing(libvirt_module().open(uri)) as connection:
        yield uri, connection


def domains(connection: Any) -> list[tuple[str, bool, str]]:
    """The domains of a daemon: their names, whether they run, and their definitions."""
    listed = sorted(connection.listAllDomains(), key=lambda domain: domain.name())
    return [(domain.name(), bool(domain.isActive()), domain.XMLDesc()) for domain in listed]
