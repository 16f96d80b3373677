"""netbench's code on hosts without netbench: an archive, the program that unpacks it, and commands for its modules.

The host needs a recent Python, and numpy for sending frames or counting captures. pyroute2, which is pure Python, comes
with netbench. Other packages are copied as well when a module of netbench there needs them.
"""

import io
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Protocol, runtime_checkable

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, exists
from netbench.hosts.host_wrappers import HostWrapper, NamedHost
from netbench.hosts.local import LocalHost
from netbench.hosts.module_bundle import bundle
from netbench.hosts.trusted_code import FIRST, module_command

PYTHON = (3, 11)
SCRATCH = "/var/tmp/netbench-"  # followed by the name of the run: a directory for temporary files
_PACKAGES = ("netbench", "pyroute2")
_SUFFIXES = (".py", ".o", ".sh")
_NUMPY = "/usr/lib/python3/dist-packages/numpy"  # the path in Debian's package
_VM_DIRECTORY = "/var/lib/netbench"
_UNPACK_FILE = 'mkdir -p "$1" && tar -xzf "$0" -C "$1" && rm "$0"'
_UNPACK_S = 120.0  # on an emulated CPU
# The first program there: it reads the archive from its stdin, and becomes the module named by its arguments.
_UNPACK = f"""
import io, os, shutil, sys, tarfile
if sys.version_info < {PYTHON}:
    sys.exit("python3 is %d.%d there, and netbench needs {".".join(map(str, PYTHON))}" % sys.version_info[:2])
directory, length, *command = sys.argv[1:]
data = bytearray()
while len(data) < int(length):
    piece = os.read(0, 1 << 20)
    if not piece:
        sys.exit("the connection ended before all of netbench was there")
    data += piece
try:
    os.makedirs(directory, 0o700)
    packed = tarfile.open(fileobj=io.BytesIO(data))
    packed.extraction_filter = lambda member, _: member  # of netbench's own making; newer Pythons warn without a filter
    packed.extractall(directory)
except OSError as error:
    shutil.rmtree(directory, ignore_errors=True)  # its own errors do not matter
    sys.exit("netbench cannot be put into %s: %s" % (directory, error.strerror))
os.execv(sys.executable, [sys.executable, "-E", "-P", "-B", *command])
"""


@runtime_checkable
class RunsNetbench(Protocol):
    """A machine that netbench's modules were copied to; `scratch` is a directory there for temporary files."""

    scratch: str

    def module_command(self, module: str, *arguments: str) -> list[str]:
        """Return the command that runs one of these modules; MissingError for other modules."""

    def bring(self, package: str) -> None:
        """Copy another package of this machine's Python there, for these modules, unless it is there."""


class VmWithNetbench(NamedHost):
    """A VM that has Python with numpy: netbench's code is copied to it at the first use.

    `name` is the one that the topology uses. Files that netbench leaves there disappear with the machine.
    """

    scratch = "/tmp"

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host, name)
        self._unpacked: set[str] = set()

    def module_command(self, module: str, *arguments: str) -> list[str]:
        """Return the command that runs a module of netbench there; MissingError for other modules.

        TestbedError when the code cannot be copied there.
        """
        # Compiled code is kept: Python is slow on an emulated CPU, and the files disappear with the machine.
        command = copied_module_command(self, _VM_DIRECTORY, module, *arguments, keep_compiled=True)
        self.bring("netbench")
        return command

    def bring(self, package: str) -> None:
        """Copy a package of this machine there, unless it is there; TestbedError when that fails."""
        if package not in self._unpacked:
            unpack_on(self, archive() if package == "netbench" else archive_of(package), _VM_DIRECTORY, self.scratch)
            self._unpacked.add(package)


def with_netbench(host: Host, name: str) -> NamedHost:
    """Return the machine with a name, and with netbench if it has the required packages."""
    return VmWithNetbench(host, name) if exists(host, _NUMPY) else NamedHost(host, name)


def has_netbench(host: Host) -> bool:
    """Return whether netbench's modules run on a host: on this machine, and where they were copied."""
    return host.shares_files or isinstance(_innermost(host), RunsNetbench)


def module_command_on(host: Host, module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of netbench or of an extension on a host; MissingError if none runs."""
    return module_command(module, *arguments) if host.shares_files else _copied(host).module_command(module, *arguments)


def program_command(host: Host, module: ModuleType, *arguments: str) -> list[str]:
    """Return the command that runs a module on any host with Python; it may import the standard library alone.

    The modules of its package that it imports are included. Those of netbench may have been copied to the host.
    """
    if has_netbench(host):
        return module_command_on(host, module.__name__, *arguments)
    return source_command(module, *arguments)


def source_command(module: ModuleType, *arguments: str) -> list[str]:
    """Return the same command for a host without netbench."""
    return ["python3", "-I", "-S", "-c", bundle(module.__name__), *arguments]


def bring(host: Host, package: str) -> None:
    """Copy a package of this machine's Python to netbench's modules on a host; MissingError if it has none."""
    if not host.shares_files:
        _copied(host).bring(package)


def scratch_of(host: Host) -> str:
    """Return a host's directory for temporary files: the run's own on this machine and where netbench was copied."""
    machine = _innermost(host)
    if isinstance(machine, LocalHost):
        return machine.scratch or tempfile.gettempdir()
    return machine.scratch if isinstance(machine, RunsNetbench) else "/tmp"


def output_path(host: Host, file: Path) -> Path:
    """Return where a program on a host writes a file that `fetch` then copies to `file` on this machine."""
    return file if host.shares_files else Path(scratch_of(host), file.name)


def _copied(host: Host) -> RunsNetbench:
    machine = _innermost(host)
    if not isinstance(machine, RunsNetbench):
        raise MissingError(
            f"{host} cannot run netbench's own programs, which were not copied to it; use a host over SSH, or a VM "
            "whose image has python3-numpy"
        )
    return machine


def _innermost(host: Host) -> Host:
    while isinstance(host, HostWrapper) and not isinstance(host, RunsNetbench):
        host = host.made_of
    return host


@cache
def archive() -> bytes:
    """Return all of netbench for a host, as a tar archive compressed by gzip."""
    return _packed(_PACKAGES, lambda file: file.suffix in _SUFFIXES)


@cache
def archive_of(package: str) -> bytes:
    """Return the same for another package that is installed here, with all its files."""
    return _packed((package,), lambda file: "__pycache__" not in file.parts)


def unpack_on(host: Host, packed: bytes, directory: str, scratch: str) -> None:
    """Unpack an archive into a directory of a host; TestbedError when that fails."""
    target = f"{scratch}/netbench.tar.gz"
    with tempfile.NamedTemporaryFile() as file:
        file.write(packed)
        file.flush()
        host.send(Path(file.name), target)
    done = host.run(["sh", "-c", _UNPACK_FILE, target, directory], timeout_s=_UNPACK_S)
    if done.exit_code:
        raise TestbedError(f"{host}: netbench cannot be put into {directory}: {done.stderr.strip()}")


def unpacking_command(directory: str, module: str, *arguments: str) -> list[str]:
    """Return the command that reads `archive()` from its stdin, unpacks it to a new directory, and runs a module."""
    program = _program(directory, module, *arguments)
    return ["python3", "-I", "-S", "-c", _UNPACK, directory, str(len(archive())), *program]


def copied_module_command(
    host: Host, directory: str, module: str, *arguments: str, keep_compiled: bool = False
) -> list[str]:
    """Return the command that runs a module of netbench with arguments, on a host with netbench in `directory`.

    MissingError for other modules. `keep_compiled`: Python may store compiled code there.
    """
    if module.partition(".")[0] != "netbench":
        raise MissingError(f"{host}: {module} cannot run there: only netbench's own modules are copied to a host")
    return ["python3", "-E", "-P", *([] if keep_compiled else ["-B"]), *_program(directory, module, *arguments)]


def _program(directory: str, module: str, *arguments: str) -> list[str]:
    return [f"{directory}/netbench/hosts/trusted_code.py", directory, FIRST, module, *arguments]


def _packed(packages: Sequence[str], is_included: Callable[[Path], bool]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as tar:
        for directory in map(_directory_of, packages):
            for file in sorted(directory.rglob("*")):
                if is_included(file) and file.is_file():
                    tar.add(file, str(file.relative_to(directory.parent)), recursive=False)
    return packed.getvalue()


def _directory_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
