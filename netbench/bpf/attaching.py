"""Attaches programs to interfaces in the process's network namespace; they end with the process at the latest."""

import ctypes
import errno
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from netbench.bpf.libbpf import BpfError, libbpf

_XDP, _TCX_INGRESS = 37, 46  # enum bpf_attach_type, linux/bpf.h
_XDP_FLAGS = {"generic": 1 << 1, "native": 1 << 2}  # linux/if_link.h

XdpMode = Literal["native", "generic"]

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_LOOPBACK = 1  # the first interface of each network namespace


class HookTakenError(BpfError):
    """Another program occupies the attachment point, which has room for one."""


class _LinkOptions(ctypes.Structure):
    """The part of `struct bpf_link_create_opts` that is the same in every libbpf.so.1."""

    _fields_ = (("size", ctypes.c_size_t), ("flags", ctypes.c_uint32), ("_padding", ctypes.c_uint32))


@dataclass(slots=True)
class BpfLink:
    """An attached program, until this object is closed or its process ends in any way."""

    fd: int | None

    def replace(self, program: int) -> None:
        """Replace the program by another of its kind without a gap between them. BpfError when it is closed."""
        libbpf()("bpf_link_update", -1 if self.fd is None else self.fd, program, None)

    def close(self) -> None:
        """Detach the program; harmless when called twice."""
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)


def attach_xdp(program: int, interface: int, mode: XdpMode) -> BpfLink:
    """Run a program on each frame that an interface (its index) receives, in its driver or behind it.

    HookTakenError where another program is attached in any mode; BpfError where the driver has no XDP, or frames of
    its MTU do not fit.
    """
    return _attach(program, interface, _XDP, _XDP_FLAGS[mode], f"XDP in {mode} mode (Linux 5.9 or newer)")


def attach_tc_ingress(program: int, interface: int) -> BpfLink:
    """Run a program on each frame that an interface hands to the kernel; BpfError before Linux 6.6."""
    return _attach(program, interface, _TCX_INGRESS, 0, "tc ingress (tcx, Linux 6.6 or newer)")


def _attach(program: int, interface: int, where: int, flags: int, name: str) -> BpfLink:
    options = _LinkOptions(ctypes.sizeof(_LinkOptions), flags)
    try:
        return BpfLink(libbpf()("bpf_link_create", program, interface, where, ctypes.byref(options)))
    except BpfError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in (errno.EBUSY, errno.EEXIST):
            raise HookTakenError(f"a program cannot be attached at {name}: another one is there") from cause
        raise BpfError(f"a program cannot be attached at {name}: {error}") from error.__cause__


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
