"""A VM that has Python with numpy: it is given netbench's code when that is first wanted there."""

import tempfile
from pathlib import Path

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, exists
from netbench.hosts.code import archive
from netbench.hosts.composed import Named
from netbench.hosts.python_modules import brought_module_command

_NUMPY = "/usr/lib/python3/dist-packages/numpy"  # where Debian's package has it
_UNPACK = 'mkdir -p "$1" && tar -xzf "$0" -C "$1" && rm "$0"'
_UNPACK_S = 120.0  # on an emulated CPU


class Equipped(Named):
    """Such a VM, under the name that a topology gives it. What netbench leaves there goes with the machine."""

    scratch = "/tmp"

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host, name)
        self._directory = ""

    def module_command(self, module: str, *arguments: str) -> list[str]:
        """The command that runs a module of netbench there; MissingError for one of somebody else's.

        TestbedError when the code cannot be brought there.
        """
        if module.partition(".")[0] != "netbench":
            raise MissingError(f"{self} has netbench's own modules only, and {module} is none of them")
        if not self._directory:
            self._bring("/var/lib/netbench")
        command = brought_module_command(self._directory, module, *arguments)
        # Python keeps what it has compiled: it is slow on an emulated CPU, and all of it goes with the machine.
        return [word for word in command if word != "-B"]

    def _bring(self, directory: str) -> None:
        packed = f"{self.scratch}/netbench.tar.gz"
        with tempfile.NamedTemporaryFile() as file:
            file.write(archive())
            file.flush()
            self.send(Path(file.name), packed)
        done = self.run(["sh", "-c", _UNPACK, packed, directory], timeout_s=_UNPACK_S)
        if done.exit_code:
            raise TestbedError(f"{self}: netbench cannot be put into {directory}: {done.stderr.strip()}")
        self._directory = directory


def equipped(host: Host, name: str) -> Named:
    """The machine under a name, with netbench where it has what that needs."""
    return Equipped(host, name) if exists(host, _NUMPY) else Named(host, name)
