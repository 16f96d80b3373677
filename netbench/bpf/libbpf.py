"""The objects built from `programs/*.c`, loaded and attached by libbpf, a dependency of iproute2.

Programs, maps and attachments live as long as their process keeps them open: none outlives a killed process.
"""

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, Self

from netbench.errors import MissingError, TestbedError, fault_of

_LIBRARY, _PACKAGE = "libbpf.so.1", "libbpf1"  # Debian's
_PROGRAMS = files("netbench.bpf") / "programs"
_Pointer = ctypes.c_void_p
# `struct bpf_prog_info` (linux/bpf.h): offsets of the id and of the 16-byte name, and the size up to its end.
_INFO_ID, _INFO_NAME, _INFO_BYTES = 4, 64, 80

loaded_here: set[int] = set()
"""The ids of the programs that this process has loaded and used; the kernel gives no id twice."""

_RETURN_POINTERS = ("__open_mem", "__find_map_by_name", "__find_program_by_name")
_LIVE_FRAMES = 1 << 1  # BPF_F_TEST_XDP_LIVE_FRAMES, linux/bpf.h
_XDP, _TCX_INGRESS = 37, 46  # enum bpf_attach_type, linux/bpf.h
_XDP_FLAGS = {"generic": 1 << 1, "native": 1 << 2}  # linux/if_link.h

XdpMode = Literal["native", "generic"]

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_LOOPBACK = 1  # the first interface of each network namespace


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
            f"{_LIBRARY} cannot be loaded ({error}): install {_PACKAGE}, which iproute2 brings", package=_PACKAGE
        ) from error
    library.libbpf_set_print(None)  # the verifier's output is only useful to authors of programs

    def call(name: str, *arguments: object) -> int:
        function = getattr(library, name)
        function.restype = _Pointer if name.endswith(_RETURN_POINTERS) else ctypes.c_int
        ctypes.set_errno(0)
        answer = function(*arguments)
        if answer is None or (function.restype is ctypes.c_int and answer < 0):
            number = ctypes.get_errno() or -(answer or 0)
            cause = OSError(number, os.strerror(number))
            raise BpfError(f"{name}: {cause.strerror}", fault=fault_of(number)) from cause
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

    def __exit__(self, *_: object) -> None:
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
    return MissingError(f"the BPF program {name} cannot be loaded: {why}", fault=error.fault)


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
        raise BpfError(f"a program cannot be attached at {name}: {error}", fault=error.fault) from cause


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
