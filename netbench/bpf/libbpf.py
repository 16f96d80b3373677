"""The objects built from `programs/*.c`, loaded into the kernel by libbpf, a dependency of iproute2.

Programs, maps and attachments live as long as their process keeps them open: none outlives a killed process.
"""

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from importlib.resources import files
from types import TracebackType
from typing import Self

from netbench.errors import MissingError, TestbedError

_LIBRARY, PACKAGE = "libbpf.so.1", "libbpf1"  # Debian's
_PROGRAMS = files("netbench.bpf") / "programs"
_Pointer = ctypes.c_void_p
# `struct bpf_prog_info` (linux/bpf.h): offsets of the id and of the 16-byte name, and the size up to its end.
_INFO_ID, _INFO_NAME, _INFO_BYTES = 4, 64, 80

loaded_here: set[int] = set()
"""The ids of the programs that this process has loaded and used; the kernel gives no id twice."""

_RETURN_POINTERS = ("__open_mem", "__find_map_by_name", "__find_program_by_name")
_LIVE_FRAMES = 1 << 1  # BPF_F_TEST_XDP_LIVE_FRAMES, linux/bpf.h


class BpfError(TestbedError):
    """The kernel rejects a BPF program, one of its maps, or its attachment."""


@cache
def libbpf() -> Callable[..., int]:
    """Return a function that calls libbpf by name: `libbpf()("bpf_map__fd", pointer)`; MissingError without libbpf.

    Its result is an int, or a pointer for functions that open or find; BpfError with the kernel's reason for a failure.
    """
    try:
        library = ctypes.CDLL(_LIBRARY, use_errno=True)
    except OSError as error:
        raise MissingError(
            f"{_LIBRARY} cannot be loaded ({error}): install {PACKAGE}, which iproute2 brings"
        ) from error
    library.libbpf_set_print(None)  # the verifier's output is only useful to authors of programs

    def call(name: str, *arguments: object) -> int:
        function = getattr(library, name)
        function.restype = _Pointer if name.endswith(_RETURN_POINTERS) else ctypes.c_int
        ctypes.set_errno(0)
        answer = function(*arguments)
        if answer is None or (function.restype is ctypes.c_int and answer < 0):
            number = ctypes.get_errno() or -(answer or 0)
            raise BpfError(f"{name}: {os.strerror(number)}") from OSError(number, os.strerror(number))
        return int(answer)

    return call


class BpfMap:
    """A map of a loaded object, with 32-bit keys."""

    def __init__(self, pointer: int) -> None:
        call, of = libbpf(), _Pointer(pointer)
        self.fd = call("bpf_map__fd", of)
        self.entries = call("bpf_map__max_entries", of)
        self.value_bytes = call("bpf_map__value_size", of)

    def put(self, key: int, value: bytes) -> None:
        """Set the value of a key; ValueError for a value of another size than the map's."""
        if len(value) != self.value_bytes:
            raise ValueError(f"{len(value)} bytes for a map whose values have {self.value_bytes}")
        libbpf()("bpf_map_update_elem", self.fd, ctypes.byref(ctypes.c_uint32(key)), value, ctypes.c_uint64(0))

    def get(self, key: int) -> bytes:
        """Return the value of a key; BpfError where there is none."""
        value = ctypes.create_string_buffer(self.value_bytes)
        libbpf()("bpf_map_lookup_elem", self.fd, ctypes.byref(ctypes.c_uint32(key)), value)
        return value.raw

    def memory(self) -> mmap.mmap:
        """Return the memory of an array with BPF_F_MMAPABLE: its values, each padded to a multiple of 8 bytes."""
        return mmap.mmap(self.fd, -(-self.value_bytes // 8) * 8 * self.entries)


class Loaded:
    """An object in the kernel; close() removes its programs and maps, unless another process has them open."""

    def __init__(self, name: str, sizes: Mapping[str, int], only: str) -> None:
        call = libbpf()
        code = (_PROGRAMS / f"{name}.bpf.o").read_bytes()
        with ExitStack() as undo:
            self._object = _Pointer(call("bpf_object__open_mem", code, ctypes.c_size_t(len(code)), None))
            undo.callback(self.close)
            for map_name, entries in sizes.items():
                call("bpf_map__set_max_entries", self._found("map", map_name), ctypes.c_uint32(entries))
            if only:
                call("bpf_program__set_autoload", self._found("program", only), ctypes.c_bool(True))
            try:
                call("bpf_object__load", self._object)
            except BpfError as error:
                raise _explained(error, name) from error
            undo.pop_all()

    def program(self, name: str) -> int:
        """Return the file descriptor of a program, by the name of its function."""
        fd = libbpf()("bpf_program__fd", self._found("program", name))
        loaded_here.add(int.from_bytes(_info(fd)[_INFO_ID : _INFO_ID + 4], sys.byteorder))
        return fd

    def map(self, name: str) -> BpfMap:
        """Return a map by its name."""
        pointer = self._found("map", name).value
        assert pointer is not None
        return BpfMap(pointer)

    def close(self) -> None:
        """Release the object; harmless when called twice."""
        pointer, self._object = self._object, _Pointer(None)
        if pointer:
            ctypes.CDLL(_LIBRARY).bpf_object__close(pointer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _found(self, what: str, name: str) -> _Pointer:
        assert self._object, "it is closed"
        return _Pointer(libbpf()(f"bpf_object__find_{what}_by_name", self._object, name.encode()))


def load(name: str, sizes: Mapping[str, int] | None = None, only: str = "") -> Loaded:
    """Load `programs/NAME.bpf.o`; `sizes` overrides the numbers of entries of its maps.

    `only` selects one program of an object with programs for several attachment points (`?` in their sections).

    MissingError without libbpf, without the right to load programs, or where the kernel lacks a required feature.
    """
    return Loaded(name, sizes or {}, only)


def program_name(number: int) -> str:
    """Return the name of a program in the kernel by its number; empty where it has no name or no longer exists."""
    fd = -1
    try:
        fd = libbpf()("bpf_prog_get_fd_by_id", ctypes.c_uint32(number))
        return _info(fd)[_INFO_NAME:].partition(b"\0")[0].decode(errors="replace")
    except (BpfError, MissingError):
        return ""  # it is gone, or no process here can have loaded one
    finally:
        if fd >= 0:
            os.close(fd)


def _info(fd: int) -> bytes:
    info = ctypes.create_string_buffer(_INFO_BYTES)
    libbpf()("bpf_obj_get_info_by_fd", fd, info, ctypes.byref(ctypes.c_uint32(_INFO_BYTES)))
    return info.raw


def _explained(error: BpfError, name: str) -> MissingError:
    cause = error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    if number == errno.EPERM:
        why = "loading BPF programs needs root (CAP_BPF, CAP_NET_ADMIN), which this process does not have here"
    elif number is not None:
        why = f"this kernel ({os.uname().release}) refuses it: {os.strerror(number)}"
    else:
        why = str(error)
    return MissingError(f"the BPF program {name} cannot be loaded: {why}")


class _RunOptions(ctypes.Structure):
    """`struct bpf_test_run_opts`, bpf/bpf.h."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("data_in", ctypes.c_char_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_void_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


def run_live(program: int, frame: bytes, repeat: int, batch: int = 0) -> bool:
    """Run an XDP program `repeat` times on copies of a frame; the kernel acts on each by the program's return value.

    `batch` frames are handed over together (0: the kernel's default of 64). Returns True when all were handed over, and
    False when a signal to the calling thread ended the run early. BpfError where the kernel has no live frames, or the
    frame does not fit in a page.
    """
    options = _RunOptions(size=ctypes.sizeof(_RunOptions), data_in=frame, data_size_in=len(frame), repeat=repeat)
    options.flags, options.batch_size = _LIVE_FRAMES, batch
    try:
        libbpf()("bpf_prog_test_run_opts", program, ctypes.byref(options))
    except BpfError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EINTR:
            return False
        raise
    return True
