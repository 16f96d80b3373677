"""Attaches programs to interfaces in the process's network namespace; they end with the process at the latest."""

import ctypes
import errno
import os
from dataclasses import dataclass
from typing import Literal

from netbench.bpf.libbpf import BpfError, libbpf

_XDP, _TCX_INGRESS = 37, 46  # enum bpf_attach_type, linux/bpf.h
_XDP_FLAGS = {"generic": 1 << 1, "native": 1 << 2}  # linux/if_link.h

XdpMode = Literal["native", "generic"]


class PlaceTakenError(BpfError):
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

    PlaceTakenError where another program is attached in any mode; BpfError where the driver has no XDP, or frames of
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
            raise PlaceTakenError(f"a program cannot be attached at {name}: another one is there") from cause
        raise BpfError(f"a program cannot be attached at {name}: {error}") from error.__cause__
