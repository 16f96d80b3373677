"""Counts a capture while it is being made, so that it need not be written to disk."""

import fcntl
import os
import select
import struct
import termios
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING

from netbench.capture.capture_counts import CaptureCounts, Expected
from netbench.capture.counting import CaptureTally, kept_bytes
from netbench.capture.frames import FrameBatch
from netbench.capture.pcap import CaptureReader
from netbench.capture.reading import read_stream
from netbench.errors import UsageError
from netbench.signals import shielded

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_LOOK_AGAIN_MS = 100  # interval of checks for the end of the writer
# Time limit for the rest of the pipe after its writer has ended: a mebibyte, on a busy machine.
_END_S = 60.0
_DISCARDED_BYTES = 1 << 16
# A pipe size that unprivileged processes may have, too (pipe(7), /proc/sys/fs/pipe-max-size), by the default limit.
_WANTED_BYTES = 1 << 20
_LARGEST = Path("/proc/sys/fs/pipe-max-size")
# A reader of single pages wakes up for every 50 frames, and numpy's fixed cost is as high for these as for thousands:
# 1 µs per frame for 500 frames at a time, 0.07 µs for half of the pipe.
_GATHER_S = 0.05
# A time in which 1,000,000 snapped frames/s do not fill the pipe.
_STEP_S = 0.01


class GatheringPipe(RawIOBase):
    """A pipe whose reads wait for data, and then a moment for more, so that it is read in few large pieces.

    Owns the file descriptor. The writer blocks only when a mebibyte of data is unread.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._hurried = threading.Event()
        self._ended = threading.Event()
        with suppress(OSError):  # a smaller pipe works too, with more wake-ups
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, min(_WANTED_BYTES, int(_LARGEST.read_text())))
        self._half = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ) // 2
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def hurry(self) -> None:
        """Read available data at once from now on; any thread may call this at any time."""
        self._hurried.set()

    def end(self) -> None:
        """Treat the data in the pipe as complete: the writer has ended, even if others keep the pipe open."""
        self._ended.set()
        self._hurried.set()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read available data, up to the size of `buffer`; return the number of bytes, 0 at the end."""
        while not (ready := self._poll.poll(_LOOK_AGAIN_MS)):
            if self._ended.is_set() and not self._waiting():
                return 0
        ((_, events),) = ready
        until = time.monotonic() + _GATHER_S
        while not (events & select.POLLHUP or self._waiting() >= self._half or time.monotonic() >= until):
            if self._hurried.wait(_STEP_S):
                break
            ((_, events),) = self._poll.poll()
        return os.readv(self._descriptor, [buffer])

    def close(self) -> None:
        """Close the descriptor; harmless when called twice."""
        if not self.closed:
            super().close()
            os.close(self._descriptor)

    def _waiting(self) -> int:
        """Return how many bytes can be read now (FIONREAD, ioctl_tty(2))."""
        (count,) = struct.unpack("i", fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4)))
        return int(count)


class LiveCapture:
    """Reads one capture in a separate thread, from `begin` until its writer ends, in constant memory.

    Facts known only at the end of a trial (how many frames were sent, and until when) are applied by `counts`.
    """

    def __init__(self, awaited: Expected, from_ns: int = 0) -> None:
        """Of frames captured before `from_ns` (CLOCK_REALTIME), only those of earlier trials are counted, as late."""
        self._name = f"the capture of {awaited.stream}"
        self._tally, self._earlier = CaptureTally(self._name, [awaited]), CaptureTally(self._name, [awaited])
        self._tally.prepare()
        self._kept_bytes = kept_bytes([awaited])
        self._frames_are = "pktgen's header" if awaited.headers else "the stream's addresses"
        self._from_ns = from_ns
        self._read_frames = 0
        self._is_whole = False  # no more frames are added
        self._added = threading.Condition()
        self._pipe: GatheringPipe | None = None
        self._reader: CaptureReader | None = None
        self._failure = ""
        self._news = threading.Event()  # a flush frame was read, or the capture has ended
        self._thread: threading.Thread | None = None

    def begin(self, pipe: int, cpus: Sequence[int]) -> None:
        """Read from the descriptor `pipe`, on `cpus` (empty: any), until its end, and close it; returns at once."""
        self._pipe = GatheringPipe(pipe)
        # A daemon thread: netbench can exit in any state of the writer.
        with shielded():  # a thread whose start a signal interrupted cannot be joined
            self._thread = threading.Thread(target=self._read, args=(self._pipe, cpus), daemon=True)
            self._thread.start()

    def await_flush(self, timeout_s: float) -> bool:
        """Wait for a flush frame, after which all earlier frames have been read; return False when none comes."""
        if self._pipe is not None:
            self._pipe.hurry()
        self._news.wait(timeout_s)
        return self._tally.flush_frames > 0

    def await_frames(self, frames: int, timeout_s: float) -> bool:
        """Return whether exactly `frames` frames are read within the time; then later frames are not counted."""
        with self._added:
            self._added.wait_for(lambda: self._read_frames >= frames, timeout_s)
            self._is_whole = self._read_frames == frames
        return self._is_whole

    def end(self) -> None:
        """Signal that the writer has ended."""
        if self._pipe is not None:
            self._pipe.end()

    def counts(self, expected: Expected) -> CaptureCounts:
        """Return the counts as of `analyze_capture`, after the writer has ended or `await_frames`; callable once.

        UsageError when the data are no capture, and when a counted frame turns out not to be the stream's: its effects
        on loss runs, delays and others cannot be undone.
        """
        assert self._thread is not None, "begin() comes first"
        if not self._is_whole:
            self._thread.join(_END_S)
            if self._thread.is_alive():
                raise UsageError(f"{self._name}: not read to its end {_END_S:g} s after the capture ended")
            if self._failure:
                raise UsageError(self._failure)
        assert self._reader is not None
        if not self._tally.settle([expected]):
            raise UsageError(
                f"{self._name}: frames with {self._frames_are} bear numbers it did not send or times it did not "
                "send at: the clock was set, or another program sent them; inspect them with keep_captures: invalid"
            )
        counts = self._tally.counts(self._reader)
        return replace(
            counts,
            late_from=dict(Counter(counts.late_from) + self._earlier.late_from),
            late_without_address=counts.late_without_address + self._earlier.late_without_address,
        )

    @property
    def frames(self) -> int:
        """The number of frames of any kind that were read."""
        return self._read_frames

    def _read(self, pipe: GatheringPipe, cpus: Sequence[int]) -> None:
        """Read the pipe to its end, in the thread."""
        try:
            with pipe as file:
                if cpus:
                    os.sched_setaffinity(0, cpus)  # 0 is the calling thread, see sched_setaffinity(2)
                try:
                    self._count(read_stream(file, self._name, self._kept_bytes))
                finally:
                    while file.read(_DISCARDED_BYTES):  # otherwise the writer would block, or die, before its report
                        pass
        except UsageError as error:
            self._failure = str(error)
        except Exception as error:  # no caller of a thread could catch it
            self._failure = f"{self._name}: its analysis failed: {error!r}"
        finally:
            self._news.set()

    def _count(self, reader: CaptureReader) -> None:
        self._reader = reader
        for batch in reader.batches():
            with self._added:
                if not self._is_whole:
                    self._add(batch)
                self._added.notify_all()
            if self._tally.flush_frames:
                self._news.set()

    def _add(self, batch: FrameBatch) -> None:
        self._read_frames += len(batch.times_ns)
        earlier = batch.times_ns < self._from_ns
        if earlier.any():
            self._earlier.add(batch.only(earlier))
            batch = batch.only(~earlier)
        if len(batch.times_ns):
            self._tally.add(batch)
