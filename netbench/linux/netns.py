"""Reading from inside network namespaces, without a process."""

import ctypes
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from netbench.errors import MachineGoneError, TestbedError

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000  # linux/sched.h


def within_each(namespaces: Iterable[str | None], read: Callable[[str | None], T]) -> dict[str | None, T]:
    """What `read` returns when called in each namespace (None: where netbench runs); MachineGoneError when one is gone.

    setns(2) moves one thread only, here one that ends with the call. Sockets opened in it and files of
    /proc/thread-self/net are those of the namespace.
    """

    def walk() -> dict[str | None, T]:
        found = {}
        for netns in sorted(namespaces, key=bool):  # where netbench runs comes first: there is no name to go back by
            if netns:
                _enter(netns)
            found[netns] = read(netns)
        return found

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(walk).result()


def _enter(netns: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = os.open(f"/run/netns/{netns}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if libc.setns(descriptor, _CLONE_NEWNET) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise MachineGoneError(f"network namespace {netns} is gone: somebody deleted it") from error
    except OSError as error:
        raise TestbedError(f"network namespace {netns} cannot be entered: {error.strerror}") from error
