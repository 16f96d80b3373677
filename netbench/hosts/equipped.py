"""A VM that has Python with numpy: netbench's code is copied to it at the first use."""

from collections.abc import Callable

from netbench.hosts.base import Host, exists
from netbench.hosts.code import archive, archive_of, brought_module_command, unpack_on
from netbench.hosts.composed import Named

_NUMPY = "/usr/lib/python3/dist-packages/numpy"  # the path in Debian's package
_DIRECTORY = "/var/lib/netbench"


class Equipped(Named):
    """Such a VM, with the name that the topology uses. Files that netbench leaves there disappear with the machine."""

    scratch = "/tmp"

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host, name)
        self._brought: set[str] = set()

    def module_command(self, module: str, *arguments: str) -> list[str]:
        """Return the command that runs a module of netbench there; MissingError for other modules.

        TestbedError when the code cannot be copied there.
        """
        # Compiled code is kept: Python is slow on an emulated CPU, and the files disappear with the machine.
        command = brought_module_command(self, _DIRECTORY, module, *arguments, keep_compiled=True)
        self._unpack_once("netbench", archive)
        return command

    def bring(self, package: str) -> None:
        """Copy another package of this machine there, for modules of netbench; TestbedError when that fails."""
        self._unpack_once(package, lambda: archive_of(package))

    def _unpack_once(self, package: str, packed: Callable[[], bytes]) -> None:
        if package not in self._brought:
            unpack_on(self, packed(), _DIRECTORY, self.scratch)
            self._brought.add(package)


def equipped(host: Host, name: str) -> Named:
    """Return the machine with a name, and with netbench if it has the required packages."""
    return Equipped(host, name) if exists(host, _NUMPY) else Named(host, name)
