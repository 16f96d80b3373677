"""Keeps programs in the kernel's dispatcher of directly called XDP programs (kernel/bpf/dispatcher.c)."""

import ctypes
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from netbench.bpf.attaching import attach_xdp

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_LOOPBACK = 1  # the first interface of each network namespace


def keep_dispatched(programs: Iterable[int], stack: ExitStack) -> None:
    """Keep programs in the dispatcher until `stack` is closed; OSError or BpfError where that is not possible.

    At the start of a live-frame call the kernel adds the program to the dispatcher, and waits for an RCU grace period:
    all CPUs must leave the code that they run in the kernel. That takes milliseconds, and some hundred while another
    program occupies a CPU. A source would begin that much later than the source of another stream. Programs that are
    attached to an interface are in the dispatcher already. These are attached in separate network namespaces, which
    receive nothing.
    """
    with ThreadPoolExecutor(1) as thread:  # unshare(2) moves the calling thread alone
        for program in programs:
            thread.submit(_attach_apart, program, stack).result()


def _attach_apart(program: int, stack: ExitStack) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    stack.callback(os.close, os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
    stack.callback(attach_xdp(program, _LOOPBACK, "generic").close)
