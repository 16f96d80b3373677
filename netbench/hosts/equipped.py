"""A VM that has Python with numpy: it is given netbench's code when that is first wanted there."""

from collections.abc import Callable

from netbench.hosts.base import Host, exists
from netbench.hosts.code import archive, archive_of, brought_module_command, unpack_on
from netbench.hosts.composed import Named

_NUMPY = "/usr/lib/python3/dist-packages/numpy"  # where Debian's package has it
_DIRECTORY = "/var/lib/netbench"


class Equipped(Named):
    """Such a VM, under the name that a topology gives it. What netbench leaves there goes with the machine."""

    scratch = "/tmp"

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host, name)
        self._brought: set[str] = set()

    def module_command(self, module: str, *arguments: str) -> list[str]:
        """The command that runs a module of netbench there; MissingError for one of somebody else's.

        TestbedError when the code cannot be brought there.
        """
        # Python is slow on an emulated CPU, and what it has compiled goes with the machine.
        command = brought_module_command(self, _DIRECTORY, module, *arguments, keep_compiled=True)
        self._unpack_once("netbench", archive)
        return command

    def bring(self, package: str) -> None:
        """Have another package of this machine's there, for modules of netbench; TestbedError as above."""
        self._unpack_once(package, lambda: archive_of(package))

    def _unpack_once(self, package: str, packed: Callable[[], bytes]) -> None:
        if package not in self._brought:
            unpack_on(self, packed(), _DIRECTORY, self.scratch)
            self._brought.add(package)


def equipped(host: Host, name: str) -> Named:
    """The machine under a name, with netbench where it has what that needs."""
    return Equipped(host, name) if exists(host, _NUMPY) else Named(host, name)
