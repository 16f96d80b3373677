"""Programs kept where the kernel has the XDP programs that it calls directly (kernel/bpf/dispatcher.c)."""

import ctypes
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from netbench.bpf.attaching import attach_xdp

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_LOOPBACK = 1  # the interface that each network namespace begins with


def keep_dispatched(programs: Iterable[int], stack: ExitStack) -> None:
    """Keep programs there for as long as `stack` is open; OSError or BpfError where that is not possible.

    A program that runs on live frames is put there when a call begins, for which the kernel waits until all CPUs have
    left what they do in it (an RCU grace period). That takes milliseconds, and some hundred while another program keeps
    a CPU: a source would begin that much later than the source of another stream. Those that are attached to an
    interface are there already. These are attached in network namespaces of their own, in which nothing is received.
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
