"""Network namespaces: their list, and reading from inside them without a process."""

import ctypes
import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from netbench.errors import MachineGoneError, TestbedError
from netbench.model.foreign_text import read_lines

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_NO_NAMESPACE = (errno.ENOENT, errno.EINVAL)  # no file, or a file without a mounted namespace
_NAMED = Path("/run/netns")


def within_each(namespaces: Iterable[str | None], read: Callable[[str | None], T]) -> dict[str | None, T]:
    """Return the result of `read` in each namespace (None: netbench's own); MachineGoneError when one is gone.

    setns(2) moves one thread only; here that thread ends with the call. Sockets opened in it and files of
    /proc/thread-self/net belong to the namespace.
    """

    def walk() -> dict[str | None, T]:
        results = {}
        for netns in sorted(namespaces, key=bool):  # netbench's own comes first: it has no name by which to return
            if netns:
                _enter(namespace_path(netns), netns)
            results[netns] = read(netns)
        return results

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(walk).result()


def within(path: str, read: Callable[[], T]) -> T:
    """Return the result of `read` in the namespace at a path (/proc/PID/ns/net); raises as `within_each`."""

    def enter_and_read() -> T:
        _enter(path, path)
        return read()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(enter_and_read).result()


def namespace_path(netns: str | None) -> str:
    """Return the path for entering a namespace by name; None: netbench's own."""
    return str(_NAMED / netns) if netns else "/proc/self/ns/net"


def every_namespace(excluded: str) -> dict[str, str]:
    """Return path and description of each network namespace of this machine, except the one at `excluded`.

    A namespace exists by its name, by a process in it (a container), by a mount elsewhere, or by a descriptor. Those
    that this process may not see are left out.
    """
    known = {Path(excluded).stat().st_ino}
    namespaces = {}
    for path, description in _namespace_paths():
        with suppress(OSError):  # gone meanwhile, or access denied
            inode = Path(path).stat().st_ino
            if inode not in known:
                known.add(inode)
                namespaces[path] = description
    return namespaces


def _namespace_paths() -> Iterator[tuple[str, str]]:
    """Yield paths of network namespaces, several of the same for some; those by a name first."""
    for path in _listed(_NAMED):
        yield str(path), f"the network namespace {path.name}"
    for process in _listed(Path("/proc")):
        if not process.name.isdecimal():
            continue
        description = f"the network namespace of process {process.name}"
        for task in _listed(process / "task"):
            yield str(task / "ns/net"), description
        for mount_point in _mounts(process):
            yield f"{process}/root{mount_point}", f"the network namespace mounted at {mount_point}"
        for descriptor in _listed(process / "fd"):
            with suppress(OSError):  # closed meanwhile
                if str(descriptor.readlink()).startswith("net:"):
                    yield str(descriptor), f"a network namespace that process {process.name} has open"


def _mounts(process: Path) -> list[str]:
    """Return the mount points of network namespaces in a process's view (proc_pid_mountinfo(5))."""
    try:
        lines = read_lines(process / "mountinfo")
    except OSError:
        return []
    mount_points = [words[4] for words in map(str.split, lines) if words[3].startswith("net:")]
    return [re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), path) for path in mount_points]


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


@cache
def _libc() -> ctypes.CDLL:
    """Return the C library, opened once: each opening makes classes, which stay until the next garbage collection."""
    return ctypes.CDLL(None, use_errno=True)


def _enter(path: str, netns: str) -> None:
    try:
        with Path(path).open("rb", buffering=0) as file:
            if _libc().setns(file.fileno(), _CLONE_NEWNET) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
    except OSError as error:
        if error.errno in _NO_NAMESPACE:
            raise MachineGoneError(f"network namespace {netns} is gone: other software deleted it") from error
        raise TestbedError(f"network namespace {netns} cannot be entered: {error.strerror}") from error
