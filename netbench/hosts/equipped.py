"""A VM that has Python with numpy: it is given netbench's code when that is first wanted there."""

import tempfile
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.base import Host, exists
from netbench.hosts.code import archive, brought_module_command
from netbench.hosts.composed import Named

_NUMPY = "/usr/lib/python3/dist-packages/numpy"  # where Debian's package has it
_DIRECTORY = "/var/lib/netbench"
_UNPACK = 'mkdir -p "$1" && tar -xzf "$0" -C "$1" && rm "$0"'
_UNPACK_S = 120.0  # on an emulated CPU


class Equipped(Named):
    """Such a VM, under the name that a topology gives it. What netbench leaves there goes with the machine."""

    scratch = "/tmp"

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host, name)
        self._is_brought = False

    def module_command(self, module: str, *arguments: str) -> list[str]:
        """The command that runs a module of netbench there; MissingError for one of somebody else's.

        TestbedError when the code cannot be brought there.
        """
        # Python is slow on an emulated CPU, and what it has compiled goes with the machine.
        command = brought_module_command(self, _DIRECTORY, module, *arguments, keep_compiled=True)
        if not self._is_brought:
            self._bring()
        return command

    def _bring(self) -> None:
        packed = f"{self.scratch}/netbench.tar.gz"
        with tempfile.NamedTemporaryFile() as file:
            file.write(archive())
            file.flush()
            self.send(Path(file.name), packed)
        done = self.run(["sh", "-c", _UNPACK, packed, _DIRECTORY], timeout_s=_UNPACK_S)
        if done.exit_code:
            raise TestbedError(f"{self}: netbench cannot be put into {_DIRECTORY}: {done.stderr.strip()}")
        self._is_brought = True


def equipped(host: Host, name: str) -> Named:
    """The machine under a name, with netbench where it has what that needs."""
    return Equipped(host, name) if exists(host, _NUMPY) else Named(host, name)
