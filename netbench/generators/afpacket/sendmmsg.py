"""sendmmsg(2) by ctypes: many frames to the kernel in one system call."""

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class _IoVec(ctypes.Structure):
    """`struct iovec` of readv(2)."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _MsgHdr(ctypes.Structure):
    """`struct msghdr` of sendmsg(2)."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("iov", ctypes.POINTER(_IoVec)),
        ("iov_length", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _MMsgHdr(ctypes.Structure):
    """`struct mmsghdr` of sendmmsg(2)."""

    _fields_ = (("header", _MsgHdr), ("sent_bytes", ctypes.c_uint))


class Messages:
    """The rows of a two-dimensional buffer, each with its own length, as messages for one socket.

    Nothing is copied: a send uses the contents of the buffer at that time. While the kernel works, other
    Python threads run (ctypes releases the interpreter lock).
    """

    def __init__(self, buffer: npt.NDArray[np.uint8], lengths: Sequence[int]) -> None:
        rows = len(buffer)
        self._buffer = buffer  # the kernel reads it through the addresses below
        self._vectors = (_IoVec * rows)()
        self._messages = (_MMsgHdr * rows)()
        for row in range(rows):
            self._vectors[row] = _IoVec(buffer.ctypes.data + row * buffer.strides[0], lengths[row])
            self._messages[row].header.iov = ctypes.pointer(self._vectors[row])
            self._messages[row].header.iov_length = 1
        self._address = ctypes.addressof(self._messages)
        self._sendmmsg = ctypes.CDLL(None, use_errno=True).sendmmsg
        self._sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)

    def send(self, fd: int, first: int, count: int) -> int:
        """Send `count` rows from row `first` on through socket `fd`.

        Returns the number of rows that the kernel accepted, in order, at least 1; or −errno when it accepted none.
        """
        taken: int = self._sendmmsg(fd, self._address + first * ctypes.sizeof(_MMsgHdr), count, 0)
        return taken if taken >= 0 else -ctypes.get_errno()
