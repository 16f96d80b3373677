"""Programs attached to interfaces of the network namespace that a process is in, for as long as it lives at most."""

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
    """Another program is where one was to be attached, and there is room for one."""


class _LinkOptions(ctypes.Structure):
    """`struct bpf_link_create_opts` as far as it is the same in every libbpf.so.1."""

    _fields_ = (("size", ctypes.c_size_t), ("flags", ctypes.c_uint32), ("_padding", ctypes.c_uint32))


@dataclass(slots=True)
class Link:
    """A program at its place, until this is closed or its process ends, in whatever way."""

    fd: int | None

    def replace(self, program: int) -> None:
        """Have another program of the kind there from now on: no frame passes none. BpfError when it is closed."""
        libbpf()("bpf_link_update", -1 if self.fd is None else self.fd, program, None)

    def close(self) -> None:
        """Take it away; harmless when called twice."""
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)


def attach_xdp(program: int, interface: int, mode: XdpMode) -> Link:
    """Run a program on each frame that an interface (its index) receives, in its driver or behind it.

    PlaceTakenError where another program is there, in whichever mode; BpfError where the driver has no XDP, or the
    frames of its MTU do not fit.
    """
    return _attach(program, interface, _XDP, _XDP_FLAGS[mode], f"XDP in {mode} mode (Linux 5.9 or newer)")


def attach_tc_ingress(program: int, interface: int) -> Link:
    """Run a program on each frame that an interface hands to the kernel; BpfError before Linux 6.6."""
    return _attach(program, interface, _TCX_INGRESS, 0, "tc ingress (tcx, Linux 6.6 or newer)")


def _attach(program: int, interface: int, where: int, flags: int, name: str) -> Link:
    options = _LinkOptions(ctypes.sizeof(_LinkOptions), flags)
    try:
        return Link(libbpf()("bpf_link_create", program, interface, where, ctypes.byref(options)))
    except BpfError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in (errno.EBUSY, errno.EEXIST):
            raise PlaceTakenError(f"a program cannot be attached at {name}: another one is there") from cause
        raise BpfError(f"a program cannot be attached at {name}: {error}") from error.__cause__
