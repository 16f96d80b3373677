"""A capture counted while it is made: the same counts as from a file of it, and no way to hang."""

import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netbench.capture import live as live_module
from netbench.capture.capture_counts import STAMP_TOLERANCE_NS, CaptureCounts, Expected
from netbench.capture.counting import analyze_capture
from netbench.capture.live import GatheringPipe, LiveCapture
from netbench.errors import UsageError
from netbench.model.frame_size import FrameSize
from tests.fuzz.memory import file_of
from tests.unit.capture_files import FLUSH_MAC, START_NS, Frame, ethernet, pcap, pcap_header, stream_frame, udp

ENDS = "s1", "198.18.0.1", "198.18.0.2", FrameSize.of(128)
AWAITED = Expected(*ENDS, sent_from_ns=START_NS + STAMP_TOLERANCE_NS)
EXPECTED = Expected(*ENDS, 100, START_NS + 3_000_000, START_NS + 9_000_000)
SENT_NS = START_NS + 5_000_000
FLUSH = Frame(ethernet(bytes(46), dst=FLUSH_MAC), SENT_NS)
FOREIGN = Frame(ethernet(udp(b"", size=128)), SENT_NS)


def ours(seq: int, sent_ns: int = SENT_NS, size: int = 128) -> Frame:
    return stream_frame(seq, size=size, sent_ns=sent_ns + seq * 1000)


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """Read pieces as small as they come."""
    monkeypatch.setattr(live_module, "_GATHER_S", 0.0)


def listening(cpus: tuple[int, ...] = (), awaited: Expected = AWAITED) -> tuple[LiveCapture, int]:
    """Return a capture that is read, and the descriptor to write it to."""
    end, start = os.pipe()
    live = LiveCapture(awaited)
    live.begin(end, cpus)
    return live, start


def hear(content: bytes, pieces: list[int], awaited: Expected = AWAITED) -> LiveCapture:
    """Read a capture that arrives in pieces of these sizes, and the rest at once."""
    live, start = listening(awaited=awaited)
    with os.fdopen(start, "wb", buffering=0) as file:
        for size in pieces:
            file.write(content[:size])
            content = content[size:]
        while content:
            content = content[file.write(content) :]
    return live


def answer(ask: Callable[[], CaptureCounts]) -> CaptureCounts | None:
    """The counts; None where the capture is refused."""
    try:
        return ask()
    except UsageError:
        return None


arrivals = st.one_of(
    st.builds(ours, st.integers(0, 99)),
    st.builds(ours, st.integers(0, 99), st.just(START_NS - 10**9)),  # late from an earlier trial
    st.builds(ours, st.integers(0, 99), st.just(SENT_NS), st.just(256)),
    st.builds(lambda seq: stream_frame(seq, size=128, sent_ns=0), st.integers(0, 99)),
    st.just(FLUSH),
    st.just(FOREIGN),
)


@settings(max_examples=150, deadline=None)
@given(
    in_order=st.integers(0, 100),
    others=st.lists(arrivals, max_size=60),
    pieces=st.lists(st.integers(0, 3000), max_size=40),
    damage=st.one_of(st.none(), st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=4))),
    cut=st.integers(0, 40),
    stamps=st.sampled_from([{}, {"stamped_early": True}, {"stamped": False}]),
)
def test_it_finds_what_a_file_of_it_holds(in_order, others, pieces, damage, cut, stamps):
    content = pcap([*map(ours, range(in_order)), *others])
    if damage:
        at, junk = damage
        content = content[:at] + junk + content[at + len(junk) :]
    content = content[: len(content) - cut]
    expected = dataclasses.replace(EXPECTED, **stamps)
    live = hear(content, pieces, dataclasses.replace(AWAITED, **stamps))
    with file_of(content) as path:
        from_file = answer(lambda: analyze_capture(path, [expected]))
    from_pipe = answer(lambda: live.counts(expected))
    if damage is None:
        assert (from_pipe is None) == (from_file is None)
    # A damaged frame may bear a number that was not sent: that is refused, and never a wrong count.
    assert from_pipe in (from_file, None)


@pytest.mark.parametrize(
    ("strange", "otherwise"),
    [
        (ours(100), {}),
        (ours(2**31), {}),
        (ours(0, START_NS + 500_000), {}),
        (ours(0, START_NS + 20_000_000), {}),
        (ours(0), {"stamped_early": True}),
    ],
    ids=["next number", "far later number", "too early", "too late", "not stamped by its source"],
)
def test_a_frame_that_could_have_been_ours_and_is_not_makes_all_counts_unknown(strange, otherwise):
    """It was counted before the difference showed."""
    live = hear(pcap([*map(ours, range(100)), strange]), [])
    with pytest.raises(UsageError, match="the capture of s1: frames with the stream's addresses.*keep_captures"):
        live.counts(dataclasses.replace(EXPECTED, **otherwise))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"no capture at all, but quite some text", "neither pcap nor pcapng"),
        (pcap([ours(0)], link=105), "link type 105"),
    ],
)
def test_what_is_no_capture_is_read_to_its_end_and_refused(content, why):
    """tcpdump must be able to end and to report the cause."""
    live = hear(content + bytes(3 << 20) * bool(content), [])
    with pytest.raises(UsageError, match=f"the capture of s1: {why}"):
        live.counts(EXPECTED)
    assert not live.await_flush(0)


def test_whatever_fails_in_the_thread_is_reported(monkeypatch):
    monkeypatch.setattr("netbench.capture.live.CaptureTally.add", lambda self, batch: 1 / 0)
    live = hear(pcap([ours(0)]) + bytes(3 << 20), [])
    with pytest.raises(UsageError, match="its analysis failed: ZeroDivisionError"):
        live.counts(EXPECTED)


def test_a_flush_frame_reports_that_all_before_it_is_there():
    live, start = listening()
    os.write(start, pcap([ours(0)]))
    assert not live.await_flush(0.05)
    os.write(start, pcap([FLUSH])[24:])
    assert live.await_flush(20)
    os.close(start)
    counts = live.counts(EXPECTED)
    assert (counts.flush_frames, counts.streams[0].received, counts.foreign_frames) == (1, 1, 0)


def test_a_flush_is_not_kept_waiting_for_more(monkeypatch):
    monkeypatch.setattr(live_module, "_GATHER_S", 60.0)
    monkeypatch.setattr(live_module, "_STEP_S", 60.0)
    live, start = listening()
    os.write(start, pcap([FLUSH]))
    assert live.await_flush(30)
    os.close(start)
    live.counts(EXPECTED)


def test_what_comes_in_drops_is_read_in_draughts(monkeypatch):
    """Half of the pipe is read at a time, and the rest at its end."""
    monkeypatch.setattr(live_module, "_GATHER_S", 60.0)
    end, start = os.pipe()
    pipe = GatheringPipe(end)

    def drip():
        for _ in range(200):
            os.write(start, bytes(4096))
            time.sleep(0.0001)
        os.close(start)

    threading.Thread(target=drip).start()
    buffer = bytearray(1 << 22)
    with pipe:
        pieces = list(iter(lambda: pipe.readinto(buffer), 0))
    assert sum(pieces) == 200 * 4096
    assert len(pieces) <= 2


def test_the_end_of_a_capture_ends_the_wait_for_a_flush_frame():
    live = hear(pcap([ours(0)]), [])
    assert not live.await_flush(threading.TIMEOUT_MAX), "or this test would not end"


def test_it_runs_where_it_is_reported_to():
    allowed = os.sched_getaffinity(0)
    cpu = max(allowed)
    before = {thread.native_id for thread in threading.enumerate()}
    live, start = listening((cpu,))
    os.write(start, pcap([FLUSH]))
    assert live.await_flush(20)
    (thread,) = {thread.native_id for thread in threading.enumerate()} - before
    assert thread is not None
    assert os.sched_getaffinity(thread) == {cpu}
    os.close(start)
    live.counts(EXPECTED)
    assert os.sched_getaffinity(0) == allowed, "only that thread"


MEASURE = """
import os, resource, sys, threading
import numpy as np
from netbench.capture.capture_counts import Expected
from netbench.capture.live import GatheringPipe, LiveCapture
from netbench.model.frame_size import FrameSize

template = np.frombuffer(bytes.fromhex(sys.argv[1]), np.uint8)
count, lost_of_1000 = int(sys.argv[2]), int(sys.argv[3])
end, start = os.pipe()
live = LiveCapture(Expected("s1", "198.18.0.1", "198.18.0.2", FrameSize.of(64)))
live.begin(end, ())
with open(start, "wb", buffering=0) as file:
    file.write(bytes.fromhex(sys.argv[4]))
    rows = np.tile(template, (10_000, 1))
    for first in range(0, count, 10_000):
        numbers = np.arange(first, first + 10_000)
        rows[:, 62:66] = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
        data = rows[numbers % 1000 >= lost_of_1000].tobytes()
        while data:
            data = data[file.write(data):]
found = live.counts(Expected("s1", "198.18.0.1", "198.18.0.2", FrameSize.of(64), count, 0, 2**62))
(stream,) = found.streams
print(stream.received, stream.missing, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("lost_of_1000", [0, 10])
def test_memory_stays_flat(lost_of_1000):
    """Ten times the frames need no more; with loss, a bit for each frame may be kept."""
    record = pcap([stream_frame(0)])[24:].hex()
    peaks_kib = []
    for count in (200_000, 2_000_000):
        argv = [sys.executable, "-c", MEASURE, record, str(count), str(lost_of_1000), pcap_header().hex()]
        received, missing, peak_kib = map(int, subprocess.check_output(argv, text=True).split())
        assert (received, missing) == (count * (1000 - lost_of_1000) // 1000, count * lost_of_1000 // 1000)
        peaks_kib.append(peak_kib)
    assert peaks_kib[1] < peaks_kib[0] + 4096


def test_of_what_came_before_the_trial_only_frames_of_earlier_trials_count():
    """Those are late whenever they arrive. The trial's counters did not see other frames of that time, either."""
    before = [stream_frame(n, size=128, src="198.18.0.77", sent_ns=START_NS - 10**9) for n in range(3)] + [
        ours(1),
        FOREIGN,
        FLUSH,
    ]
    since = [frame._replace(time_ns=frame.time_ns + 10**9) for frame in (*map(ours, range(100)), FLUSH)]
    end, start = os.pipe()
    live = LiveCapture(AWAITED, START_NS + 10**9)
    live.begin(end, ())
    with os.fdopen(start, "wb") as file:
        file.write(pcap(before))
        file.flush()
        assert live.await_frames(6, 20), "they alone, too"
        assert not live.await_frames(7, 0)
        file.write(pcap(since)[24:])
        file.flush()
        assert live.await_frames(6 + 101, 20)
    assert not live.await_frames(6 + 100, 0), "there are more"
    assert live.await_frames(6 + 101, 0)
    counts = live.counts(EXPECTED)
    assert (counts.streams[0].received, counts.streams[0].duplicates) == (100, 0)
    assert (counts.foreign_frames, counts.flush_frames, counts.late_from) == (0, 1, {"198.18.0.77": 3})
    assert live.frames == 107


def test_what_comes_after_the_awaited_frames_does_not_count():
    live, start = listening()
    with os.fdopen(start, "wb") as file:
        file.write(pcap([*map(ours, range(100)), FLUSH]))
        file.flush()
        assert live.await_frames(101, 20)
        file.write(pcap([FOREIGN])[24:])
    counts = live.counts(EXPECTED)
    assert (counts.streams[0].received, counts.foreign_frames, counts.flush_frames) == (100, 0, 1)
