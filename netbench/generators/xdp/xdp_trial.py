"""One trial of a source: the input of the BPF program (bpf/programs/source.c), and its results."""

import ctypes
import time
from sys import byteorder

import numpy as np
import numpy.typing as npt

from netbench.generators.source_worker import at_once_s, catch_up_fps, pause_beyond_usual_ns
from netbench.hosts.clock import SystemClock, read_clocks
from netbench.linux.proc import SchedTimes
from netbench.model.frame_template import MOST_CHECKSUMS, MOST_HEADER_BYTES, MOST_WORDS, FrameTemplate
from netbench.model.traffic import Sent, Traffic
from netbench.packets.flow_values import FlowBytes

# A longer pause of the program is a stall, unless more than one in so many pauses is that long.
_PAUSE_NS = 1_000_000
# The same where the receiver works between two runs of the program: the kernel permits 2 ms (MAX_SOFTIRQ_TIME), and the
# last call may take as long again.
_RECEIVER_PAUSE_NS = 5_000_000
_FEW_STALLS = 10
_NO_CHECKSUM = 0xFFFF  # replaces a UDP checksum of 0 (RFC 768)
_FLOW_BYTES = 4 * (MOST_WORDS + MOST_CHECKSUMS)  # of `struct flow`
_CLOCK_EVERY = 16  # frames between two readings of the clock, without a rate
_FRACTION = 2**32  # the program's fractions of a ns
# Batches are as small as the rate allows, as (highest frames/s, frames per batch). Returning a frame takes 0.1 µs.
# Sending a single frame takes 2 µs where it wakes a thread on another CPU, and twice that for long frames. Batches of
# long frames are therefore twice as large.
_BATCHES = ((100_000.0, 1), (400_000.0, 4), (1_000_000.0, 8))
_LARGEST_BATCH = 64
_HEADROOM = 1.5
_LONG_BYTES = 512
# In the largest batch a frame waits for the next, up to the 16 that the kernel hands over at once (DEV_MAP_BULK_SIZE).
_LONGEST_HOLD_NS = 1_000


class Shape(ctypes.Structure):
    """`struct shape` of the program: the headers of all frames of one size."""

    _fields_ = (
        ("headers", ctypes.c_uint8 * MOST_HEADER_BYTES),
        ("shorter", ctypes.c_uint64),
        ("checksums", ctypes.c_uint32 * MOST_CHECKSUMS),
    )


class Shared(ctypes.Structure):
    """`struct trial` of the program, which documents the fields; in shared memory."""

    _fields_ = (
        ("only", Shape),
        *((name, ctypes.c_uint64) for name in ("payload_at", "complement_at", "words", "sums")),
        ("words_at", ctypes.c_uint8 * MOST_WORDS),
        ("sums_at", ctypes.c_uint8 * MOST_CHECKSUMS),
        ("zero_sums", ctypes.c_uint16 * MOST_CHECKSUMS),
        *(
            (name, ctypes.c_uint64)
            for name in (
                *("start_ns", "end_ns", "frames", "gap_ns", "gap_fraction", "least_gap_ns", "ahead_ns"),
                *("first_frames", "later_gap_ns", "later_gap_fraction"),
                *("flows", "batch", "hold_ns", "pause_ns", "second_ns", "second", "stamp"),
                *("due_ns", "due_fraction", "earliest_ns", "run", "held", "sent", "flow", "shapes", "place"),
                *("first_ns", "last_ns", "latest_ns", "burst", "longest_burst"),
                *("seen_ns", "stalled_ns", "stalls", "backpressure_ns", "done"),
            )
        ),
    )


def flow_rows(flow_bytes: FlowBytes) -> npt.NDArray[np.uint32]:
    """Return `struct flow` of the program for each flow: shape (flows, MOST_WORDS + MOST_CHECKSUMS)."""
    words, sums = flow_bytes.words, flow_bytes.sums
    rows = np.zeros((len(words), _FLOW_BYTES // 4), np.uint32)
    rows[:, : words.shape[1]] = words
    rows[:, MOST_WORDS : MOST_WORDS + sums.shape[1]] = sums.astype(">u2").view(np.uint16)
    return rows


def _shape(frame: bytes, shorter: int, sums_at: tuple[int, ...]) -> Shape:
    """Return the shape of these frames of a trial, which are `shorter` bytes shorter than its live frame."""
    shape = Shape(shorter=shorter)
    headers = frame[:MOST_HEADER_BYTES]
    shape.headers[: len(headers)] = headers
    for number, at in enumerate(sums_at):
        shape.checksums[number] = 0xFFFF ^ int.from_bytes(frame[at : at + 2], byteorder)
    return shape


class XdpTrial:
    """The frames of one trial. Times are CLOCK_MONOTONIC in ns."""

    def __init__(
        self, traffic: Traffic, template: FrameTemplate, flow_bytes: FlowBytes, shared: Shared, spare: int = 0
    ) -> None:
        """`flow_bytes` are those of the template.

        `spare` bytes at the end of a live frame are never sent: the program cuts them off.
        """
        genome = traffic.frame_size.genome
        largest = max(genome)
        self.frame = template.frames[largest] + bytes(spare)
        # Where all frames have the size of the live frame, no shapes are needed.
        sizes = genome if len(genome) > 1 or spare else ()
        by_size = {
            size: _shape(frame, largest - size + spare, flow_bytes.sums_at) for size, frame in template.frames.items()
        }
        self.shapes = [bytes(by_size[size]) for size in sizes]
        self.program = "unpaced" if traffic.fps is None else "paced"
        fps = traffic.highest_fps or float("inf")
        if traffic.catch_up is not None:
            fps *= _HEADROOM  # otherwise a batch takes as long as its frames, and no delay can be caught up
        self.batch = next((batch for most, batch in _BATCHES if fps <= most), _LARGEST_BATCH)
        if self.batch > 1 and traffic.frame_size.mean_bytes > _LONG_BYTES:
            self.batch = min(2 * self.batch, _LARGEST_BATCH)
        self._traffic, self._shared = traffic, shared
        ctypes.memset(ctypes.byref(shared), 0, ctypes.sizeof(shared))
        shared.done = 1  # until it begins
        shared.only = by_size[largest]
        shared.shapes = len(self.shapes)
        shared.payload_at, shared.complement_at = template.payload_at, template.complement_at or 0
        shared.flows = template.flows
        shared.words, shared.sums = len(flow_bytes.words_at), len(flow_bytes.sums_at)
        shared.words_at[: shared.words], shared.sums_at[: shared.sums] = flow_bytes.words_at, flow_bytes.sums_at
        shared.zero_sums[: shared.sums] = [_NO_CHECKSUM if is_udp else 0 for is_udp in flow_bytes.udp_sums]

    def begin(self, at_ns: int) -> None:
        """Let the program send from `at_ns` on; a start time in the past becomes now, and counts as lateness."""
        traffic, shared = self._traffic, self._shared
        now_ns = time.monotonic_ns()
        self._late_ns = max(0, now_ns - at_ns)
        shared.start_ns = shared.due_ns = self.start_ns = max(now_ns, at_ns)
        limit_s = traffic.duration_s
        if traffic.fps is not None and traffic.frames is not None:
            limit_s, highest_fps = traffic.longest_s, traffic.highest_fps or traffic.fps
            shared.gap_ns, shared.gap_fraction = _gap(traffic.first_fps or traffic.fps)
            shared.first_frames = traffic.first_frames
            shared.later_gap_ns, shared.later_gap_fraction = _gap(traffic.later_fps or traffic.fps)
            shared.least_gap_ns = int(1e9 / catch_up_fps(highest_fps, traffic.catch_up))
            # Sent one by one, each frame would cost a call of the driver, and a high rate would never be caught up.
            shared.ahead_ns = (self.batch - 1) * shared.least_gap_ns
            if traffic.catch_up is not None:
                shared.ahead_ns = max(shared.ahead_ns, round(at_once_s(highest_fps) * 1e9))
            shared.frames = traffic.frames
        shared.end_ns = self.start_ns + round(limit_s * 1e9)
        shared.batch = self.batch
        shared.pause_ns = _RECEIVER_PAUSE_NS if traffic.receive == "softirq" else _PAUSE_NS
        shared.hold_ns = _LONGEST_HOLD_NS if self.batch == _LARGEST_BATCH else 0
        clocks = read_clocks(SystemClock())
        self._realtime_ns = (clocks.least_ns + clocks.most_ns) // 2
        shared.second = (self.start_ns + self._realtime_ns) // 1_000_000_000
        shared.second_ns = shared.second * 1_000_000_000 - self._realtime_ns
        shared.done = 0

    @property
    def nominal_end_ns(self) -> int:
        """The scheduled end of sending, in ns."""
        return self.start_ns + round(self._traffic.duration_s * 1e9)

    @property
    def end_ns(self) -> int:
        """The latest end of the trial in ns, even if frames are left."""
        return int(self._shared.end_ns)

    def result(self, error: str, spent: SchedTimes | None = None, cpu: int | None = None, softirqs_ns: int = 0) -> Sent:
        """Return the sent frames, after the end of the program; `error` is the reason for an early end.

        `spent` has the CPU time and waits of its thread, which is bound to `cpu`. `softirqs_ns` is the CPU time of the
        kernel's softirq thread there meanwhile.
        """
        traffic, shared = self._traffic, self._shared
        frames = shared.sent
        end_ns, late_ns, burst = shared.end_ns, shared.latest_ns, shared.longest_burst
        over_ns = min(time.monotonic_ns(), end_ns)
        tail_ns = max(0, over_ns - max(shared.seen_ns, self.start_ns))  # since the last run of the program
        if traffic.fps is not None:
            first = min(frames, traffic.first_frames)
            slots_s = (frames - first) / (traffic.later_fps or traffic.fps)
            if first and traffic.first_fps:
                slots_s += first / traffic.first_fps
            end_ns = max(shared.last_ns, self.start_ns + round(slots_s * 1e9))
            if traffic.catch_up is not None and not error:  # missing frames were due, and count as unsent
                end_ns = max(end_ns, self.nominal_end_ns)
            if frames >= (traffic.frames or 0):
                tail_ns = 0  # it had nothing left to send
        else:
            if error:
                end_ns = shared.last_ns
            pauses = frames // _CLOCK_EVERY + 1
            late_ns = pause_beyond_usual_ns(max(shared.latest_ns, tail_ns), over_ns - self.start_ns, pauses)
            burst = frames
        stalled_s = self._stalled_s(tail_ns)
        reports_backpressure = traffic.receive == "softirq" and traffic.fps is not None  # the receiver shares its CPU
        paused_s = shared.backpressure_ns / 1e9
        # Waits for the CPU can be as short as the receiver's work, but are backpressure only if that work took the CPU.
        foreign_s = (spent.waited_ns - softirqs_ns) / 1e9 if spent else 0.0
        waited_s = min(paused_s, max(0.0, foreign_s - (stalled_s or 0.0)))
        return Sent(
            frames=frames,
            errors=0,
            duration_s=(end_ns - self.start_ns) / 1e9 if frames else 0.0,
            first_ns=shared.first_ns + self._realtime_ns if frames else None,
            last_ns=shared.last_ns + self._realtime_ns if frames else None,
            max_burst_frames=burst,
            max_lateness_s=max(late_ns, self._late_ns) / 1e9,
            error=error,
            ran_s=spent.ran_ns / 1e9 if spent else None,
            wait_s=spent.waited_ns / 1e9 if spent else None,
            turns=spent.turns if spent else None,
            stalled_s=stalled_s,
            backpressure_s=paused_s - waited_s if reports_backpressure else None,
            descheduled_s=(stalled_s or 0.0) + waited_s if reports_backpressure else 0.0,
            cpu=cpu,
        )

    def _stalled_s(self, tail_ns: int) -> float | None:
        """Return for how many seconds the program did not run; None where stalls cannot be distinguished."""
        shared = self._shared
        stalled_ns, stalls = shared.stalled_ns, shared.stalls
        if tail_ns > shared.pause_ns:
            stalled_ns, stalls = stalled_ns + tail_ns, stalls + 1
        if self._traffic.fps is None and stalls > 1 and stalls * _FEW_STALLS > shared.sent // _CLOCK_EVERY:
            return None
        return float((stalled_ns + self._late_ns) / 1e9)


def _gap(fps: float) -> tuple[int, int]:
    """Return the gap between two frames at this rate: whole ns, and the rest in units of 1/_FRACTION ns."""
    return divmod(round(1e9 / fps * _FRACTION), _FRACTION)
