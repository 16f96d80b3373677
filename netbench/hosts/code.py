"""netbench's code for hosts without netbench: an archive, and the program that unpacks and runs it there.

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

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host
from netbench.hosts.python_modules import FIRST

PYTHON = (3, 11)
SCRATCH = "/var/tmp/netbench-"  # followed by the name of the run: a directory for temporary files
_PACKAGES = ("netbench", "pyroute2")
_SUFFIXES = (".py", ".o", ".sh")
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
    packed.extraction_filter = lambda member, _: member  # of netbench's own making; newer Pythons want it said
    packed.extractall(directory)
except OSError as error:
    shutil.rmtree(directory, ignore_errors=True)  # as far as that goes: what is said is why there is none
    sys.exit("netbench cannot be put into %s: %s" % (directory, error.strerror))
os.execv(sys.executable, [sys.executable, "-E", "-P", "-B", *command])
"""


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


def brought_module_command(
    host: Host, directory: str, module: str, *arguments: str, keep_compiled: bool = False
) -> list[str]:
    """Return the command that runs a module of netbench with arguments, on a host with netbench in `directory`.

    MissingError for other modules. `keep_compiled`: Python may store compiled code there.
    """
    if module.partition(".")[0] != "netbench":
        raise MissingError(f"{host} has netbench's own modules only, and {module} is none of them")
    return ["python3", "-E", "-P", *([] if keep_compiled else ["-B"]), *_program(directory, module, *arguments)]


def _program(directory: str, module: str, *arguments: str) -> list[str]:
    return [f"{directory}/netbench/hosts/python_modules.py", directory, FIRST, module, *arguments]


def _packed(packages: Sequence[str], is_wanted: Callable[[Path], bool]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as tar:
        for directory in map(_directory_of, packages):
            for file in sorted(directory.rglob("*")):
                if is_wanted(file) and file.is_file():
                    tar.add(file, str(file.relative_to(directory.parent)), recursive=False)
    return packed.getvalue()


def _directory_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
