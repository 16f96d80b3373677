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
_POINTER_BYTES = 8
_PWRITE = 1  # IOCB_CMD_PWRITE of linux/aio_abi.h; on a socket it sends

# `struct iovec` of readv(2), `struct mmsghdr` of sendmmsg(2), `struct iocb` of linux/aio_abi.h, of 64-bit machines.
_IOVEC = np.dtype([("base", "u8"), ("length", "u8")])
_MMSGHDR = np.dtype(
    [
        *(("name", "u8"), ("name_length", "u4"), ("iov", "u8"), ("iov_length", "u8")),
        *(("control", "u8"), ("control_length", "u8"), ("flags", "i4"), ("padding", "u4"), ("sent_bytes", "u4")),
    ],
    align=True,
)
_IOCB = np.dtype(
    [
        *(("data", "u8"), ("key", "u4"), ("rw_flags", "u4"), ("opcode", "u2"), ("priority", "i2"), ("fd", "u4")),
        *(("buffer", "u8"), ("bytes", "u8"), ("offset", "i8"), ("reserved", "u8"), ("flags", "u4"), ("event_fd", "u4")),
    ]
)


def _row_addresses(array: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
    """Return the memory address of each row of an array."""
    return np.uint64(array.ctypes.data) + np.arange(len(array), dtype=np.uint64) * np.uint64(array.strides[0])


class Messages:
    """The rows of a two-dimensional buffer, each with its own length, as messages for one socket.

    Nothing is copied: a send uses the contents of the buffer at that time. While the kernel works, other
    Python threads run (ctypes releases the interpreter lock).
    """

    def __init__(self, buffer: npt.NDArray[np.uint8], lengths: Sequence[int]) -> None:
        self._buffer = buffer  # the kernel reads it through the addresses below
        self._vectors = np.zeros(len(buffer), _IOVEC)
        self._vectors["base"], self._vectors["length"] = _row_addresses(buffer), lengths
        self._messages = np.zeros(len(buffer), _MMSGHDR)
        self._messages["iov"], self._messages["iov_length"] = _row_addresses(self._vectors), 1
        self._address = self._messages.ctypes.data
        self._sendmmsg = ctypes.CDLL(None, use_errno=True).sendmmsg
        self._sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)

    def send(self, fd: int, first: int, count: int) -> int:
        """Send `count` rows from row `first` on through socket `fd`.

        Returns the number of rows that the kernel accepted, in order, at least 1; or −errno when it accepted none.
        """
        taken: int = self._sendmmsg(fd, self._address + first * _MMSGHDR.itemsize, count, 0)
        return taken if taken >= 0 else -ctypes.get_errno()


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
        self._buffer = buffer  # the kernel reads it through the addresses below
        self._writes = np.zeros(len(buffer), _IOCB)
        self._writes["opcode"], self._writes["fd"] = _PWRITE, fd
        self._writes["buffer"], self._writes["bytes"] = _row_addresses(buffer), lengths
        self._pointers = _row_addresses(self._writes)
        self._address = self._pointers.ctypes.data
        self._events = np.zeros((len(buffer), 4), np.int64)  # struct io_event: data, obj, res, res2
        self._into = ctypes.c_void_p(self._events.ctypes.data)
        self._context = context

    def send(self, fd: int, first: int, count: int) -> int:
        """Offer `count` rows from row `first` on to the device.

        Returns the number of rows offered, in order; or −errno when one failed for another reason than lack of room.
        """
        context = self._context
        begin = ctypes.c_void_p(self._address + first * _POINTER_BYTES)
        offered: int = context.call(context.submit, context.number, ctypes.c_long(count), begin)
        if offered < 0:
            return -ctypes.get_errno()
        context.call(context.get, context.number, ctypes.c_long(offered), ctypes.c_long(offered), self._into, None)
        results = self._events[:offered, 2]
        failed = results[(results < 0) & (results != -errno.ENOBUFS)]
        return int(failed[0]) if failed.size else offered
