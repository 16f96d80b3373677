"""Sends frames made by a BPF program, as fast as the kernel can (bpf-prog-test-run.rst, live frames; Linux 5.18)."""

import ctypes
import errno

from netbench.bpf.libbpf import BpfError, libbpf

_LIVE_FRAMES = 1 << 1  # BPF_F_TEST_XDP_LIVE_FRAMES, linux/bpf.h


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
