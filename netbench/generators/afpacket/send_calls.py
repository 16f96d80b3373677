"""System calls that send many frames at once, by ctypes: sendmmsg(2), and io_submit(2), which skips rejected frames."""

import ctypes
import errno
import os
import platform
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# io_setup, io_destroy, io_submit, io_getevents; libc has no functions for them.
_CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
_PWRITE = 1  # IOCB_CMD_PWRITE of linux/aio_abi.h; on a socket it sends


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


class _Iocb(ctypes.Structure):
    """`struct iocb` of linux/aio_abi.h."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("fd", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("event_fd", ctypes.c_uint32),
    )


class Context:
    """An AIO context for `writes` writes at a time; kept across trials, because destroying it takes 20 ms.

    Raises OSError where the kernel does not support the call.
    """

    def __init__(self, writes: int) -> None:
        self.call = ctypes.CDLL(None, use_errno=True).syscall
        if platform.machine() not in _CALLS:
            raise OSError(errno.ENOSYS, f"io_submit(2) has no known number on {platform.machine()}")
        setup, destroy, self.submit, self.get = _CALLS[platform.machine()]
        self.number = ctypes.c_ulong()
        if self.call(setup, writes, ctypes.byref(self.number)):
            raise OSError(ctypes.get_errno(), f"io_setup(2): {os.strerror(ctypes.get_errno())}")
        weakref.finalize(self, self.call, destroy, self.number)


class Submissions:
    """The rows of a two-dimensional buffer as writes to one socket; the counterpart of `Messages`.

    A frame that the device rejects for lack of room does not stop later ones, unlike in sendmmsg(2). The kernel sends
    within the call: when it returns, each frame was either sent or rejected.
    """

    def __init__(self, buffer: npt.NDArray[np.uint8], lengths: Sequence[int], fd: int, context: Context) -> None:
        """`context` has room for the largest number of writes per call; row r has `lengths[r]` bytes to send."""
        rows = len(buffer)
        self._buffer = buffer  # the kernel reads it through the addresses below
        self._writes = (_Iocb * rows)()
        self._addresses = (ctypes.c_void_p * rows)()
        for row, write in enumerate(self._writes):
            write.opcode, write.fd, write.bytes = _PWRITE, fd, lengths[row]
            write.buffer = buffer.ctypes.data + row * buffer.strides[0]
            self._addresses[row] = ctypes.addressof(write)
        self._events = np.zeros((rows, 4), np.int64)  # struct io_event: data, obj, res, res2
        self._into = ctypes.c_void_p(self._events.ctypes.data)
        self._context = context

    def send(self, fd: int, first: int, count: int) -> int:
        """Offer `count` rows from row `first` on to the device.

        Returns the number of rows offered, in order; or −errno when one failed for another reason than lack of room.
        """
        context = self._context
        begin = ctypes.c_void_p(ctypes.addressof(self._addresses) + first * ctypes.sizeof(ctypes.c_void_p))
        offered: int = context.call(context.submit, context.number, ctypes.c_long(count), begin)
        if offered < 0:
            return -ctypes.get_errno()
        context.call(context.get, context.number, ctypes.c_long(offered), ctypes.c_long(offered), self._into, None)
        results = self._events[:offered, 2]
        failed = results[(results < 0) & (results != -errno.ENOBUFS)]
        return int(failed[0]) if failed.size else offered
